"""Slice and Pad: which indices of each dimension the result has.

Both are slices, reversals and concatenations of them; only padding with a value is an op of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row


@row("Slice")
def _slice(node: Node) -> Result:
    """Per axis the elements from ``starts`` to ``ends``, ``steps`` apart; a negative step walks back."""
    shape = node.shape(0)
    starts, ends = (node.ints_of(name, index) for index, name in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None or len(starts) != len(ends):
        raise node.invalid(f"starts {starts} and ends {ends} are lists of one length")
    axes = node.ints_of("axes", 3)
    axes = list(range(len(starts))) if axes is None else [node.axis(axis, len(shape)) for axis in axes]
    steps = node.ints_of("steps", 4) or [1] * len(starts)
    if 0 in steps or not len(axes) == len(steps) == len(starts):
        raise node.invalid(f"axes {axes} and steps {steps} have one entry for each start; no step is 0")
    ranges = [range(size) for size in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        ranges[axis] = _indices(shape[axis], start, end, step)
    if any(len(taken) == 0 for taken in ranges):
        return np.empty([len(taken) for taken in ranges], node.element(0).dtype)
    return _taken(node, node.operand(0), ranges)


def _indices(size: int, start: int, end: int, step: int) -> range:
    """The indices of a window. Unlike Python, ONNX lets one that walks back begin at the first element at least."""
    start, end = (end_ + size if end_ < 0 else end_ for end_ in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)


def _taken(node: Node, value: SSAValue, ranges: Sequence[range]) -> SSAValue:
    """The elements at evenly spaced indices of each dimension, in their order."""
    rising = [taken if taken.step > 0 else taken[::-1] for taken in ranges]
    value = node.slice(
        value,
        [taken.start for taken in rising],
        [len(taken) for taken in rising],
        [taken.step if len(taken) > 1 else 1 for taken in rising],
    )
    turned = [axis for axis, taken in enumerate(ranges) if taken.step < 0 and len(taken) > 1]
    return node.apply(logical.FlipOp, value, axes=turned) if turned else value


# Padding

PadMode = Literal["constant", "reflect", "wrap", "edge"]
_MODES: Mapping[str, PadMode] = {
    "constant": "constant",
    "reflect": "reflect",
    "wrap": "wrap",
    "edge": "edge",
}


@row("Pad", since=2)
def _pad(node: Node) -> Result:
    """Elements before and after along each axis: a value, or elements of the operand; negative counts take away."""
    name = node.attributes.string("mode", "constant")
    mode = _MODES.get(name)
    if mode is None:
        raise node.invalid(f"mode is '{name}'; use one of {', '.join(_MODES)}")
    low, high = _amounts(node)
    sizes = [size + a + b for size, a, b in zip(node.shape(0), low, high, strict=True)]
    if any(size < 0 for size in sizes):
        raise node.invalid(f"pads take away more than {list(node.shape(0))} has")
    if 0 in sizes:
        return np.empty(sizes, node.element(0).dtype)
    if 0 in node.shape(0):
        return _of_nothing(node, mode, sizes)
    value = _cropped(node, low, high)
    low, high = ([max(amount, 0) for amount in amounts] for amounts in (low, high))
    if not any((*low, *high)):
        return value
    if mode == "constant":
        return node.apply(logical.PadOp, value, _padding(node), low=low, high=high)
    for axis, amounts in enumerate(zip(low, high, strict=True)):
        if any(amounts):
            value = _extended(node, value, axis, amounts, mode)
    return value


def _amounts(node: Node) -> tuple[list[int], list[int]]:
    """How many elements are added before and after along each axis."""
    rank, pads = len(node.shape(0)), node.ints_of("pads", 1)
    axes = list(range(rank))
    if node.has(3):
        axes = [node.axis(axis, rank) for axis in node.ints(3, "axes")]
    if pads is None or len(pads) != 2 * len(axes):
        raise node.invalid(f"pads {pads} has two counts for each of {len(axes)} axes")
    low, high = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        low[axis], high[axis] = pads[index], pads[len(axes) + index]
    return low, high


def _padding(node: Node) -> SSAValue:
    if node.attributes.has("value") or not node.has(2):
        return node.full(node.attributes.float("value", 0.0), (), node.element(0))
    return node.reshape(node.operand(2), ())


def _of_nothing(node: Node, mode: PadMode, sizes: Sequence[int]) -> Result:
    """A padded tensor of an operand without elements: there is nothing but the value."""
    if mode != "constant":
        raise node.invalid(f"mode is {mode}, and the operand has no element to pad with")
    return node.broadcast_to(_padding(node), sizes)


def _cropped(node: Node, low: Sequence[int], high: Sequence[int]) -> SSAValue:
    starts = [max(-amount, 0) for amount in low]
    ends = [size + min(amount, 0) for size, amount in zip(node.shape(0), high, strict=True)]
    return node.slice(node.operand(0), starts, [b - a for a, b in zip(starts, ends, strict=True)])


def _extended(node: Node, value: SSAValue, axis: int, amounts: tuple[int, int], mode: PadMode) -> SSAValue:
    """The value with elements of its own before and after it along an axis."""
    size = tensor_info(value.type).shape[axis]
    if mode == "edge":
        return _with_edges(node, value, axis, amounts)
    if max(amounts) >= size:
        return _periodic(node, value, axis, amounts, mode)
    indices = np.pad(np.arange(size), amounts, mode)
    return node.concat([_run(node, value, axis, run) for run in _runs(indices.tolist())], axis)


def _periodic(node: Node, value: SSAValue, axis: int, amounts: tuple[int, int], mode: PadMode) -> SSAValue:
    """The same of counts that go beyond the operand: a part of its repetition, or of its and its mirror image's."""
    *_, size = tensor_info(value.type).shape[: axis + 1]
    padded = size + sum(amounts)
    if mode == "reflect" and size > 2:
        value = node.concat([value, _run(node, value, axis, range(size - 2, 0, -1))], axis)
    shape = tensor_info(value.type).shape
    start = -amounts[0] % shape[axis]
    times = -(-(start + padded) // shape[axis])
    before, after = shape[:axis], shape[axis:]
    unrepeated = node.reshape(value, [*before, 1, *after], "once")
    spread = node.broadcast(unrepeated, range(len(shape) + 1), [*before, times, *after], "times")
    repeated = node.reshape(spread, [*before, times * shape[axis], *shape[axis + 1 :]], "repeated")
    starts = [start if dim == axis else 0 for dim in range(len(shape))]
    return node.slice(repeated, starts, [*before, padded, *shape[axis + 1 :]], suffix="padded")


def _with_edges(node: Node, value: SSAValue, axis: int, amounts: tuple[int, int]) -> SSAValue:
    """The value between its first and its last element, repeated."""
    last = tensor_info(value.type).shape[axis] - 1
    front, back = (_edge(node, value, axis, *end) for end in zip((0, last), amounts, strict=True))
    return node.concat([*front, value, *back], axis)


def _edge(node: Node, value: SSAValue, axis: int, at: int, count: int) -> list[SSAValue]:
    """``count`` times the element at an index, as one part; none of no element."""
    if count == 0:
        return []
    shape = list(tensor_info(value.type).shape)
    shape[axis] = count
    return [node.broadcast_to(_run(node, value, axis, range(at, at + 1)), shape)]


def _runs(indices: Sequence[int]) -> list[range]:
    """The indices cut into runs that rise or fall by one; an index that stays is a run of its own."""
    runs = [range(indices[0], indices[0] + 1)]
    for index in indices[1:]:
        run = runs[-1]
        step = index - run[-1]
        if abs(step) == 1 and (len(run) == 1 or step == run.step):
            runs[-1] = range(run[0], index + step, step)
        else:
            runs.append(range(index, index + 1))
    return runs


def _run(node: Node, value: SSAValue, axis: int, run: range) -> SSAValue:
    """The elements of a run."""
    ranges = [range(size) for size in tensor_info(value.type).shape]
    ranges[axis] = run
    return _taken(node, value, ranges)
