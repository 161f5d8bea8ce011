"""Convolutions as products of the weight with windows as columns, and their transposes as the way back.

A convolution with one input channel a group is arithmetic on windows: a product would have next to nothing to sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.logical.overlap_add import around, overlap_add, zeros_around
from aicf.passes.support.writing import static_size


def _conv(lower: Lowering, op: logical.ConvOp) -> SSAValue:
    """weight [M, C * K] @ windows [N, C * K, O], a batch of groups if there are several."""
    windows = _windows(lower, op)
    groups, taps = op.groups.value.data, tensor_info(op.weight.type).shape[2:]
    channels = tensor_info(op.weight.type).shape[1]
    is_depthwise = channels == 1 and groups > 1
    result = (
        _depthwise(lower, op, windows)
        if is_depthwise
        else _product(lower, op, windows, prod(taps) * channels)
    )
    return _with_bias(lower, op, result)


def _windows(lower: Lowering, op: logical.ConvOp) -> SSAValue:
    """[N, C, O.., K..]."""
    low, high = ([0, 0, *int_values(amounts)] for amounts in (op.low, op.high))
    padded = around(lower, op.operand, low, high, op.around)
    taps = tensor_info(op.weight.type).shape[2:]
    window = logical.WindowOp(padded, taps, int_values(op.strides), int_values(op.dilations))
    return lower.add(window, "windows")


def _product(lower: Lowering, op: logical.ConvOp, windows: SSAValue, inner: int) -> SSAValue:
    batch, outputs, *counts = (static_size(op, size) for size in op.info.sizes)
    groups, rank = op.groups.value.data, len(counts)
    order = [0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)]
    columns = lower.add(logical.TransposeOp(windows, order), "order")
    by_group = [] if groups == 1 else [groups]
    columns = lower.add(logical.ReshapeOp(columns, [batch, *by_group, inner, prod(counts)]), "columns")
    weight = lower.add(logical.ReshapeOp(op.weight, [*by_group, outputs // groups, inner]), "weight")
    product = lower.add(logical.MatmulOp(weight, columns, widening=op.widening is not None), "product")
    return lower.add(logical.ReshapeOp(product, op.info.sizes), "reshape")


def _depthwise(lower: Lowering, op: logical.ConvOp, windows: SSAValue) -> SSAValue:
    """Each window times the weight of its channel, and the sum of it: in f32 for short floats, in i32 if it widens."""
    batch, outputs, *counts = (static_size(op, size) for size in op.info.sizes)
    taps = tensor_info(op.weight.type).shape[2:]
    groups, rank = op.groups.value.data, len(counts)
    sizes = [batch, groups, outputs // groups, *counts, *taps]
    window_dims = range(3, 3 + 2 * rank)
    wide = _widened if op.widening is None else _as_sums
    seen = lower.broadcast(wide(lower, windows), [0, 1, *window_dims], sizes, "seen")
    weight = wide(lower, op.weight)
    weight = lower.add(logical.ReshapeOp(weight, [groups, outputs // groups, *taps]), "weight")
    weight = lower.broadcast(weight, [1, 2, *window_dims[rank:]], sizes, "weights")
    product = lower.apply(logical.MulOp, seen, weight)
    total = lower.add(logical.ReduceSumOp(product, window_dims[rank:]), "sum")
    return lower.add(logical.ReshapeOp(total, op.info.sizes), "reshape")


def _widened(lower: Lowering, value: SSAValue) -> SSAValue:
    return lower.widen(value) if tensor_info(value.type).element.is_float else value


def _as_sums(lower: Lowering, value: SSAValue) -> SSAValue:
    return lower.cast(value, lower.op.info.element, "widen")


def _with_bias(lower: Lowering, op: logical.ConvOp | logical.ConvTransposeOp, value: SSAValue) -> SSAValue:
    if op.bias is None:
        return value
    bias, info = op.bias, tensor_info(value.type)
    if info.element != op.info.element:
        bias = lower.widen(bias)
    return lower.add(logical.AddOp(value, lower.broadcast(bias, [1], info.sizes, "bias.broadcast")), "bias")


def _conv_transpose(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue:
    """A convolution with the weight turned round, or a product whose results are added up as windows.

    The former moves the weight, the latter many times the operand.
    """
    batch, channels, *sizes = (static_size(op, size) for size in tensor_info(op.operand.type).sizes)
    apart = all(1 in pair for pair in zip(int_values(op.strides), int_values(op.dilations), strict=True))
    return _turned(lower, op) if apart and 2 * batch * prod(sizes) >= channels else _spread(lower, op)


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
        sums = _with_bias(lower, op, zeros_around(lower, sums, [0, 0, *(0 for _ in short)], [0, 0, *short]))
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
    """weight [M * K, C] @ operand [N, C, S], whose results are added up as windows."""
    batch, channels, *sizes = (static_size(op, size) for size in tensor_info(op.operand.type).sizes)
    groups = op.groups.value.data
    _, outputs, *taps = tensor_info(op.weight.type).shape
    by_group = [] if groups == 1 else [groups]
    weight = _widened(lower, op.weight)
    weight = lower.add(
        logical.ReshapeOp(weight, [*by_group, channels // groups, outputs * prod(taps)]), "weight"
    )
    rows = _widened(lower, op.operand)
    rows = lower.add(logical.ReshapeOp(rows, [batch, *by_group, channels // groups, prod(sizes)]), "rows")
    product = lower.add(logical.MatmulOp(weight, rows, transpose_a=True), "product")
    apart = lower.add(logical.ReshapeOp(product, [batch, groups * outputs, *taps, *sizes]), "apart")
    rank = len(sizes)
    order = [0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)]
    windows = lower.add(logical.TransposeOp(apart, order), "order")
    low, wanted = int_values(op.low), op.info.shape[2:]
    least = [start + size for start, size in zip(low, wanted, strict=True)]
    total = overlap_add(lower, windows, int_values(op.strides), int_values(op.dilations), least)
    return _with_bias(lower, op, _cut(lower, total, low, wanted))


def _cut(lower: Lowering, value: SSAValue, low: Sequence[int], sizes: Sequence[int]) -> SSAValue:
    batch, outputs, *whole = tensor_info(value.type).shape
    if list(sizes) == whole:
        return value
    return lower.add(logical.SliceOp(value, [0, 0, *low], [batch, outputs, *sizes]), "cut")


FORMULAS: Formulas = {
    logical.ConvOp: _conv,
    logical.ConvTransposeOp: _conv_transpose,
}
