"""Values of an ONNX graph whose number of slices along a dimension is known at run time only: what becomes of them.

Such a value is a tensor with room for all slices that there could be, and a count (`Counted`). An op that treats these
slices each by itself gives such a value again: a rule in the table says along which dimension. Any other op would mix
slices that are there with slices that are not, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import COUNTS_ATTR, NAME_ATTR
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.known import listed
from aicf.passes.onnx.ops import Counted, Lower, Node, Value
from aicf.passes.onnx.ops import Result as Lowered
from aicf.passes.onnx.ops.base import OneResult
from aicf.passes.onnx.ops.pointwise import POINTWISE
from aicf.passes.support.interface import Result


@dataclass(frozen=True)
class Slices:
    """The dimension of a result along which slices are counted, and by what."""

    axis: int
    count: SSAValue


Operands: TypeAlias = Mapping[int, Counted]
"""The operands of a node that are counted, by index; at least one."""
Rule: TypeAlias = Callable[[Node, Operands], "Slices | None"]
"""What is counted of the results; None if slices would mix."""


def whole(value: Value) -> Value:
    """The tensor of a counted value, and any other as it is."""
    return value.value if isinstance(value, Counted) else value


def with_counts(lower: Lower, operands: Sequence[Value]) -> Lower:
    """The row of a node whose results are counted as the operands are. Itself if none of them is."""
    counted = {operand: value for operand, value in enumerate(operands) if isinstance(value, Counted)}
    if not counted:
        return lower

    def lower_counted(node: Node) -> Lowered:
        rule = RULES.get(node.op_type) if not node.header.domain else None
        rule = _elementwise if rule is None and lower in POINTWISE else rule
        slices = None if rule is None else rule(node, counted)
        if slices is None:
            raise _refused(node, counted)
        return [_with_count(result, slices) for result in listed(lower(node))]

    return lower_counted


def _with_count(result: OneResult, slices: Slices) -> OneResult:
    """A result with its count; one that is known has no elements."""
    return Counted(result, slices.count, slices.axis) if isinstance(result, SSAValue) else result


def _refused(node: Node, counted: Operands) -> Exception:
    operand, value = next(iter(counted.items()))
    return node.depends(
        operand,
        f"how many elements operand {operand} has along dimension {value.axis} is known at run time only, at most "
        f"{_most(value)}, and a program is static: it takes ops that treat each of them by itself (docs/onnx.md, "
        "section 'Numbers of rows that follow from the data'); make the operand an output of the model, and compute "
        "the rest from it",
        on=value.count,
    )


def _most(value: Counted) -> int:
    return tensor_info(value.value.type).shape[value.axis]


def count_results(names: Sequence[str], values: Sequence[Value]) -> Iterator[Result]:
    """The results that say how much of other results is there: one for each count, named after the first of them."""
    counts: dict[SSAValue, dict[str, int]] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Counted):
            counts.setdefault(value.count, {})[name] = value.axis
    taken = set(names)
    for count, axes in counts.items():
        name = f"{next(iter(axes))}.count"
        while name in taken:
            name += "_"
        taken.add(name)
        entries = {of: IntegerAttr(axis, i64) for of, axis in axes.items()}
        yield Result(count, {NAME_ATTR: StringAttr(name), COUNTS_ATTR: DictionaryAttr(entries)})


# Rules: each is for the ops beside its name in the table


def _only(counted: Operands, operand: int = 0) -> Counted | None:
    """The counted operand, if it is this one and no other is."""
    return counted[operand] if set(counted) == {operand} else None


def _elementwise(node: Node, counted: Operands) -> Slices | None:
    """All counted alike, from the right; what is not counted has one element there, or fewer dimensions."""
    rank = max(len(node.shape(index)) for index in range(node.count) if node.has(index))
    back = {value.axis - len(node.shape(operand)) for operand, value in counted.items()}
    if len({value.count for value in counted.values()}) > 1 or len(back) > 1:
        return None
    (from_end,) = back
    others = [node.shape(index) for index in range(node.count) if node.has(index) and index not in counted]
    if any(len(shape) >= -from_end and shape[from_end] != 1 for shape in others):
        return None
    return Slices(rank + from_end, next(iter(counted.values())).count)


def _first_alone(rule: Callable[[Node, Counted], Slices | None]) -> Rule:
    """A rule for what is counted of the first operand, where that alone is counted."""

    def of_first(node: Node, counted: Operands) -> Slices | None:
        value = _only(counted)
        return None if value is None else rule(node, value)

    return of_first


def _same(node: Node, value: Counted) -> Slices:
    return Slices(value.axis, value.count)


def _reshape(node: Node, value: Counted) -> Slices | None:
    """The counted dimension stays: as many elements are before it and after it, and it is not a number."""
    sizes = node.known(1)
    if sizes is None:
        return None
    given, stated = node.shape(0), [int(size) for size in sizes.reshape(-1)]
    wanted = _worked_out(node, given, stated)
    axis = _open_axis(node, value, stated)
    if axis is None or wanted[axis] != given[value.axis]:
        return None
    same_before = prod(wanted[:axis]) == prod(given[: value.axis])
    same_after = prod(wanted[axis + 1 :]) == prod(given[value.axis + 1 :])
    return Slices(axis, value.count) if same_before and same_after else None


def _open_axis(node: Node, value: Counted, stated: Sequence[int]) -> int | None:
    """The dimension whose size a shape leaves to the counted one: 0 at its index, else -1. Sizes of 1 look alike."""
    if value.axis < len(stated) and stated[value.axis] == 0 and not node.attributes.int("allowzero", 0):
        return value.axis
    return stated.index(-1) if -1 in stated else None


def _worked_out(node: Node, given: Sequence[int], stated: Sequence[int]) -> list[int]:
    """The sizes that a shape asks for, without 0 and -1."""
    keeps = not node.attributes.int("allowzero", 0)
    sizes = [
        given[axis] if size == 0 and keeps and axis < len(given) else size for axis, size in enumerate(stated)
    ]
    rest = prod(size for size in sizes if size != -1)
    return [prod(given) // max(rest, 1) if size == -1 else size for size in sizes]


def _flatten(node: Node, value: Counted) -> Slices | None:
    """The counted dimension is alone on its side, but for dimensions of 1."""
    shape = node.shape(0)
    split = node.attributes.int("axis", 1)
    split = split + len(shape) if split < 0 else split
    side = range(split) if value.axis < split else range(split, len(shape))
    alone = all(shape[axis] == 1 for axis in side if axis != value.axis)
    return Slices(int(value.axis >= split), value.count) if alone else None


def _squeeze(node: Node, value: Counted) -> Slices | None:
    given = node.ints_of("axes", 1)
    return None if given is None else _without(value, node.axes(given, len(node.shape(0))))


def _without(value: Counted, axes: Sequence[int]) -> Slices | None:
    """Without other dimensions."""
    if value.axis in axes:
        return None
    return Slices(value.axis - sum(axis < value.axis for axis in axes), value.count)


def _unsqueeze(node: Node, value: Counted) -> Slices | None:
    given = node.ints_of("axes", 1)
    if given is None:
        return None
    rank = len(node.shape(0)) + len(given)
    kept = [axis for axis in range(rank) if axis not in node.axes(given, rank)]
    return Slices(kept[value.axis], value.count)


def _transpose(node: Node, value: Counted) -> Slices:
    permutation = node.attributes.ints("perm", None) or list(reversed(range(len(node.shape(0)))))
    return Slices(permutation.index(value.axis), value.count)


def _concat(node: Node, counted: Operands) -> Slices | None:
    """All parts counted alike, side by side along another dimension."""
    values = list(counted.values())
    axis = node.axis(node.attributes.int("axis", 0), len(node.shape(0)))
    alike = len(counted) == node.count and len({(value.count, value.axis) for value in values}) == 1
    return Slices(values[0].axis, values[0].count) if alike and values[0].axis != axis else None


def _split(node: Node, value: Counted) -> Slices | None:
    axis = node.axis(node.attributes.int("axis", 0), len(node.shape(0)))
    return None if value.axis == axis else Slices(value.axis, value.count)


def _slice(node: Node, value: Counted) -> Slices | None:
    """Along other dimensions whatever is taken; along the counted one the first so many."""
    starts, ends = (node.ints_of(name, index) for index, name in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        return None
    axes, rank = node.ints_of("axes", 3), len(node.shape(0))
    axes = list(range(len(starts))) if axes is None else [node.axis(axis, rank) for axis in axes]
    steps = node.ints_of("steps", 4) or [1] * len(starts)
    taken = [entry for entry in zip(axes, starts, ends, steps, strict=True) if entry[0] == value.axis]
    if not taken:
        return Slices(value.axis, value.count)
    _, start, end, step = taken[0]
    if start != 0 or step != 1 or end < 0:
        return None
    if end >= _most(value):
        return Slices(value.axis, value.count)
    least = node.apply(logical.MinOp, value.count, end, name="count")
    return Slices(value.axis, least)


def _gather(node: Node, counted: Operands) -> Slices | None:
    """Along another dimension of the counted data, or at counted indices."""
    rank, index_rank = len(node.shape(0)), len(node.shape(1))
    axis = node.axis(node.attributes.int("axis", 0), rank)
    if (indices := _only(counted, 1)) is not None:
        return Slices(axis + indices.axis, indices.count)
    data = _only(counted)
    if data is None or data.axis == axis:
        return None
    return Slices(data.axis if data.axis < axis else data.axis - 1 + index_rank, data.count)


def _gather_nd(node: Node, counted: Operands) -> Slices | None:
    """At counted indices, each of which is a whole row of the indices."""
    indices = _only(counted, 1)
    if indices is None or not node.attributes.int("batch_dims", 0) <= indices.axis < len(node.shape(1)) - 1:
        return None
    return Slices(indices.axis, indices.count)


def _gather_elements(node: Node, counted: Operands) -> Slices | None:
    """Counted indices along the axis, or data and indices counted alike along another one."""
    axis = node.axis(node.attributes.int("axis", 0), len(node.shape(0)))
    if (indices := _only(counted, 1)) is not None:
        return Slices(axis, indices.count) if indices.axis == axis else None
    data, indices = counted.get(0), counted.get(1)
    if data is None or indices is None or data.axis == axis:
        return None
    alike = (data.axis, data.count) == (indices.axis, indices.count)
    return Slices(data.axis, data.count) if alike else None


def _reduced(node: Node, value: Counted) -> Slices | None:
    """Over other dimensions, which are named."""
    axes = node.ints_of("axes", 1)
    return _after_reduction(node, value, axes) if axes else None


def _largest(node: Node, value: Counted) -> Slices | None:
    return _after_reduction(node, value, [node.attributes.int("axis", 0)])


def _after_reduction(node: Node, value: Counted, given: Sequence[int]) -> Slices | None:
    axes = node.axes(given, len(node.shape(0)))
    if node.attributes.int("keepdims", 1):
        return None if value.axis in axes else Slices(value.axis, value.count)
    return _without(value, axes)


def _along(node: Node, value: Counted) -> Slices | None:
    """Each line along another dimension; before opset 13 all after the axis are one."""
    rank = len(node.shape(0))
    axis = node.axis(node.attributes.int("axis", -1 if node.opset >= 13 else 1), rank)
    mixed = (axis,) if node.opset >= 13 else range(axis, rank)
    return None if value.axis in mixed else Slices(value.axis, value.count)


def _matmul(node: Node, value: Counted) -> Slices | None:
    """Rows of the left operand."""
    rank = len(node.shape(0))
    if rank < 2 or value.axis != rank - 2 or len(node.shape(1)) < 2:
        return None
    return Slices(max(rank, len(node.shape(1))) - 2, value.count)


_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")

_OF_FIRST: Mapping[str, Callable[[Node, Counted], Slices | None]] = {
    **dict.fromkeys(("Cast", "Identity"), _same),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Split": _split,
    "Slice": _slice,
    **{f"Reduce{name}": _reduced for name in _REDUCTIONS},
    **dict.fromkeys(("ArgMax", "ArgMin"), _largest),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _along),
    "MatMul": _matmul,
}
RULES: Mapping[str, Rule] = {
    **{op_type: _first_alone(rule) for op_type, rule in _OF_FIRST.items()},
    "Concat": _concat,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
}
"""By the op type of ONNX; elementwise ops, which are told by their rows, need no entry."""
