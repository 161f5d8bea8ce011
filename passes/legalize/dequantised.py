"""Dequantised tensors: `(stored - zero point) * scale` in f32, where `stored` holds short integers, or floats of 8 bits
without a zero point.

What is here recognises them among the ops of a function, and takes their parts out. What becomes of a product of two
of them is settled in `narrow-products`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import ElementType, element_named, element_of, tensor, tensor_info
from aicf.passes.support.writing import Writer

F32, I32, I16 = (element_named(name) for name in ("f32", "i32", "i16"))
_BYTES = ("i8", "u8")
_SHORT = (*_BYTES, "i16")


@dataclass(frozen=True)
class Scale:
    """One number for all elements of a tensor, or one for each position along one of its dimensions.

    Args:
        value: The numbers, f32; every dimension but one has size 1. None if they are none of the program.
        known: They as an array of shape () or (n,), if they are constants.
    """

    value: SSAValue | None
    known: NDArray[Any] | None = None

    @staticmethod
    def number(value: float) -> Scale:
        """A number that no value of the program is."""
        return Scale(None, np.asarray(value, F32.dtype))

    @property
    def vector(self) -> SSAValue:
        """The numbers where they are not known."""
        assert self.value is not None, "numbers that are not known are a value"
        return self.value

    def times(self, writer: Writer, factor: float) -> Scale:
        """Numbers that are not known times one that is."""
        by = writer.splat(factor, self.vector, "scale.factor")
        return Scale(writer.add(logical.MulOp(self.vector, by), "scale"))

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return int(np.prod(tensor_info(self.vector.type).shape)) if self.known is None else self.known.size

    def spread(self, writer: Writer, like: SSAValue, axis: int) -> SSAValue:
        """The numbers repeated to the shape of `like`, along whose dimension `axis` they lie."""
        sizes, own = tensor_info(like.type).shape, () if self.count == 1 else (self.count,)
        if self.known is not None:
            if self.known.size == 1:
                return writer.splat(self.known.item(), like, "scale")
            vector = writer.add(logical.ConstantOp(self.known, tensor(own, F32)), "scale")
        else:
            vector = writer.reshape(self.vector, own, "scale")
        return writer.broadcast(vector, [axis] * len(own), sizes, "scale.broadcast")


@dataclass(frozen=True)
class Centred:
    """A tensor that stands for `stored - zero`.

    Args:
        value: The tensor.
        stored: Integers of at most 16 bits, or floats of 8 bits, of the same shape.
        zero: The zero points as integers of the same shape; None where they are all 0.
        zeros: The smallest and the largest zero point that there can be.
    """

    value: SSAValue
    stored: SSAValue
    zero: SSAValue | None
    zeros: tuple[int, int]

    @property
    def largest(self) -> int:
        """The largest magnitude of `stored - zero`."""
        limits = np.iinfo(element_of(self.stored.type).dtype)
        return max(int(limits.max) - self.zeros[0], self.zeros[1] - int(limits.min))

    @property
    def is_float8(self) -> bool:
        """Whether floats are stored, which have no zero point."""
        return element_of(self.stored.type).is_float8

    @property
    def knows_zero(self) -> bool:
        """Whether all elements have one zero point, which is known and of the type of `stored`."""
        limits, (low, high) = np.iinfo(element_of(self.stored.type).dtype), self.zeros
        return low == high and limits.min <= low <= limits.max

    @property
    def as_stored(self) -> Self:
        """With zero points of 0: its integers are those in memory, which `zero` has to make up for."""
        return replace(self, zero=None, zeros=(0, 0))

    @property
    def element(self) -> ElementType:
        """The shortest element type that kernels multiply in which `stored - zero` is computed."""
        return element_of(self.stored.type) if self.zero is None else I16

    def integers(self, writer: Writer, stored: SSAValue, suffix: str) -> SSAValue:
        """`stored`, which is this one's or stands for it, less the zero points, as `element`."""
        if self.zero is None:
            return stored
        wide = writer.cast(stored, I16, f"{suffix}.i16")
        return writer.add(logical.SubOp(wide, self._short_zero(writer, suffix)), suffix)

    def _short_zero(self, writer: Writer, suffix: str) -> SSAValue:
        """The zero points as i16; those that are repeated are cast before that."""
        zero = self.zero
        assert zero is not None
        name, shape = f"{suffix}.zero_point", tensor_info(zero.type).shape
        if isinstance(zero.owner, logical.ConstantOp):
            return writer.add(
                logical.ConstantOp(zero.owner.array.astype(I16.dtype), tensor(shape, I16)), name
            )
        if isinstance(zero.owner, logical.BroadcastOp):
            short = writer.cast(zero.owner.operand, I16, f"{name}.i16")
            return writer.broadcast(short, int_values(zero.owner.dimensions), shape, name)
        return writer.cast(zero, I16, name)


@dataclass(frozen=True)
class Dequantised(Centred):
    """A tensor of f32 that is `(stored - zero) * scale`.

    Args:
        scale: f32 of the same shape.
        ops: What computes it from `stored`, in text order, without what spreads zero points and scales.
    """

    scale: SSAValue
    ops: tuple[Operation, ...]


def centred(value: SSAValue) -> Centred | None:
    """What a tensor of short integers is computed from: 8-bit integers less zero points, as i16, or itself; None if it
    is of other numbers."""
    element = element_of(value.type)
    if element == I16 and isinstance(value.owner, logical.SubOp):
        wide, zero = value.owner.operands
        if isinstance(wide.owner, logical.CastOp) and _keeps_numbers(wide.owner):
            stored, zeros = wide.owner.operand, _range(zero)
            if element_of(stored.type).name in _BYTES and zeros is not None:
                return Centred(value, stored, zero, zeros)
    return Centred(value, value, None, (0, 0)) if element.name in _SHORT else None


