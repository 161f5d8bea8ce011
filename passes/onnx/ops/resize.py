"""ONNX ops that give a tensor other sizes by interpolation: Resize and Upsample.

Interpolation goes along one axis after the other, by the tables of `interpolation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_of, tensor_info
from aicf.passes.onnx.ops.base import Array, Node, Result, row
from aicf.passes.onnx.ops.interpolation import (
    COORDINATES,
    CROP,
    Along,
    Taps,
    either,
    has_modes,
    taps_of,
)
from aicf.passes.onnx.ops.tables import table
from aicf.semantics import composite_element

FEW_TAPS = 4
"""Up to so many elements are read and added one by one; more are a reduction."""


MAX_RESIZED = 1 << 20
"""Most elements that an axis is resized to."""
MAX_TABLES = 1 << 21
"""Most elements of all tables of a node; compile time grows with them, some 25 s for so many."""


def _resized(node: Node, wanted: Sequence[Along]) -> SSAValue:
    """Operand 0 with other sizes along some axes."""
    given = "half_pixel" if has_modes(node) else "asymmetric"
    mode = node.attributes.string("coordinate_transformation_mode", given)
    if mode not in COORDINATES:
        raise node.invalid(f"coordinate_transformation_mode is {mode}; it is {either(COORDINATES)}")
    x = node.operand(0)
    element = element_of(x.type)
    outside: list[tuple[int, Array]] = []
    repeats: dict[int, int] = {}
    moved = [along for along in wanted if not _stays(along, mode)]
    read = 0
    for along in moved:
        if not 0 < along.wanted <= MAX_RESIZED:
            raise node.unsupported(
                f"axis {along.axis} gets {along.wanted} elements; where each comes from is worked out at compile time, "
                f"for 1 to {MAX_RESIZED} of an axis: resize before the model"
            )
        coordinates = COORDINATES[mode](along, np.arange(along.wanted, dtype=np.float64))
        taps = taps_of(node, along, coordinates)
        if taps.repeats:
            repeats[along.axis] = taps.repeats
        else:
            read += taps.elements
            _check_tables(node, read)
            x = _along_axis(node, x, along.axis, taps)
        if mode == CROP:
            outside.append((along.axis, (coordinates < 0) | (coordinates > along.size - 1)))
    x = _repeated(node, _narrowed(node, x, element), repeats)
    for axis, beyond in outside:
        x = _extrapolated(node, x, axis, beyond)
    return x


def _check_tables(node: Node, elements: int) -> None:
    if elements > MAX_TABLES:
        raise node.unsupported(
            f"its tables of what each element of the result reads have {elements} elements; at most {MAX_TABLES} stand "
            "in a program: resize before the model, or by a whole multiple in mode nearest"
        )


def _stays(along: Along, mode: str) -> bool:
    same = along.wanted == along.size and math.isclose(along.scale, 1.0)
    return same and (mode != CROP or (along.start, along.end) == (0.0, 1.0))


def _narrowed(node: Node, x: SSAValue, element: ElementType) -> SSAValue:
    """Integers are rounded to the nearest."""
    if not element.is_float and element_of(x.type).is_float:
        x = node.apply(logical.RoundOp, x)
    return node.cast(x, element, "narrow")


def _along_axis(node: Node, x: SSAValue, axis: int, taps: Taps) -> SSAValue:
    """The weighted elements along one axis."""
    indices, weights = taps.indices, taps.weights
    if taps.picks:
        return _picked(node, x, axis, indices[:, 0])
    x = node.cast(x, composite_element(element_of(x.type)), "widen")
    if indices.shape[1] <= FEW_TAPS:
        return _sum_of_few(node, x, axis, indices, weights)
    return _sum_of_many(node, x, axis, indices, weights)


def _picked(node: Node, x: SSAValue, axis: int, indices: Array) -> SSAValue:
    """One element for each of the result: a slice where they are evenly spaced, or a read."""
    sizes = list(tensor_info(x.type).shape)
    step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
    if step > 0 and np.array_equal(indices, indices[0] + step * np.arange(len(indices))):
        starts, strides = [0] * len(sizes), [1] * len(sizes)
        starts[axis], strides[axis], sizes[axis] = int(indices[0]), step, len(indices)
        return node.add(logical.SliceOp(x, starts, sizes, strides), "taken")
    return node.add(logical.GatherOp(x, table(node, indices), axis), "taken")


def _repeated(node: Node, x: SSAValue, repeats: Mapping[int, int]) -> SSAValue:
    """Each element several times along some axes."""
    if not repeats:
        return x
    sizes = tensor_info(x.type).shape
    apart = [n for axis, size in enumerate(sizes) for n in ((size, 1) if axis in repeats else (size,))]
    spread = [
        n for axis, size in enumerate(sizes) for n in ((size, repeats[axis]) if axis in repeats else (size,))
    ]
    split = node.reshape(x, apart, "apart")
    repeated = node.broadcast(split, range(len(apart)), spread, "repeated")
    return node.reshape(repeated, [size * repeats.get(axis, 1) for axis, size in enumerate(sizes)], "merged")


def _sum_of_few(node: Node, x: SSAValue, axis: int, indices: Array, weights: Array) -> SSAValue:
    info, total = tensor_info(x.type), None
    sizes = [*info.shape[:axis], len(indices), *info.shape[axis + 1 :]]
    for tap in range(indices.shape[1]):
        read = _picked(node, x, axis, indices[:, tap])
        weight = table(node, weights[:, tap].astype(info.element.dtype))
        part = node.apply(logical.MulOp, read, node.broadcast_axis(weight, axis, sizes), name="part")
        total = part if total is None else node.apply(logical.AddOp, total, part, name="sum")
    assert total is not None
    return total


def _sum_of_many(node: Node, x: SSAValue, axis: int, indices: Array, weights: Array) -> SSAValue:
    """The taps of all elements of the result along a new dimension before `axis`, and the sum over it."""
    info = tensor_info(x.type)
    count = indices.shape[1]
    read = node.add(logical.GatherOp(x, table(node, indices.T.reshape(-1)), axis), "read")
    sizes = [*info.shape[:axis], count, len(indices), *info.shape[axis + 1 :]]
    apart = node.reshape(read, sizes, "apart")
    weight = table(node, weights.T.reshape(-1).astype(info.element.dtype))
    spread = node.broadcast(
        node.reshape(weight, [count, len(indices)], "weights"), [axis, axis + 1], sizes, "spread"
    )
    return node.add(
        logical.ReduceSumOp(node.apply(logical.MulOp, apart, spread, name="parts"), [axis]), "sum"
    )


def _extrapolated(node: Node, x: SSAValue, axis: int, beyond: Array) -> SSAValue:
    """A given value where the coordinate lies beyond the operand."""
    if not beyond.any():
        return x
    value = node.attributes.float("extrapolation_value", 0.0)
    mask = node.broadcast_axis(table(node, beyond), axis, tensor_info(x.type).shape)
    return node.add(logical.SelectOp(mask, node.splat(value, x), x), "extrapolated")


# The ops


@row("Upsample", since=7, until=9)
def _upsample(node: Node) -> Result:
    """Every size times its scale."""
    scales = node.attributes.floats("scales", None)
    if scales is None:
        scales = node.value(1, "scales").tolist()
    return _resized(node, _by_scales(node, range(len(node.shape(0))), scales))


@row("Resize", since=10)
def _resize_10(node: Node) -> Result:
    """Every size times its scale; a smaller result takes fewer of the elements."""
    scales = node.value(1, "scales").tolist()
    return _resized(node, _by_scales(node, range(len(node.shape(0))), scales))


@row("Resize", since=11)
def _resize(node: Node) -> Result:
    """Given sizes, or sizes times scales, along some axes or all."""
    shape = node.shape(0)
    axes = node.attributes.ints("axes", list(range(len(shape))))
    axes = [node.axis(axis, len(shape)) for axis in axes]
    if _has_operand(node, 3):
        return _resized(node, _with_regions(node, _by_sizes(node, axes)))
    if not _has_operand(node, 2):
        raise node.invalid("neither scales nor sizes are given; one of them is needed")
    scales = node.value(2, "scales").tolist()
    return _resized(node, _with_regions(node, _by_scales(node, axes, scales)))


def _has_operand(node: Node, index: int) -> bool:
    """Whether an operand is there; an empty one stands for an absent one."""
    return node.has(index) and node.shape(index) != (0,)


def _by_scales(node: Node, axes: Sequence[int], scales: Sequence[float]) -> list[Along]:
    shape = node.shape(0)
    _check_count(node, "scales", scales, axes)
    if min(scales, default=1.0) <= 0:
        raise node.invalid(f"scales {list(scales)} are above 0 each")
    return [
        Along(axis, shape[axis], math.floor(shape[axis] * scale), scale)
        for axis, scale in zip(axes, scales, strict=True)
    ]


def _by_sizes(node: Node, axes: Sequence[int]) -> list[Along]:
    shape, sizes = node.shape(0), node.ints(3, "sizes")
    _check_count(node, "sizes", sizes, axes)
    scales = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    match node.attributes.string("keep_aspect_ratio_policy", "stretch"):
        case "stretch":
            chosen = zip(axes, sizes, scales, strict=True)
            return [Along(axis, shape[axis], size, scale) for axis, size, scale in chosen]
        case "not_larger":
            scale = min(scales)
        case "not_smaller":
            scale = max(scales)
        case other:
            raise node.invalid(
                f"keep_aspect_ratio_policy is {other}; it is stretch, not_larger or not_smaller"
            )
    return [Along(axis, shape[axis], math.floor(scale * shape[axis] + 0.5), scale) for axis in axes]


def _check_count(node: Node, what: str, values: Sequence[float], axes: Sequence[int]) -> None:
    if len(values) != len(axes):
        raise node.invalid(f"{what} has {len(values)} values for {len(axes)} axes")


def _with_regions(node: Node, wanted: Sequence[Along]) -> list[Along]:
    """The region of interest, of the one mode that has it: starts, then ends."""
    if node.attributes.string("coordinate_transformation_mode", "") != CROP:
        return list(wanted)
    region = node.value(1, "roi").tolist()
    if len(region) != 2 * len(wanted):
        raise node.invalid(f"roi has {len(region)} values for {len(wanted)} axes; it is starts, then ends")
    ends = region[len(wanted) :]
    return [
        Along(along.axis, along.size, along.wanted, along.scale, start, end)
        for along, start, end in zip(wanted, region, ends, strict=False)
    ]
