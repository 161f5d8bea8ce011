"""Convolutions as products of the weight with windows as columns.

A convolution with one input channel a group is arithmetic on windows: a product would have next to nothing to sum.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.logical.overlap_add import around
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
    return with_bias(lower, op, result)


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
    wide = widened if op.widening is None else _as_sums
    seen = lower.broadcast(wide(lower, windows), [0, 1, *window_dims], sizes, "seen")
    weight = wide(lower, op.weight)
    weight = lower.add(logical.ReshapeOp(weight, [groups, outputs // groups, *taps]), "weight")
    weight = lower.broadcast(weight, [1, 2, *window_dims[rank:]], sizes, "weights")
    product = lower.apply(logical.MulOp, seen, weight)
    total = lower.add(logical.ReduceSumOp(product, window_dims[rank:]), "sum")
    return lower.add(logical.ReshapeOp(total, op.info.sizes), "reshape")


def widened(lower: Lowering, value: SSAValue) -> SSAValue:
    """A float in the type that composites of its type are computed in; integers stay."""
    return lower.widen(value) if tensor_info(value.type).element.is_float else value


def _as_sums(lower: Lowering, value: SSAValue) -> SSAValue:
    return lower.cast(value, lower.op.info.element, "widen")


def with_bias(lower: Lowering, op: logical.ConvOp | logical.ConvTransposeOp, value: SSAValue) -> SSAValue:
    """The sums [N, M, O1..Ok] with the bias of the op, if it has one."""
    if op.bias is None:
        return value
    bias, info = op.bias, tensor_info(value.type)
    if info.element != op.info.element:
        bias = lower.widen(bias)
    return lower.add(logical.AddOp(value, lower.broadcast(bias, [1], info.sizes, "bias.broadcast")), "bias")


FORMULAS: Formulas = {logical.ConvOp: _conv}
