"""ONNX ops that give a tensor other sizes by interpolation: Resize and Upsample.

Interpolation goes along one axis after the other. Which elements an element of the result takes, and with which
weights, is a table that follows from sizes and attributes alone (:func:`_taps`); the program reads and adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_of, tensor_info
from aicf.passes.support.onnx_ops.base import Array, Node, Result, row
from aicf.passes.support.onnx_ops.tables import table
from aicf.semantics import composite_element

FEW_TAPS = 4
"""Up to so many elements are read and added one by one; more are a reduction."""


@dataclass(frozen=True)
class _Along:
    """How one axis is resized.

    Args:
        size: Elements of the operand.
        wanted: Elements of the result.
        scale: Result by operand, as given: the product with ``size`` need not be ``wanted``.
        start: Of the region of interest, as a part of the size; ``end`` as well.
    """

    axis: int
    size: int
    wanted: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def length(self) -> float:
        """Elements of the result before rounding."""
        return self.scale * self.size


@dataclass(frozen=True)
class _Taps:
    """``[wanted, taps]``: the elements that each element of the result takes, and their weights."""

    indices: Array
    weights: Array
    size: int
    """Elements of the operand."""

    @property
    def picks(self) -> bool:
        """Whether each element of the result is one of the operand."""
        return self.weights.shape[1] == 1 and bool((self.weights == 1).all())

    @property
    def repeats(self) -> int:
        """How many times each element of the operand stands in the result, one after the other; 0 if it does not."""
        times, left = divmod(len(self.indices), self.size)
        repeated = np.repeat(np.arange(self.size), times)
        is_repeated = not left and self.picks and np.array_equal(self.indices[:, 0], repeated)
        return times if is_repeated else 0

    def used(self) -> _Taps:
        """Without those that have no weight anywhere."""
        used = np.any(self.weights != 0, axis=0)
        return _Taps(self.indices[:, used], self.weights[:, used], self.size)


# Where elements of the result lie in the operand


def _half_pixel(along: _Along, y: Array) -> Array:
    return (y + 0.5) / along.scale - 0.5


def _symmetric(along: _Along, y: Array) -> Array:
    """The centres of operand and result meet, also where the result was rounded."""
    return along.size / 2 * (1 - along.wanted / along.length) + _half_pixel(along, y)


def _pytorch(along: _Along, y: Array) -> Array:
    return np.full_like(y, -0.5) if along.length == 1 else _half_pixel(along, y)


def _align_corners(along: _Along, y: Array) -> Array:
    return np.zeros_like(y) if along.length == 1 else y * (along.size - 1) / (along.length - 1)


def _asymmetric(along: _Along, y: Array) -> Array:
    return y / along.scale


def _crop(along: _Along, y: Array) -> Array:
    """A region of the operand; the middle of it where one element is wanted."""
    last, part = along.size - 1, along.end - along.start
    inside = np.full_like(y, part * last / 2) if along.length == 1 else y * part * last / (along.length - 1)
    return inside + along.start * last


_CROP = "tf_crop_and_resize"
_COORDINATES: Mapping[str, Callable[[_Along, Array], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _pytorch,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    _CROP: _crop,
}


# Which elements are taken

_NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _tent(distance: Array) -> Array:
    return np.maximum(1 - distance, 0)


def _cubic(a: float) -> Callable[[Array], Array]:
    """The convolution kernel of Keys, 1981, with his free parameter."""

    def kernel(t: Array) -> Array:
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.where(t <= 1, near, np.where(t < 2, far, 0.0))

    return kernel


def _interpolated(
    along: _Along, x: Array, kernel: Callable[[Array], Array], reach: int, widen: bool, inside_only: bool
) -> _Taps:
    """The elements within reach of each place, weighted by a kernel of their distance.

    Args:
        x: Places in the operand.
        reach: Where the kernel ends.
        widen: Whether the kernel is as wide as the steps of a result that has fewer elements.
        inside_only: Whether elements beyond the border have no weight; else the border's stands there.
    """
    narrow = min(along.scale, 1.0) if widen else 1.0
    steps = np.arange(math.floor(-reach / narrow) + 1, math.ceil(reach / narrow) + 1)
    indices = np.floor(x)[:, None] + steps
    weights = kernel(np.abs(indices - x[:, None]) * narrow)
    if widen:
        weights = weights / weights.sum(1, keepdims=True)
    if inside_only:
        weights = np.where((indices < 0) | (indices >= along.size), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return _Taps(_clamped(indices, along.size), weights, along.size).used()


def _clamped(indices: Array, size: int) -> Array:
    return np.clip(indices, 0, size - 1).astype(np.int64)


def _taps(node: Node, along: _Along, x: Array) -> _Taps:
    """What the elements of the result at places ``x`` take, by the mode of the node."""
    attributes = node.attributes
    widen = bool(attributes.int("antialias", 0))
    inside_only = bool(attributes.int("exclude_outside", 0))
    match attributes.string("mode", "nearest"):
        case "nearest":
            default = "round_prefer_floor" if _has_modes(node) else "floor"
            how = attributes.string("nearest_mode", default)
            if how not in _NEAREST:
                raise node.invalid(f"nearest_mode is {how}; it is {_either(_NEAREST)}")
            indices = _clamped(_NEAREST[how](x), along.size)[:, None]
            return _Taps(indices, np.ones(indices.shape), along.size)
        case "linear" | "bilinear" | "trilinear":
            return _interpolated(along, x, _tent, 1, widen, inside_only)
        case "cubic":
            kernel = _cubic(attributes.float("cubic_coeff_a", -0.75))
            return _interpolated(along, x, kernel, 2, widen, inside_only)
        case other:
            raise node.invalid(f"mode is {other}; it is nearest, linear or cubic")


def _has_modes(node: Node) -> bool:
    """Whether the op has coordinate modes; before it had, places were rounded down."""
    return node.op_type == "Resize" and node.opset >= 11


def _either(names: Mapping[str, object]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


# Writing

MAX_RESIZED = 1 << 20
"""Most elements that an axis is resized to."""


def _resized(node: Node, wanted: Sequence[_Along]) -> SSAValue:
    """Operand 0 with other sizes along some axes."""
    given = "half_pixel" if _has_modes(node) else "asymmetric"
    mode = node.attributes.string("coordinate_transformation_mode", given)
    if mode not in _COORDINATES:
        raise node.invalid(f"coordinate_transformation_mode is {mode}; it is {_either(_COORDINATES)}")
    x = node.operand(0)
    element = element_of(x.type)
    outside: list[tuple[int, Array]] = []
    repeats: dict[int, int] = {}
    moved = [along for along in wanted if not _stays(along, mode)]
    for along in moved:
        if not 0 < along.wanted <= MAX_RESIZED:
            raise node.unsupported(
                f"axis {along.axis} gets {along.wanted} elements; where each comes from is worked out at compile time, "
                f"for 1 to {MAX_RESIZED} of an axis: resize in front of the model"
            )
        places = _COORDINATES[mode](along, np.arange(along.wanted, dtype=np.float64))
        taps = _taps(node, along, places)
        if taps.repeats:
            repeats[along.axis] = taps.repeats
        else:
            x = _along_axis(node, x, along.axis, taps)
        if mode == _CROP:
            outside.append((along.axis, (places < 0) | (places > along.size - 1)))
    x = _repeated(node, _narrowed(node, x, element), repeats)
    for axis, beyond in outside:
        x = _extrapolated(node, x, axis, beyond)
    return x


def _stays(along: _Along, mode: str) -> bool:
    same = along.wanted == along.size and math.isclose(along.scale, 1.0)
    return same and (mode != _CROP or (along.start, along.end) == (0.0, 1.0))


def _narrowed(node: Node, x: SSAValue, element: ElementType) -> SSAValue:
    """Integers are rounded to the nearest."""
    if not element.is_float and element_of(x.type).is_float:
        x = node.apply(logical.RoundOp, x)
    return node.cast(x, element, "narrow")


def _along_axis(node: Node, x: SSAValue, axis: int, taps: _Taps) -> SSAValue:
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
    """The taps of each element of the result side by side in front of it, and a sum over them."""
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
    """A given value where the place lies beyond the operand."""
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
    if _is_given(node, 3):
        return _resized(node, _with_regions(node, _by_sizes(node, axes)))
    if not _is_given(node, 2):
        raise node.invalid("neither scales nor sizes are given; one of them is needed")
    scales = node.value(2, "scales").tolist()
    return _resized(node, _with_regions(node, _by_scales(node, axes, scales)))


def _is_given(node: Node, index: int) -> bool:
    """Whether an operand is there; an empty one stands for an absent one."""
    return node.has(index) and node.shape(index) != (0,)


def _by_scales(node: Node, axes: Sequence[int], scales: Sequence[float]) -> list[_Along]:
    shape = node.shape(0)
    _check_count(node, "scales", scales, axes)
    if min(scales, default=1.0) <= 0:
        raise node.invalid(f"scales {list(scales)} are above 0 each")
    return [
        _Along(axis, shape[axis], math.floor(shape[axis] * scale), scale)
        for axis, scale in zip(axes, scales, strict=True)
    ]


def _by_sizes(node: Node, axes: Sequence[int]) -> list[_Along]:
    shape, sizes = node.shape(0), node.ints(3, "sizes")
    _check_count(node, "sizes", sizes, axes)
    scales = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    match node.attributes.string("keep_aspect_ratio_policy", "stretch"):
        case "stretch":
            chosen = zip(axes, sizes, scales, strict=True)
            return [_Along(axis, shape[axis], size, scale) for axis, size, scale in chosen]
        case "not_larger":
            scale = min(scales)
        case "not_smaller":
            scale = max(scales)
        case other:
            raise node.invalid(
                f"keep_aspect_ratio_policy is {other}; it is stretch, not_larger or not_smaller"
            )
    return [_Along(axis, shape[axis], math.floor(scale * shape[axis] + 0.5), scale) for axis in axes]


def _check_count(node: Node, what: str, values: Sequence[float], axes: Sequence[int]) -> None:
    if len(values) != len(axes):
        raise node.invalid(f"{what} has {len(values)} values for {len(axes)} axes")


def _with_regions(node: Node, wanted: Sequence[_Along]) -> list[_Along]:
    """The region of interest, of the one mode that has it: starts, then ends."""
    if node.attributes.string("coordinate_transformation_mode", "") != _CROP:
        return list(wanted)
    region = node.value(1, "roi").tolist()
    if len(region) != 2 * len(wanted):
        raise node.invalid(f"roi has {len(region)} values for {len(wanted)} axes; it is starts, then ends")
    ends = region[len(wanted) :]
    return [
        _Along(along.axis, along.size, along.wanted, along.scale, start, end)
        for along, start, end in zip(wanted, region, ends, strict=False)
    ]
