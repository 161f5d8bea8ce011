"""Convolutions beside which statistics of channels are taken: their scalar program apart, and the second launch.

Of what a block has in shared memory before it stores it, each warpgroup takes one *part* of `STATISTICS_ROWS` pixels:
of every channel either the moments, which are the mean and the squares around it, as a batch norm needs them, or up to
three sums, as its gradient does. A second launch combines the parts and computes what follows for a channel, such as
variance, reciprocal deviation and factor. So what was stored is not read once more for its statistics.
Imports no code generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from xdsl.dialects.builtin import IntegerAttr, f32, i64
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.families.gemm.wgmma.schedule import SLAB_ROWS, STATISTICS_ROWS
from aicf.backends.cuda.families.loops.costs import last_launch_us
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.loops.phase_pairs import are_same, reductions_of
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.backends.cuda.target import HALVES, GpuArch
from aicf.dialects.emit_kernels import CastOp, KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.types import element_of

_CHANNELS = 8
"""Channels of a block of the second launch: of each part they are 32 bytes."""
_LANES = 64
"""Most threads that share the parts of a channel."""
_MOST_SUMS = 3
"""Of each channel: a thread has those of eight channels in registers."""


@dataclass(frozen=True)
class Statistics:
    """A scalar program that stores a convolution's result and takes statistics of its channels.

    Args:
        stored: The number of the result that has an element for each pixel.
        epilogue: What stores that alone.
        reads: The operands of the epilogue after the sums, as numbers of the whole program's.
        closing: What takes the statistics and gives the other results, in order; its first operand is the stored one.
        summed: What is added up for each channel, of the stored result and the operands `beside`; None for moments.
        beside: Numbers of these operands.
    """

    stored: int
    epilogue: KernelOp
    reads: tuple[int, ...]
    closing: KernelOp
    summed: KernelOp | None = None
    beside: tuple[int, ...] = ()


def statistics_of(code: KernelOp) -> Statistics | str:
    """The program taken apart; a reason if it is none that the parts of a convolution serve."""
    stores = [op for phase in code.phases for op in phase.body.block.ops if isinstance(op, StoreOp)]
    of_pixels = [op for op in stores if code.writes_reduce_space(op.output.value.data)]
    if len(of_pixels) != 1:
        return f"it stores {len(of_pixels)} results with an element for each pixel, not one"
    value, stored = of_pixels[0].value, of_pixels[0].output.value.data
    if element_of(value.type).name not in HALVES:
        return f"statistics are taken of f16 and bf16 here, it stores {element_of(value.type).name}"
    if code.out_maps[stored] != code.in_maps[0]:
        return "it stores its result in another order of dimensions"
    closing = _closing(code, stored)
    first = code.body.block.args[0]
    if value is first and _takes_moments(closing):
        epilogue = program_at(code, value, [value])
        assert epilogue is not None, "it stores its operand"
        return Statistics(stored, *epilogue, closing)
    epilogue = program_at(code, first, [value])
    sums, start = reductions_of(code.phases[0]), _in_first_phase(code, value)
    summed = None if start is None else program_at(code, start, [op.value for op in sums])
    if epilogue is None or summed is None or not _takes_sums(closing):
        return "its channels are reduced to something else than sums, or their means and the squares around these"
    if len(sums) > _MOST_SUMS:
        return f"it takes {len(sums)} sums of each channel, more than {_MOST_SUMS}"
    return Statistics(stored, *epilogue, closing, *summed)


def program_at(
    code: KernelOp, start: SSAValue, roots: Sequence[SSAValue]
) -> tuple[KernelOp, tuple[int, ...]] | None:
    """What computes `roots` of the value `start` and of other operands, over the dimensions of the convolution, and the
    numbers of these operands; None if that takes the sums, or more than one phase."""
    phase = next(
        (root.owner.parent_op() for root in roots if isinstance(root.owner, Operation)), code.phases[0]
    )
    assert isinstance(phase, PhaseOp)
    needed, stack = set[SSAValue](), list(roots)
    while stack:
        value = stack.pop()
        if value in needed or value is start:
            continue
        needed.add(value)
        if isinstance(value, BlockArgument):
            if value.index == 0 or value.index in code.indexed:
                return None
        elif not isinstance(value, OpResult) or value.op.parent_op() is not phase:
            return None
        else:
            stack.extend(value.op.operands)
    used = sorted(value.index for value in needed if isinstance(value, BlockArgument))
    operands = [start, *(code.body.block.args[number] for number in used)]
    block, body = Block(arg_types=[each.type for each in operands]), Block()
    inner: dict[SSAValue, SSAValue] = dict(zip(operands, block.args, strict=True))
    for op in phase.body.block.ops:
        if op.results and op.results[0] in needed:
            body.add_op(copy := op.clone(inner))
            inner |= zip(op.results, copy.results, strict=True)
    body.add_ops([*(StoreOp(inner[root], number) for number, root in enumerate(roots)), YieldOp()])
    block.add_op(PhaseOp(Region(body)))
    sizes, turned = _dims_of(code)
    identity = AffineMap.identity(len(sizes))
    maps = [identity, *(turned(code.in_maps[number]) for number in used)]
    kernel = KernelOp(code.sym_name.data, sizes, [], maps, [identity] * len(roots), Region(block))
    return kernel, tuple(used)


def _in_first_phase(code: KernelOp, value: SSAValue) -> SSAValue | None:
    """The stored value as the first phase computes it; a later one may compute it again, to store it."""
    results = (result for op in code.phases[0].body.block.ops for result in op.results)
    found = (result for result in (code.body.block.args[0], *results) if are_same(result, value))
    return next(found, None)


def _dims_of(code: KernelOp) -> tuple[list[int], Callable[[AffineMap], AffineMap]]:
    """The sizes of the convolution's result, and what makes a map over the program's dims one over those."""
    own = (*code.parallel_sizes, *code.reduce_sizes)
    along = [expr.position if isinstance(expr, AffineDimExpr) else None for expr in code.in_maps[0].results]
    dims: list[AffineExpr] = [
        AffineExpr.dimension(along.index(dim)) if dim in along else AffineExpr.constant(0)
        for dim in range(len(own))
    ]

    def turned(map_: AffineMap) -> AffineMap:
        results = tuple(expr.replace_dims_and_symbols(dims, []) for expr in map_.results)
        return AffineMap(len(along), 0, results)

    return [1 if dim is None else own[dim] for dim in along], turned


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


def _takes_sums(closing: KernelOp) -> bool:
    """Whether all that it takes of pixels are sums in f32, known before anything is stored."""
    first, *later = closing.phases
    sums = reductions_of(first)
    if not sums or any(op.combine.data != "sum" or op.value.type != f32 for op in sums):
        return False
    if any(map(closing.varies, first.results)):
        return False
    return not any(closing.sweeps_reduce_space(phase) for phase in later)


def pixels_reason(pixels: int) -> str | None:
    """Why so many pixels do not come in parts of whole rows of a warp, None if they do."""
    if pixels % SLAB_ROWS:
        return f"statistics are taken of {SLAB_ROWS} pixels at a time, it has {pixels}"
    return (
        None
        if pixels > STATISTICS_ROWS
        else f"its {pixels} pixels are one part, which needs no second launch"
    )


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
    parts = ceil(nest.reduce_size / STATISTICS_ROWS)
    lanes = min(_LANES, max(4, 1 << (parts - 1).bit_length()))
    strategy = "columns" if moments_of(nest.kernel) is None else "online_columns"
    return GeneratedSpec(strategy, 1, lanes * _CHANNELS, lanes, 1, parts)


def statistics_bytes(nest: LoopNest) -> int:
    """Workspace for the parts: what each leaves of every channel."""
    return partial_bytes(nest, closing_spec(nest))


def closing_us(nest: LoopNest, arch: GpuArch) -> float:
    """Predicted microseconds of the second launch."""
    return last_launch_us(nest, closing_spec(nest), arch)


def order_text(parts: Statistics, nest: LoopNest) -> str:
    """How the statistics of a channel come together, for the record."""
    spec = closing_spec(nest)
    own, warps = (
        ("in pairs", "means and squares of 4 warps") if parts.summed is None else ("ascending", "4 warps")
    )
    return (
        f"channels: 4 pixels of a thread {own}, 4 threads by butterflies, {warps} ascending, then {spec.splits} parts "
        f"strided over {spec.lanes} threads, those as columns are"
    )
