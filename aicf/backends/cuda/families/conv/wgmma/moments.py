"""Convolutions beside which a batch norm's statistics are taken: their scalar program apart, and the second launch.

Of what a block has in shared memory before it stores it, each warpgroup takes the mean of every channel and the squares
around it, one *part* of `MOMENT_ROWS` pixels. A second launch combines the parts and computes what follows for a
channel: variance, reciprocal deviation, factor. So what is normalised is not read once more for its statistics.
Imports no code generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.families.gemm.wgmma.schedule import MOMENT_ROWS, SLAB_ROWS
from aicf.backends.cuda.families.loops.costs import last_launch_us
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.loops.phase_pairs import reductions_of
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.backends.cuda.target import HALVES, GpuArch
from aicf.dialects.emit_kernels import CastOp, KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.types import element_of

_CHANNELS = 8
"""Channels of a block of the second launch: of each part they are 32 bytes."""
_LANES = 64
"""Most threads that share the parts of a channel."""


@dataclass(frozen=True)
class Statistics:
    """A scalar program that stores a convolution's result and takes the moments of its channels.

    Args:
        stored: The number of the result that has an element for each pixel.
        epilogue: What stores that alone.
        closing: What takes the moments of it, its first operand, and gives the other results, in order.
    """

    stored: int
    epilogue: KernelOp
    closing: KernelOp


def statistics_of(code: KernelOp) -> Statistics | str:
    """The program taken apart; a reason if it is none that the parts of a convolution serve."""
    stores = [op for phase in code.phases for op in phase.body.block.ops if isinstance(op, StoreOp)]
    of_pixels = [op for op in stores if code.writes_reduce_space(op.output.value.data)]
    result = code.body.block.args[0]
    if len(of_pixels) != 1 or of_pixels[0].value is not result:
        return "what it stores of each pixel is not its sums alone"
    if element_of(result.type).name not in HALVES:
        return f"moments are taken of f16 and bf16 here, it stores {element_of(result.type).name}"
    stored = of_pixels[0].output.value.data
    if code.out_maps[stored] != code.in_maps[0]:
        return "it stores its result in another order of dimensions"
    closing = _closing(code, stored)
    if not _takes_moments(closing):
        return "its channels are reduced to something else than their means and the squares around these"
    return Statistics(stored, _epilogue(code), closing)


def _epilogue(code: KernelOp) -> KernelOp:
    """The result as it is, over the dimensions of the convolution."""
    sizes = {dim: size for dim, size in enumerate((*code.parallel_sizes, *code.reduce_sizes))}
    shape = [sizes[next(iter(used))] if (used := expr.used_dims()) else 1 for expr in code.in_maps[0].results]
    block = Block(arg_types=[code.body.block.args[0].type])
    block.add_op(PhaseOp(Region(Block([StoreOp(block.args[0], 0), YieldOp()]))))
    identity = AffineMap.identity(len(shape))
    return KernelOp(code.sym_name.data, shape, [], [identity], [identity], Region(block))


def _closing(code: KernelOp, stored: int) -> KernelOp:
    """The program without the store of the result, which is its first operand in memory then."""
    maps = [m for output, m in enumerate(code.out_maps) if output != stored]
    body = code.body.clone()
    closing = KernelOp(code.sym_name.data, code.parallel_sizes, code.reduce_sizes, code.in_maps, maps, body)
    for phase in closing.phases:
        for op in list(phase.body.block.ops):
            if not isinstance(op, StoreOp):
                continue
            if (output := op.output.value.data) == stored:
                op.detach()
                op.erase()
            elif output > stored:
                op.output = IntegerAttr(output - 1, i64)
    return closing


def _takes_moments(closing: KernelOp) -> bool:
    """Whether the moments of the result are all that it takes of pixels, and are known before anything is stored."""
    found = moments_of(closing)
    if found is None or found.phase != 0 or len(found.squares) != 1:
        return False
    sums = reductions_of(closing.phases[0])
    is_result = all(
        isinstance(op.value.owner, CastOp) and op.value.owner.operands[0] is closing.body.block.args[0]
        for op in sums
    )
    reduced = any(map(reductions_of, closing.phases[2:])) or len(closing.phases) != 3
    return is_result and not reduced and not any(map(closing.varies, closing.phases[1].results))


def pixels_reason(pixels: int) -> str | None:
    """Why so many pixels do not come in parts of whole rows of a warp, None if they do."""
    if pixels % SLAB_ROWS:
        return f"moments are taken of {SLAB_ROWS} pixels at a time, it has {pixels}"
    return None if pixels > MOMENT_ROWS else f"its {pixels} pixels are one part, which needs no second launch"


# The launch that closes


def closing_nest(
    closing: KernelOp,
    stored: OperandInfo | BufferRef,
    others: Sequence[OperandInfo | BufferRef],
) -> LoopNest:
    """The loops of the second launch: over the result in memory, then operands and results of each channel."""
    operands = (stored, *others)
    return nest_of(closing, [each.strides for each in operands], [each.dtype for each in operands])


def closing_spec(nest: LoopNest) -> GeneratedSpec:
    """Few channels to a block and many threads to a channel, for there are many parts."""
    parts = ceil(nest.reduce_size / MOMENT_ROWS)
    lanes = min(_LANES, max(4, 1 << (parts - 1).bit_length()))
    return GeneratedSpec("online_columns", 1, lanes * _CHANNELS, lanes, 1, parts)


def moments_bytes(nest: LoopNest) -> int:
    """Workspace for the parts: a mean and squares of each channel."""
    return partial_bytes(nest, closing_spec(nest))


def closing_us(nest: LoopNest, arch: GpuArch) -> float:
    """Predicted microseconds of the second launch."""
    return last_launch_us(nest, closing_spec(nest), arch)


def order_text(nest: LoopNest) -> str:
    """How the moments of a channel come together, for the record."""
    spec = closing_spec(nest)
    return (
        f"moments: {SLAB_ROWS} pixels by butterflies, 4 warps ascending, then {spec.splits} parts strided over "
        f"{spec.lanes} threads, those as columns are"
    )
