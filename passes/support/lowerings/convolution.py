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
from aicf.passes.support.lowerings.base import Formulas, Lowering
from aicf.passes.support.windows import overlap_add, zeros_around
from aicf.passes.support.writing import static_size


def _conv(lower: Lowering, op: logical.ConvOp) -> SSAValue:
    """weight [M, C * K] @ windows [N, C * K, O], a batch of groups if there are several."""
    windows = _windows(lower, op)
    groups, taps = op.groups.value.data, tensor_info(op.weight.type).shape[2:]
    channels = tensor_info(op.weight.type).shape[1]
    by_place = channels == 1 and groups > 1
    result = (
        _by_place(lower, op, windows) if by_place else _product(lower, op, windows, prod(taps) * channels)
    )
    return _with_bias(lower, op, result)


def _windows(lower: Lowering, op: logical.ConvOp) -> SSAValue:
    """[N, C, O.., K..]."""
    low, high = ([0, 0, *int_values(amounts)] for amounts in (op.low, op.high))
    padded = zeros_around(lower, op.operand, low, high)
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
    product = lower.add(logical.MatmulOp(weight, columns), "product")
    return lower.add(logical.ReshapeOp(product, op.info.sizes), "reshape")


def _by_place(lower: Lowering, op: logical.ConvOp, windows: SSAValue) -> SSAValue:
    """Each window times the weight of its channel, and the sum of it, in f32 for short floats."""
    batch, outputs, *counts = (static_size(op, size) for size in op.info.sizes)
    taps = tensor_info(op.weight.type).shape[2:]
    groups, rank = op.groups.value.data, len(counts)
    sizes = [batch, groups, outputs // groups, *counts, *taps]
    behind = range(3, 3 + 2 * rank)
    seen = lower.broadcast(_widened(lower, windows), [0, 1, *behind], sizes, "seen")
    weight = _widened(lower, op.weight)
    weight = lower.add(logical.ReshapeOp(weight, [groups, outputs // groups, *taps]), "weight")
    weight = lower.broadcast(weight, [1, 2, *behind[rank:]], sizes, "weights")
    product = lower.apply(logical.MulOp, seen, weight)
    total = lower.add(logical.ReduceSumOp(product, behind[rank:]), "sum")
    return lower.add(logical.ReshapeOp(total, op.info.sizes), "reshape")


def _widened(lower: Lowering, value: SSAValue) -> SSAValue:
    return lower.widen(value) if tensor_info(value.type).element.is_float else value


def _with_bias(lower: Lowering, op: logical.ConvOp | logical.ConvTransposeOp, value: SSAValue) -> SSAValue:
    if op.bias is None:
        return value
    bias = op.bias
    if tensor_info(value.type).element != op.info.element:
        bias = lower.widen(bias)
    return lower.add(
        logical.AddOp(value, lower.broadcast(bias, [1], op.info.sizes, "bias.broadcast")), "bias"
    )


def _conv_transpose(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue:
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