def dequantised(value: SSAValue) -> Dequantised | None:
    """What a tensor is dequantised from; None if it is not, or its zero points may be larger than 8-bit integers."""
    if not isinstance(value, OpResult) or not isinstance(value.op, logical.MulOp):
        return None
    if element_of(value.type) != F32:
        return None
    for wide, scale in (value.op.operands, reversed(value.op.operands)):
        if (found := _unscaled(value, wide, scale)) is not None:
            return found
    return None


def _unscaled(value: OpResult, wide: SSAValue, scale: SSAValue) -> Dequantised | None:
    if not isinstance(wide.owner, logical.CastOp) or _is_stored_cast(scale):
        return None
    ops: list[Operation] = [value.op, wide.owner]
    integers, zero, zeros = wide.owner.operand, None, (0, 0)
    if isinstance(integers.owner, logical.SubOp) and _keeps_differences(integers):
        ops.append(integers.owner)
        integers, zero = integers.owner.operands
        known = _range(zero)
        if known is None:
            return None
        zero, zeros = (None if known == (0, 0) else zero), known
    if isinstance(integers.owner, logical.CastOp) and _keeps_numbers(integers.owner):
        ops.append(integers.owner)
        integers = integers.owner.operand
    element = element_of(integers.type)
    if element.name not in _SHORT and not (element.is_float8 and zero is None):
        return None
    return Dequantised(value, integers, zero, zeros, scale, tuple(reversed(ops)))


def _keeps_differences(value: SSAValue) -> bool:
    """Whether short integers, less others, never wrap around in the type of `value`."""
    element = element_of(value.type)
    return element.kind == "int" and element.bytes >= I32.bytes


def _keeps_numbers(op: logical.CastOp) -> bool:
    """Whether integers become equal integers."""
    narrow, wide = element_of(op.operand.type), element_of(op.result.type)
    return narrow.kind == wide.kind == "int" and np.can_cast(narrow.dtype, wide.dtype, "safe")


def _is_stored_cast(value: SSAValue) -> bool:
    if not isinstance(value.owner, logical.CastOp):
        return False
    element = element_of(value.owner.operand.type)
    return element.kind == "int" or element.is_float8


def _range(zero: SSAValue) -> tuple[int, int] | None:
    """Between which numbers zero points lie; None if they are neither constants nor 8-bit integers."""
    while isinstance(zero.owner, logical.BroadcastOp | logical.ReshapeOp):
        zero = zero.owner.operand
    if isinstance(zero.owner, logical.ConstantOp):
        array = zero.owner.array
        found = int(array.min()), int(array.max())
    elif isinstance(zero.owner, logical.CastOp) and _keeps_numbers(zero.owner):
        limits = np.iinfo(element_of(zero.owner.operand.type).dtype)
        found = int(limits.min), int(limits.max)
    else:
        return None
    return found if found[0] >= -128 and found[1] <= 255 else None


def scale_along(scale: SSAValue, axis: int | None) -> Scale | None:
    """The numbers of a scale that is the same everywhere, or along all dimensions but `axis`; None if it is neither."""
    rank = tensor_info(scale.type).rank
    source, dimensions = scale, tuple(range(rank))
    if isinstance(scale.owner, logical.BroadcastOp):
        source, dimensions = scale.owner.operand, int_values(scale.owner.dimensions)
    if isinstance(source.owner, logical.ConstantOp):
        numbers = _distinct(source.owner, dimensions, axis)
        return None if numbers is None or not np.isfinite(numbers).all() else Scale(source, numbers)
    sizes = tensor_info(source.type).shape
    long = [dimension for dimension, size in zip(dimensions, sizes, strict=True) if size != 1]
    return Scale(source) if long in ([], [axis]) else None


def _distinct(
    constant: logical.ConstantOp, dimensions: Sequence[int], axis: int | None
) -> NDArray[Any] | None:
    """The numbers of a constant along the dimension that becomes `axis`, if those along all others are the same."""
    array = constant.array
    if constant.is_splat:
        return array.reshape(())
    first = array[tuple(slice(None) if dim == axis else slice(1) for dim in dimensions)]
    return first.reshape(-1) if np.array_equal(array, np.broadcast_to(first, array.shape)) else None


def joint(scales: Sequence[tuple[Scale, int]]) -> list[tuple[Scale, int]]:
    """Scales that are multiplied with sums, each with its dimension of those, with as many constants as possible
    multiplied together: at most one of them is a vector, and no product needs a subnormal number."""
    found: list[tuple[Scale, int]] = []
    for scale, axis in scales:
        for index, (other, along) in enumerate(found):
            if (both := _product_of(other, scale)) is not None:
                found[index] = both, axis if scale.count > 1 else along
                break
        else:
            found.append((scale, axis))
    return found


def _product_of(first: Scale, second: Scale) -> Scale | None:
    if first.known is None or second.known is None or (first.count > 1 and second.count > 1):
        return None
    with np.errstate(over="ignore", under="ignore"):
        product = np.asarray(first.known * second.known, F32.dtype)
    limits = np.finfo(F32.dtype)
    if not ((np.abs(product) >= limits.tiny) & (np.abs(product) <= limits.max)).all():
        return None
    return Scale((first if first.count > 1 else second).value, product)
