"""Sequences and optional values: they exist while the graph is lowered, and nothing of them is left in the program."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from xdsl.ir import SSAValue

from aicf.passes.onnx.ops.base import Items, Known, Node, Result, Tensor, Value, row

MAX_PIECES = 4096
"""Most tensors that one is split into: as many as iterations of a Loop."""


@row("SequenceConstruct", since=11)
def _construct(node: Node) -> Result:
    """The operands."""
    return Items(tuple(node.tensor_value(index) for index in range(node.count)))


@row("SequenceEmpty", since=11)
def _empty(node: Node) -> Result:
    """Nothing yet."""
    return Items(())


@row("SequenceLength", since=11)
def _length(node: Node) -> Result:
    """How many there are, as a scalar."""
    return np.asarray(len(node.items(0).items), np.int64)


@row("SequenceAt", since=11)
def _at(node: Node) -> Result:
    """The element at a position; -1 is the last."""
    items = node.items(0).items
    return items[_position(node, 1, len(items) - 1)]


@row("SequenceInsert", since=11)
def _insert(node: Node) -> Result:
    """With a tensor inserted before a position, or at the end."""
    items = list(node.items(0).items)
    position = _position(node, 2, len(items)) if node.has(2) else len(items)
    items.insert(position, node.tensor_value(1))
    return Items(tuple(items))


@row("SequenceErase", since=11)
def _erase(node: Node) -> Result:
    """Without the element at a position, or without the last."""
    items = list(node.items(0).items)
    del items[_position(node, 1, len(items) - 1) if node.has(1) else len(items) - 1]
    return Items(tuple(items))


def _position(node: Node, index: int, last: int) -> int:
    """A position of 0 to `last`; negative ones count from the number of elements."""
    position = int(node.value(index, "the position").reshape(-1)[0])
    count = len(node.items(0).items)
    found = position + count if position < 0 else position
    if not 0 <= found <= last:
        raise node.invalid(f"position {position} is outside of a sequence of {count}")
    return found


@row("ConcatFromSequence", since=11)
def _concat(node: Node) -> Result:
    """All elements one after the other along an axis, or along a new one."""
    items = node.items(0).items
    axis = node.attributes.int("axis", None)
    if axis is None or not items:
        raise node.invalid("it takes at least one tensor and the attribute axis")
    rank = len(node.shape_of(items[0]))
    if node.attributes.int("new_axis", 0):
        return node.stack(items, node.axis(axis, rank + 1))
    return node.concat([node.tensor(item) for item in items], node.axis(axis, rank))


@row("SplitToSequence", since=11)
def _split(node: Node) -> Result:
    """Parts along an axis: of the sizes given, of one size given, or single elements."""
    shape = node.shape(0)
    axis = node.axis(node.attributes.int("axis", 0), len(shape))
    if not node.has(1):
        value = node.tensor_value(0)
        _check_pieces(node, shape[axis])
        if node.attributes.int("keepdims", 1):
            return Items(tuple(node.part(value, axis, start, 1) for start in range(shape[axis])))
        return Items(tuple(node.pick(value, axis, start) for start in range(shape[axis])))
    sizes = node.ints(1, "split")
    is_one_size = node.value(1, "split").ndim == 0
    if is_one_size and sizes[0] < 1:
        raise node.invalid(f"split is {sizes[0]}; it is at least 1")
    _check_pieces(node, -(-shape[axis] // sizes[0]) if is_one_size else len(sizes))
    if is_one_size:
        sizes = [min(sizes[0], shape[axis] - start) for start in range(0, shape[axis], sizes[0])]
    if sum(sizes) != shape[axis] or any(size < 0 for size in sizes):
        raise node.invalid(f"split {sizes} does not add up to dimension {axis} of size {shape[axis]}")
    starts = accumulate(sizes[:-1], initial=0)
    value = node.tensor_value(0)
    return Items(
        tuple(node.part(value, axis, start, size) for start, size in zip(starts, sizes, strict=True))
    )


def _check_pieces(node: Node, count: int) -> None:
    if count > MAX_PIECES:
        raise node.unsupported(
            f"it splits its operand into {count} tensors, which are written out one by one; at most {MAX_PIECES} are: "
            "split it into larger ones, or compute on the whole tensor"
        )


@row("SequenceMap", since=17)
def _map(node: Node) -> Result:
    """What a graph gives for each element; further operands are elements of sequences too, or the same for all."""
    count = len(node.items(0).items)
    results: list[list[Tensor]] = [[] for _ in range(node.outputs)]
    for index in range(count):
        given = [_element(node, value, index) for value in node.values(0)]
        found = node.run(node.body("body"), given, str(index))
        for collected, value in zip(results, found, strict=True):
            if not isinstance(value, SSAValue | Known):
                raise node.unsupported("its graph gives no tensor; sequences of tensors are supported")
            collected.append(value)
    return [Items(tuple(collected)) for collected in results]


def _element(node: Node, value: Value, index: int) -> Value:
    if not isinstance(value, Items):
        return value
    if index >= len(value.items):
        raise node.invalid(f"a sequence of {len(value.items)} has no element {index}; all have one length")
    return value.items[index]


@row("Optional", since=15)
def _optional(node: Node) -> Result:
    """The operand, or nothing."""
    return node.raw(0) if node.has(0) else None


@row("OptionalHasElement", since=15)
def _has_element(node: Node) -> Result:
    """Whether there is something."""
    return np.asarray(node.has(0))


@row("OptionalGetElement", since=15)
def _get_element(node: Node) -> Result:
    """What is there."""
    if not node.has(0):
        raise node.invalid("the optional value is empty; ask OptionalHasElement first")
    return node.raw(0)
