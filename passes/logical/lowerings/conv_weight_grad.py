"""The gradients of the weights of convolutions as one product over batch and windows.

Those of convolutions with one input channel a group are arithmetic on windows: a product would have next to nothing in
common.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.logical.lowerings.convolution import widened
from aicf.passes.logical.overlap_add import zero, zeros_around


def _conv_weight_grad(lower: Lowering, op: logical.ConvWeightGradOp) -> SSAValue:
    """grad [M, N * O] @ windows [C * K, N * O].T, a batch of groups if there are several.

    Zeros if all windows lie before the operand.
    """
    if (windows := _windows(lower, op)) is None:
        return lower.broadcast(zero(lower, op.operand), [], op.info.sizes, "zeros")
    if op.info.shape[1] == 1 and op.groups.value.data > 1:
        return _depthwise(lower, op, windows)
    return _product(lower, op, windows)


def _windows(lower: Lowering, op: logical.ConvWeightGradOp) -> SSAValue | None:
    """[N, C, O.., K..]; None if they reach nothing."""
    whole, counts = tensor_info(op.operand.type).shape, tensor_info(op.grad.type).shape[2:]
    strides, low, dilations = map(int_values, (op.strides, op.low, op.dilations))
    sizes = op.info.shape[2:]
    missing = [
        (count - 1) * stride + (size - 1) * dilation + 1 - before - there
        for count, stride, size, dilation, before, there in zip(
            counts, strides, sizes, dilations, low, whole[2:], strict=True
        )
    ]
    kept = [there + min(more, 0) for there, more in zip(whole[2:], missing, strict=True)]
    if min(kept) < 1:
        return None
    inside = op.operand
    if tuple(kept) != whole[2:]:
        inside = lower.add(logical.SliceOp(inside, [0] * len(whole), [*whole[:2], *kept]), "inside")
    padded = zeros_around(lower, inside, [0, 0, *low], [0, 0, *(max(more, 0) for more in missing)])
    return lower.add(logical.WindowOp(padded, sizes, strides, dilations), "windows")


def _product(lower: Lowering, op: logical.ConvWeightGradOp, windows: SSAValue) -> SSAValue:
    batch, outputs, *counts = tensor_info(op.grad.type).shape
    _, channels, *taps = op.info.shape
    rank, groups = len(counts), op.groups.value.data
    by_group = [] if groups == 1 else [groups]
    order = [1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank)]
    columns = lower.add(logical.TransposeOp(windows, order), "order")
    inner = batch * prod(counts)
    columns = lower.reshape(columns, [*by_group, channels * prod(taps), inner], "columns")
    rows = lower.add(logical.TransposeOp(op.grad, [1, 0, *range(2, 2 + rank)]), "outputs")
    rows = lower.reshape(rows, [*by_group, outputs // groups, inner], "rows")
    product = lower.add(logical.MatmulOp(rows, columns, transpose_b=True), "product")
    return lower.reshape(product, op.info.sizes)


def _depthwise(lower: Lowering, op: logical.ConvWeightGradOp, windows: SSAValue) -> SSAValue:
    """The sum over batch and windows of grad times each element of the window: in f32 for short floats."""
    batch, outputs, *counts = tensor_info(op.grad.type).shape
    taps, groups, rank = op.info.shape[2:], op.groups.value.data, len(counts)
    sizes = [batch, groups, outputs // groups, *counts, *taps]
    positions = range(3, 3 + rank)
    seen = lower.broadcast(widened(lower, windows), [0, 1, *range(3, 3 + 2 * rank)], sizes, "seen")
    grad = lower.reshape(widened(lower, op.grad), sizes[: 3 + rank], "grad")
    grad = lower.broadcast(grad, range(3 + rank), sizes, "grads")
    total = lower.add(logical.ReduceSumOp(lower.apply(logical.MulOp, seen, grad), [0, *positions]), "sum")
    return lower.reshape(total, op.info.sizes)


FORMULAS: Formulas = {logical.ConvWeightGradOp: _conv_weight_grad}
