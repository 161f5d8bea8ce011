"""Copies and concatenations as generated kernels: one way to move elements. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap

from aicf.backends.cpu.gemm_work import Strided
from aicf.backends.cpu.loop_spec import LoopNest, nest_of
from aicf.dialects.emit_kernels import KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.types import element_named


def copy_nest(source: Strided, target: Strided) -> LoopNest:
    """Loops that copy `source` to `target`, of one shape and element type."""
    return nest_of(
        _copy_kernel(source.shape, source.dtype), [source.strides, target.strides], [source.dtype] * 2
    )


def _copy_kernel(shape: tuple[int, ...], dtype: str) -> KernelOp:
    block = Block(arg_types=[element_named(dtype).type])
    phase = Block([StoreOp(block.args[0], 0), YieldOp()])
    block.add_op(PhaseOp(Region(phase)))
    identity = AffineMap.identity(len(shape))
    return KernelOp("copy", shape, [], [identity], [identity], Region(block))


def concat_nests(sources: Sequence[Strided], target: Strided, axis: int) -> list[tuple[int, LoopNest]]:
    """For each operand of a concatenation: where it starts in `target` (elements), and the loops that copy it there."""
    found: list[tuple[int, LoopNest]] = []
    start = 0
    for source in sources:
        part = Strided(source.shape, target.strides, target.dtype)
        found.append((start * target.strides[axis], copy_nest(source, part)))
        start += source.shape[axis]
    return found
