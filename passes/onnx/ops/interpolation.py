"""Tables of interpolation along one axis: which elements each element of the result takes, and with which weights.

All follows from sizes and attributes; what reads and adds is `resize.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from aicf.passes.onnx.ops.base import Array, Node


@dataclass(frozen=True)
class Along:
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
class Taps:
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
    def elements(self) -> int:
        """Of its tables: indices, and weights where it needs them."""
        return self.indices.size if self.picks else 2 * self.indices.size

    @property
    def repeats(self) -> int:
        """How many times each element of the operand stands in the result, one after the other; 0 if it does not."""
        times, left = divmod(len(self.indices), self.size)
        repeated = np.repeat(np.arange(self.size), times)
        is_repeated = not left and self.picks and np.array_equal(self.indices[:, 0], repeated)
        return times if is_repeated else 0

    def used(self) -> Taps:
        """Without those that have no weight anywhere."""
        used = np.any(self.weights != 0, axis=0)
        return Taps(self.indices[:, used], self.weights[:, used], self.size)


# Where elements of the result lie in the operand


def _half_pixel(along: Along, y: Array) -> Array:
    return (y + 0.5) / along.scale - 0.5


def _symmetric(along: Along, y: Array) -> Array:
    """The centres of operand and result meet, also where the result was rounded."""
    return along.size / 2 * (1 - along.wanted / along.length) + _half_pixel(along, y)


def _pytorch(along: Along, y: Array) -> Array:
    return np.full_like(y, -0.5) if along.length == 1 else _half_pixel(along, y)


def _align_corners(along: Along, y: Array) -> Array:
    return np.zeros_like(y) if along.length == 1 else y * (along.size - 1) / (along.length - 1)


def _crop(along: Along, y: Array) -> Array:
    """A region of the operand; the middle of it where one element is wanted."""
    last, part = along.size - 1, along.end - along.start
    inside = np.full_like(y, part * last / 2) if along.length == 1 else y * part * last / (along.length - 1)
    return inside + along.start * last


CROP = "tf_crop_and_resize"
COORDINATES: Mapping[str, Callable[[Along, Array], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _pytorch,
    "align_corners": _align_corners,
    "asymmetric": lambda along, y: y / along.scale,
    CROP: _crop,
}


# Which elements are taken

_NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(a: float) -> Callable[[Array], Array]:
    """The convolution kernel of Keys, 1981, with his free parameter."""

    def kernel(t: Array) -> Array:
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.where(t <= 1, near, np.where(t < 2, far, 0.0))

    return kernel


def _interpolated(
    node: Node,
    along: Along,
    x: Array,
    kernel: Callable[[Array], Array],
    reach: int,
    widen: bool,
    inside_only: bool,
) -> Taps:
    """The elements within reach of each coordinate, weighted by a kernel of their distance.

    Args:
        x: Coordinates in the operand.
        reach: Where the kernel ends.
        widen: Whether the kernel is as wide as the steps of a result that has fewer elements.
        inside_only: Whether elements beyond the border have no weight; else the border's stands there.
    """
    narrow = min(along.scale, 1.0) if widen else 1.0
    first, end = math.floor(-reach / narrow) + 1, math.ceil(reach / narrow) + 1
    node.bounded(along.wanted * (end - first), f"the number of elements read along axis {along.axis}")
    steps = np.arange(first, end)
    indices = np.floor(x)[:, None] + steps
    weights = kernel(np.abs(indices - x[:, None]) * narrow)
    if widen:
        weights = weights / weights.sum(1, keepdims=True)
    if inside_only:
        weights = np.where((indices < 0) | (indices >= along.size), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Taps(_clamped(indices, along.size), weights, along.size).used()


def _clamped(indices: Array, size: int) -> Array:
    return np.clip(indices, 0, size - 1).astype(np.int64)


def taps_of(node: Node, along: Along, x: Array) -> Taps:
    """What the elements of the result at coordinates ``x`` take, by the mode of the node."""
    attributes = node.attributes
    widen = attributes.flag("antialias")
    inside_only = attributes.flag("exclude_outside")
    match attributes.string("mode", "nearest"):
        case "nearest":
            default = "round_prefer_floor" if has_modes(node) else "floor"
            how = attributes.string("nearest_mode", default)
            if how not in _NEAREST:
                raise node.invalid(f"nearest_mode is {how}; it is {either(_NEAREST)}")
            indices = _clamped(_NEAREST[how](x), along.size)[:, None]
            return Taps(indices, np.ones(indices.shape), along.size)
        case "linear" | "bilinear" | "trilinear":
            return _interpolated(
                node, along, x, lambda distance: np.maximum(1 - distance, 0), 1, widen, inside_only
            )
        case "cubic":
            kernel = _cubic(attributes.float("cubic_coeff_a", -0.75))
            return _interpolated(node, along, x, kernel, 2, widen, inside_only)
        case other:
            raise node.invalid(f"mode is {other}; it is nearest, linear or cubic")


def has_modes(node: Node) -> bool:
    """Whether the op has coordinate modes; before it had, coordinates were rounded down."""
    return node.op_type == "Resize" and node.opset >= 11


def either(names: Mapping[str, object]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"
