"""Writing numbers in 8 bits with a scale, in the form that `narrow-products` knows: `(stored - zero point) * scale`.

Sources: B. Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", 2018 (scales and zero points); G. Xiao et al., "SmoothQuant", 2023 (numbers moved from the operand into the
weight).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named, tensor, tensor_info
from aicf.passes.support.writing import Writer
from aicf.policies.precision_policy import SYMMETRIC

F32, I32, I8, U8, F8 = (element_named(name) for name in ("f32", "i32", "i8", "u8", "f8E4M3FN"))
_STEPS_OF_WEIGHTS = 127
_LARGEST_FLOAT8 = float(cast(Any, ml_dtypes.finfo(F8.dtype)).max)
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
"""Of a weight that is 0: what is stored is 0 then."""


@dataclass(frozen=True)
class Grid:
    """The numbers that the integers, or floats of 8 bits, of an activation stand for.

    Args:
        element: Of what is stored: u8, i8 where integers are symmetric, or f8E4M3FN.
        scale: What 1 stands for.
        zero: The integer of 0.
    """

    element: ElementType
    scale: float
    zero: int

    @classmethod
    def of(cls, low: float, high: float, activations: str) -> Grid:
        """The finest one that holds `low`, `high` and 0."""
        low, high = min(low, 0.0), max(high, 0.0)
        if activations == SYMMETRIC:
            return cls(I8, _scale(max(-low, high) / _STEPS_OF_WEIGHTS), 0)
        scale = _scale((high - low) / 255)
        return cls(U8, scale, min(255, max(0, round(-low / scale))))

    @classmethod
    def of_float8(cls, low: float, high: float) -> Grid:
        """The one whose largest number is the largest magnitude: the precision of floats is the same at any scale, but
        for numbers near 0."""
        return cls(F8, _scale(max(-low, high, 0.0) / _LARGEST_FLOAT8), 0)

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest number that is stored."""
        if self.element.is_float:
            return -_LARGEST_FLOAT8, _LARGEST_FLOAT8
        limits = np.iinfo(self.element.dtype)
        return float(limits.min), float(limits.max)


def _scale(exact: float) -> float:
    """The nearest number of f32 that is no subnormal one; 1 where all numbers are 0."""
    return max(float(np.float32(exact)), _SMALLEST_SCALE) if exact else 1.0


def rounded_to(
    writer: Writer,
    value: SSAValue,
    grid: Grid,
    name: str,
    smoothing: tuple[NDArray[Any], int] | None = None,
) -> SSAValue:
    """`value` in f32, rounded to a grid.

    Args:
        writer: Adds ops.
        value: Of f32.
        grid: What is stored of it.
        name: Of the operand, for ids.
        smoothing: Numbers by which it is divided before, and the dimension along which they lie.
    """
    low, high = grid.limits
    inverse = np.float32(1) / np.float32(grid.scale)
    if smoothing is None:
        steps = writer.apply(logical.MulOp, value, float(inverse), name=f"{name}.steps")
    else:
        factors, axis = smoothing
        vector = (inverse / factors).astype(np.float32)
        steps = writer.apply(
            logical.MulOp,
            value,
            along(writer, vector, value, axis, f"{name}.smoothing"),
            name=f"{name}.steps",
        )
    if not grid.element.is_float:
        steps = writer.add(logical.RoundOp(steps), f"{name}.whole")
    if grid.zero:
        steps = writer.apply(logical.AddOp, steps, float(grid.zero), name=f"{name}.shifted")
    inside = writer.add(logical.ClampOp(steps, min=low, max=high), f"{name}.inside")
    wide = stored = writer.cast(inside, grid.element, f"{name}.quantized")
    if not grid.element.is_float:
        wide = writer.cast(stored, I32, f"{name}.i32")
    if grid.zero:
        wide = writer.apply(logical.SubOp, wide, grid.zero, name=f"{name}.centered")
    return writer.apply(
        logical.MulOp, writer.cast(wide, F32, f"{name}.f32"), grid.scale, name=f"{name}.dequantized"
    )


def rounded_weight(
    writer: Writer,
    weight: SSAValue,
    axis: int,
    name: str,
    smoothing: tuple[NDArray[Any], int] | None = None,
    element: ElementType = I8,
) -> SSAValue:
    """A weight rounded to i8 or f8E4M3FN with a scale for each position along `axis`: its largest magnitude is the
    largest number there, 127 or 448.

    `smoothing` are numbers that it is multiplied with before, and the dimension along which they lie.
    """
    if smoothing is not None:
        factors, inputs = smoothing
        vector = along(writer, factors.astype(np.float32), weight, inputs, f"{name}.smoothing")
        weight = writer.apply(logical.MulOp, weight, vector, name=f"{name}.smoothed")
    axes = [dim for dim in range(tensor_info(weight.type).rank) if dim != axis]
    magnitude = writer.add(logical.AbsOp(weight), f"{name}.magnitude")
    largest = writer.add(logical.ReduceMaxOp(magnitude, axes), f"{name}.largest")
    most = _LARGEST_FLOAT8 if element.is_float else float(_STEPS_OF_WEIGHTS)
    exact = writer.apply(logical.DivOp, largest, most, name=f"{name}.step")
    scale = writer.apply(logical.MaxOp, exact, _SMALLEST_SCALE, name=f"{name}.scale")
    spread = writer.broadcast(scale, [axis], tensor_info(weight.type).sizes, f"{name}.scales")
    steps = writer.apply(logical.DivOp, weight, spread, name=f"{name}.steps")
    if not element.is_float:
        steps = writer.add(logical.RoundOp(steps), f"{name}.whole")
    stored = writer.cast(steps, element, f"{name}.quantized")
    return writer.apply(
        logical.MulOp, writer.cast(stored, F32, f"{name}.f32"), spread, name=f"{name}.dequantized"
    )


def along(
    writer: Writer, numbers: NDArray[Any] | Sequence[float], like: SSAValue, axis: int, name: str
) -> SSAValue:
    """A constant vector of f32 repeated to the shape of `like`, along whose dimension `axis` it lies."""
    array = np.asarray(numbers, np.float32)
    vector = writer.add(logical.ConstantOp(array, tensor(array.shape, F32)), name)
    return writer.broadcast(vector, [axis], tensor_info(like.type).sizes, f"{name}.broadcast")
