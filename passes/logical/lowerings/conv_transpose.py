"""Transposed convolutions, which are also what convolutions pass back to their operands.

They are convolutions again, or products whose results are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.logical.lowerings.convolution import widened, with_bias
from aicf.passes.logical.overlap_add import overlap_add, zero, zeros_around
from aicf.passes.logical.phases import MOST_PHASES, Phase, fitted, interleaved, phases
from aicf.passes.support.writing import static_size


def _conv_transpose(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue:
    """A convolution with the weight turned round for each phase of the result, or one for all phases, or a product
    whose results are added up as windows.

    The first two move the weight, the last one many times the operand. One convolution for all phases has many output
    channels; where the stride does not divide the window, part of its weight is zeros.
    """
    batch, channels, *sizes = (static_size(op, size) for size in tensor_info(op.operand.type).sizes)
    taps = tensor_info(op.weight.type).shape[2:]
    # A window of one element adds nothing up: its convolution is that product, with sums of their own type.
    if batch * prod(sizes) < channels // op.groups.value.data and prod(taps) > 1:
        return _spread(lower, op)
    strides, dilations = int_values(op.strides), int_values(op.dilations)
    apart = all(1 in pair for pair in zip(strides, dilations, strict=True))
    is_divided = apart and all(tap % stride == 0 for tap, stride in zip(taps, strides, strict=True))
    if prod(strides) == 1 or (prod(strides) <= MOST_PHASES and not is_divided):
        return _by_phases(lower, op)
    return _turned(lower, op) if apart else _spread(lower, op)


def _by_phases(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue:
    """A convolution of stride 1 for each phase of the result, with the elements of the weight that reach it."""
    strides, wanted = int_values(op.strides), op.info.shape[2:]
    lists = zip(
        *(tensor_info(op.weight.type).shape[2:], tensor_info(op.operand.type).shape[2:], strides),
        *(int_values(op.dilations), int_values(op.low), wanted),
        strict=True,
    )
    along = [
        phases(taps=taps, windows=windows, stride=stride, dilation=dilation, low=low, size=size)
        for taps, windows, stride, dilation, low, size in lists
    ]
    parts = [_phase(lower, op, own) for own in product(*along)]
    if all(part is None for part in parts):
        zeros = lower.broadcast(zero(lower, op.operand), [], op.info.sizes, "zeros")
        return with_bias(lower, op, zeros)
    return with_bias(lower, op, interleaved(lower, parts, strides, wanted))


def _phase(lower: Lowering, op: logical.ConvTransposeOp, own: Sequence[Phase]) -> SSAValue | None:
    """The sums of one phase; None for zeros."""
    if (found := fitted(lower, op.operand, own)) is None:
        return None
    operand, low, high = found
    conv = logical.ConvOp(
        operand,
        _phase_weight(lower, op, own),
        low=low,
        high=high,
        dilations=[phase.spread for phase in own],
        groups=op.groups.value.data,
    )
    return lower.add(conv, "sums")


def _phase_weight(lower: Lowering, op: logical.ConvTransposeOp, own: Sequence[Phase]) -> SSAValue:
    """[M, C / groups, J..] of the weight [C, M / groups, K..]: the elements that reach a phase, the last one first."""
    channels, outputs, *taps = tensor_info(op.weight.type).shape
    groups, rank, counts = op.groups.value.data, len(taps), [phase.count for phase in own]
    weight = op.weight
    if counts != taps:
        starts, steps = [0, 0, *(p.taps[0] for p in own)], [1, 1, *(p.taps.step for p in own)]
        weight = lower.add(logical.SliceOp(weight, starts, [channels, outputs, *counts], steps), "reaching")
    weight = lower.reshape(weight, [groups, channels // groups, outputs, *counts], "groups")
    # Channels change places before elements do: so what is written lies as what is read, where outputs are innermost.
    weight = lower.add(logical.TransposeOp(weight, [0, 2, 1, *range(3, 3 + rank)]), "turned")
    if turned := [axis for axis, count in enumerate(counts, 3) if count > 1]:
        weight = lower.add(logical.FlipOp(weight, turned), "flip")
    return lower.reshape(weight, [groups * outputs, channels // groups, *counts], "weights")


def _turned(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue:
    """Each position among `strides` ones of the result is a convolution with every `strides`-th element of the weight.

    All of them are one convolution, with so many times the output channels, whose results are put side by side.
    """
    strides, low, wanted = int_values(op.strides), int_values(op.low), op.info.shape[2:]
    weight, taps = _turned_weight(lower, op)
    border = [(tap - 1) * dilation for tap, dilation in zip(taps, int_values(op.dilations), strict=True)]
    sizes = tensor_info(op.operand.type).shape[2:]
    whole = [(size + more) * stride for size, more, stride in zip(sizes, border, strides, strict=True)]
    short = [max(start + size - have, 0) for start, size, have in zip(low, wanted, whole, strict=True)]
    sums = lower.add(
        logical.ConvOp(
            *(op.operand, weight, None if any(short) else _spread_bias(lower, op, prod(strides))),
            strides=[1] * len(strides),
            low=border,
            high=border,
            dilations=int_values(op.dilations),
            groups=op.groups.value.data,
        ),
        "sums",
    )
    sums = _side_by_side(lower, sums, strides)
    if any(short):
        sums = with_bias(lower, op, zeros_around(lower, sums, [0, 0, *(0 for _ in short)], [0, 0, *short]))
    return _cut(lower, sums, low, wanted)


def _side_by_side(lower: Lowering, value: SSAValue, strides: Sequence[int]) -> SSAValue:
    """[N, M * strides, Q..] to [N, M, (Q * strides)..]."""
    if prod(strides) == 1:
        return value
    batch, outputs, *counts = tensor_info(value.type).shape
    rank = len(strides)
    value = lower.add(
        logical.ReshapeOp(value, [batch, outputs // prod(strides), *strides, *counts]), "places"
    )
    order = [0, 1, *(dim + offset for dim in range(2, 2 + rank) for offset in (rank, 0))]
    value = lower.add(logical.TransposeOp(value, order), "order")
    whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
    return lower.add(logical.ReshapeOp(value, [batch, outputs // prod(strides), *whole]), "joined")


def _turned_weight(lower: Lowering, op: logical.ConvTransposeOp) -> tuple[SSAValue, list[int]]:
    """[M * strides, C / groups, J..] of the weight [C, M / groups, K..], and J: how many elements of a window reach one
    position, the last one first."""
    channels, outputs, *taps = tensor_info(op.weight.type).shape
    groups, strides, rank = op.groups.value.data, int_values(op.strides), len(taps)
    reached = [-(-tap // stride) for tap, stride in zip(taps, strides, strict=True)]
    short = [count * stride - tap for count, stride, tap in zip(reached, strides, taps, strict=True)]
    weight = zeros_around(lower, op.weight, [0] * (rank + 2), [0, 0, *short])
    split = [size for pair in zip(reached, strides, strict=True) for size in pair]
    weight = lower.add(logical.ReshapeOp(weight, [groups, channels // groups, outputs, *split]), "weight")
    elements, counts = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    turned = [axis for axis, count in zip(elements, reached, strict=True) if count > 1]
    if turned:
        weight = lower.add(logical.FlipOp(weight, turned), "flip")
    weight = lower.add(logical.TransposeOp(weight, [0, 2, *counts, 1, *elements]), "turned")
    sizes = [groups * outputs * prod(strides), channels // groups, *reached]
    return lower.add(logical.ReshapeOp(weight, sizes), "weights"), reached


def _spread_bias(lower: Lowering, op: logical.ConvTransposeOp, dims: int) -> SSAValue | None:
    """The bias once for each position."""
    if op.bias is None or dims == 1:
        return op.bias
    outputs = op.info.shape[1]
    spread = lower.broadcast(op.bias, [0], [outputs, dims], "bias.broadcast")
    return lower.add(logical.ReshapeOp(spread, [outputs * dims]), "bias")


def _spread(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue:
    """weight [M * K, C] @ operand [C, N * S], whose results are added up as windows."""
    batch, channels, *sizes = (static_size(op, size) for size in tensor_info(op.operand.type).sizes)
    groups, rank = op.groups.value.data, len(sizes)
    _, outputs, *taps = tensor_info(op.weight.type).shape
    by_group = [] if groups == 1 else [groups]
    weight = widened(lower, op.weight)
    weight = lower.reshape(weight, [*by_group, channels // groups, outputs * prod(taps)], "weight")
    rows = lower.add(logical.TransposeOp(widened(lower, op.operand), [1, 0, *range(2, 2 + rank)]), "channels")
    rows = lower.reshape(rows, [*by_group, channels // groups, batch * prod(sizes)], "rows")
    product = lower.add(logical.MatmulOp(weight, rows, transpose_a=True), "product")
    apart = lower.add(logical.ReshapeOp(product, [groups * outputs, *taps, batch, *sizes]), "apart")
    order = [1 + rank, 0, *range(2 + rank, 2 + 2 * rank), *range(1, 1 + rank)]
    windows = lower.add(logical.TransposeOp(apart, order), "order")
    low, wanted = int_values(op.low), op.info.shape[2:]
    least = [start + size for start, size in zip(low, wanted, strict=True)]
    total = overlap_add(lower, windows, int_values(op.strides), int_values(op.dilations), least)
    return with_bias(lower, op, _cut(lower, total, low, wanted))


def _cut(lower: Lowering, value: SSAValue, low: Sequence[int], sizes: Sequence[int]) -> SSAValue:
    batch, outputs, *whole = tensor_info(value.type).shape
    if list(sizes) == whole:
        return value
    return lower.add(logical.SliceOp(value, [0, 0, *low], [batch, outputs, *sizes]), "cut")


FORMULAS: Formulas = {logical.ConvTransposeOp: _conv_transpose}
