"""Launches that pack weights of convolutions: generated kernels that move elements."""

from __future__ import annotations

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import Strided
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.pack.kernel import channels_innermost, pack_nest
from aicf.backends.cuda.families.loops.codegen import launches_of


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launch of one instruction."""
    (source,), (target,) = launch.ins, launch.outs
    nest = pack_nest(Strided(source.shape, source.strides, source.dtype))
    out = BufferRef(target.base, target.offset, source.shape, channels_innermost(source.shape), target.dtype)
    return launches_of(launch.kind, nest, launch.record, [source, out])
