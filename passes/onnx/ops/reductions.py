"""ONNX ops that combine elements along axes, or find the extreme ones: reductions, running sums, top k.

A reduction of no element is known: it is what the combination begins with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ElementType, element_named, element_of, tensor_info
from aicf.passes.onnx.ops.base import Array, Lower, Node, Result, row
from aicf.semantics import composite_element

Unary = Callable[..., LogicalOp]


@dataclass(frozen=True)
class _Reduction:
    """One reduction.

    Args:
        combine: The reduction of logical.
        first: What is done with every element before.
        then: What is done with the result.
        of_nothing: The result along axes without elements, in float64.
        computes: Whether it is computed in f32 or f64: of short floats in f32, of integers in f64 where it has roots
            or logarithms.
    """

    combine: Unary
    first: Unary | None = None
    then: Unary | None = None
    of_nothing: float = 0.0
    computes: bool = True


def _square(x: SSAValue) -> LogicalOp:
    return logical.MulOp(x, x)


_REDUCTIONS = {
    "ReduceL1": _Reduction(logical.ReduceSumOp, logical.AbsOp),
    "ReduceL2": _Reduction(logical.ReduceSumOp, _square, logical.SqrtOp),
    "ReduceLogSum": _Reduction(logical.ReduceSumOp, then=logical.LogOp, of_nothing=-math.inf),
    "ReduceLogSumExp": _Reduction(logical.ReduceLogSumExpOp, of_nothing=-math.inf),
    "ReduceMax": _Reduction(logical.ReduceMaxOp, of_nothing=-math.inf, computes=False),
    "ReduceMean": _Reduction(logical.ReduceMeanOp, of_nothing=math.nan),
    "ReduceMin": _Reduction(logical.ReduceMinOp, of_nothing=math.inf, computes=False),
    "ReduceProd": _Reduction(logical.ReduceProdOp, of_nothing=1.0),
    "ReduceSum": _Reduction(logical.ReduceSumOp),
    "ReduceSumSquare": _Reduction(logical.ReduceSumOp, _square),
}
_OF_FLOATS = (logical.SqrtOp, logical.LogOp, logical.ReduceLogSumExpOp, logical.ReduceMeanOp)
"""What takes floats only: integers are computed as f64 and cut off, as ONNX Runtime and NumPy do."""


def _reduce(reduction: _Reduction) -> Lower:
    def lower(node: Node) -> Result:
        shape, keeps = node.shape(0), node.attributes.flag("keepdims", True)
        axes = _axes(node)
        if 0 in shape:
            return _of_nothing(node, reduction, axes, keeps)
        x = node.cast(node.operand(0), _computed_in(node, reduction), "widen")
        if reduction.first is not None:
            x = node.apply(reduction.first, x)
        if axes:
            x = node.apply(reduction.combine, x, axes=axes, keepdims=keeps)
        if reduction.then is not None:
            x = node.apply(reduction.then, x)
        return node.cast(x, node.element(0), "narrow")

    return lower


for _op_type, _reduction in _REDUCTIONS.items():
    row(_op_type)(_reduce(_reduction))


def _axes(node: Node) -> list[int]:
    """The axes to reduce: all by default, none if ``noop_with_empty_axes`` says so."""
    rank, given = len(node.shape(0)), node.ints_of("axes", 1)
    if given:
        return node.axes(given, rank)
    return [] if node.attributes.int("noop_with_empty_axes", 0) else list(range(rank))


def _computed_in(node: Node, reduction: _Reduction) -> ElementType:
    element = node.element(0)
    if not reduction.computes:
        return element
    if element.is_float:
        return composite_element(element)
    floats = any(op in _OF_FLOATS for op in (reduction.combine, reduction.then))
    return element_named("f64") if floats else element


def _of_nothing(node: Node, reduction: _Reduction, axes: Sequence[int], keeps: bool) -> Array:
    """The result for an operand without elements: empty too, unless the empty dimensions are reduced."""
    element = node.element(0)
    sizes = [1 if axis in axes else size for axis, size in enumerate(node.shape(0))]
    if not keeps:
        sizes = [size for axis, size in enumerate(sizes) if axis not in axes]
    value = reduction.of_nothing
    if element.kind == "int":
        limits = np.iinfo(element.dtype)
        value = min(max(value, limits.min), limits.max) if value == value else 0
    if element.kind == "bool":
        value = value > 0
    return np.broadcast_to(np.asarray(value).astype(element.dtype), sizes)


# Indices of extremes


def _arg(op_class: Callable[..., LogicalOp]) -> Lower:
    """The index of an extreme element along ``axis``; of several the first, or the last if that is asked for."""

    def lower(node: Node) -> Result:
        shape, keeps = node.shape(0), node.attributes.flag("keepdims", True)
        axis = node.axis(node.attributes.int("axis", 0), len(shape))
        if 0 in shape:
            sizes = [*shape[:axis], *([1] if keeps else []), *shape[axis + 1 :]]
            return np.empty(sizes, np.int64)
        from_the_end = node.attributes.flag("select_last_index")
        x = node.operand(0)
        if from_the_end:
            x = node.apply(logical.FlipOp, x, axes=[axis])
        indices = node.apply(op_class, x, axis=axis, keepdims=keeps)
        if not from_the_end:
            return indices
        return node.apply(logical.SubOp, node.splat(shape[axis] - 1, indices), indices)

    return lower


row("ArgMax")(_arg(logical.ArgmaxOp))
row("ArgMin")(_arg(logical.ArgminOp))


@row("TopK")
def _topk(node: Node) -> Result:
    """The k largest elements along ``axis``, or the smallest, in order, and their indices."""
    shape = node.shape(0)
    axis = node.axis(node.attributes.int("axis", -1), len(shape))
    k = node.attributes.int("k", None) if node.opset < 10 else node.ints(1, "k")[0]
    if k is None or not 0 <= k <= shape[axis]:
        raise node.invalid(f"k is {k}; axis {axis} of {list(shape)} has {shape[axis]} elements")
    sizes = [*shape[:axis], k, *shape[axis + 1 :]]
    if 0 in sizes:
        return [np.empty(sizes, node.element(0).dtype), np.empty(sizes, np.int64)]
    smallest = not node.attributes.int("largest", 1)
    indices = node.apply(logical.TopkIndicesOp, node.operand(0), axis=axis, k=k, smallest=smallest)
    return [node.apply(logical.GatherElementsOp, node.operand(0), indices, axis=axis), indices]


# Running sums and products


def _running_axis(node: Node) -> int:
    (axis,) = node.ints(1, "axis")
    return node.axis(axis, len(node.shape(0)))


@row("CumSum", since=11)
def _cumsum(node: Node) -> Result:
    """The sum of the elements up to each one; ``exclusive`` and ``reverse`` as in NumPy's words."""
    axis = _running_axis(node)
    if 0 in node.shape(0):
        return node.raw(0)
    flags = {name: node.attributes.flag(name) for name in ("exclusive", "reverse")}
    return node.add(logical.CumsumOp(node.operand(0), axis, **flags))


