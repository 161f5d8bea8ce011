"""Launches that pack weights of convolutions: generated kernels that move elements."""

from __future__ import annotations

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import Strided
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.pack.kernel import pack_nest, packed_target
from aicf.backends.cuda.families.loops.codegen import launches_of


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launch of one instruction."""
    (source,), (target,) = launch.ins, launch.outs
    assert target.layout is not None, "a weight is packed into a layout"
    plain, name = Strided(source.shape, source.strides, source.dtype), target.layout.layout.data
    nest, strides = pack_nest(plain, name), packed_target(plain, name).strides
    out = BufferRef(target.base, target.offset, source.shape, strides, target.dtype)
    return launches_of(launch.kind, nest, launch.record, [source, out])