@row("CumProd", since=26)
def _cumprod(node: Node) -> Result:
    """The product of the elements up to each one, by doubling: in step n those of 2^n neighbours."""
    axis = _running_axis(node)
    if 0 in node.shape(0):
        return node.raw(0)
    exclusive, reverse = (node.attributes.flag(name) for name in ("exclusive", "reverse"))
    element = node.element(0)
    x = node.cast(node.operand(0), composite_element(element) if element.is_float else element, "widen")
    if exclusive:
        x = _shifted(node, x, axis, 1, reverse)
    distance = 1
    while distance < node.shape(0)[axis]:
        x = node.apply(logical.MulOp, x, _shifted(node, x, axis, distance, reverse))
        distance *= 2
    return node.cast(x, element, "narrow")


def _shifted(node: Node, x: SSAValue, axis: int, distance: int, reverse: bool) -> SSAValue:
    """Each element's neighbour at a distance before it, or after it if `reverse`; 1 where there is none."""
    shape = list(tensor_info(x.type).shape)
    starts, sizes, amounts = [0] * len(shape), list(shape), [0] * len(shape)
    starts[axis] = distance if reverse else 0
    sizes[axis] -= distance
    amounts[axis] = distance
    one = node.full(1, (), element_of(x.type))
    if sizes[axis] == 0:
        return node.splat(1, x)
    low, high = ([0] * len(shape), amounts) if reverse else (amounts, [0] * len(shape))
    return node.apply(logical.PadOp, node.slice(x, starts, sizes), one, low=low, high=high)
