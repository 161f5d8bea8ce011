"""Arithmetic, elementwise.

Integers wrap around; integer division truncates toward zero and gives 0 for a zero divisor, ``floor_div`` and ``mod``
round toward minus infinity; ``max`` and ``min`` propagate NaN.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from numbers import Integral
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, traits_def
from xdsl.traits import Commutative
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import ElementRule, Operand, any_element, require_float, require_numeric
from aicf.dialects.logical_ops.elementwise import BinaryOp, IntegerBinaryOp, UnaryOp
from aicf.dialects.logical_ops.properties import Properties, float_value, int_value
from aicf.dialects.traits import Composite, Expensive
from aicf.dialects.types import AnyTensor, ElementType, TensorInfo, element_of, tensor_info

__all__ = [
    "AbsOp",
    "AddOp",
    "ClampOp",
    "DivOp",
    "FloorDivOp",
    "MaxOp",
    "MinOp",
    "ModOp",
    "MulOp",
    "NegOp",
    "PowOp",
    "SignOp",
    "SubOp",
]


@irdl_op_definition
class AddOp(BinaryOp):
    """``lhs + rhs``."""

    name = "logical.add"
    traits = traits_def(Commutative())


@irdl_op_definition
class SubOp(BinaryOp):
    """``lhs - rhs``."""

    name = "logical.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    """``lhs * rhs``."""

    name = "logical.mul"
    traits = traits_def(Commutative())


@irdl_op_definition
class DivOp(BinaryOp):
    """``lhs / rhs``; integers truncate toward zero, and x / 0 is 0."""

    name = "logical.div"
    traits = traits_def(Expensive())


class ExtremumOp(BinaryOp, ABC):
    """``max`` and ``min``, which are also or and and of i1."""

    ELEMENTS: ClassVar[ElementRule] = any_element


@irdl_op_definition
class MaxOp(ExtremumOp):
    """The larger of the two; NaN if either is NaN."""

    name = "logical.max"
    traits = traits_def(Commutative())


@irdl_op_definition
class MinOp(ExtremumOp):
    """The smaller of the two; NaN if either is NaN."""

    name = "logical.min"
    traits = traits_def(Commutative())


@irdl_op_definition
class NegOp(UnaryOp):
    """``-x``."""

    name = "logical.neg"
    ELEMENTS: ClassVar[ElementRule] = require_numeric


@irdl_op_definition
class AbsOp(UnaryOp):
    """``|x|``; the smallest integer stays what it is."""

    name = "logical.abs"
    ELEMENTS: ClassVar[ElementRule] = require_numeric


@irdl_op_definition
class SignOp(UnaryOp):
    """-1, 0 or 1 as x is below, at or above 0; NaN stays NaN."""

    name = "logical.sign"
    ELEMENTS: ClassVar[ElementRule] = require_numeric
    traits = traits_def(Composite())


@irdl_op_definition
class PowOp(BinaryOp):
    """``lhs ** rhs`` of floats as in C99: ``x ** 0`` and ``1 ** y`` are 1, even of NaN.

    A negative lhs has a power only if rhs is a whole number, else the result is NaN.
    """

    name = "logical.pow"
    ELEMENTS: ClassVar[ElementRule] = require_float
    traits = traits_def(Expensive())


@irdl_op_definition
class FloorDivOp(IntegerBinaryOp):
    """The integer quotient rounded down; ``x floor_div 0`` is 0, and the one overflow wraps."""

    name = "logical.floor_div"
    traits = traits_def(Composite())


@irdl_op_definition
class ModOp(IntegerBinaryOp):
    """``lhs - rhs * (lhs floor_div rhs)``: what the division leaves, with the sign of rhs; ``x mod 0`` is x."""

    name = "logical.mod"
    traits = traits_def(Composite())


@irdl_op_definition
class ClampOp(UnaryOp):
    """``min(max(x, min), max)``, either bound may be missing; NaN stays NaN.

    The bounds are rounded to the element type. If min is above max, the result is max.
    """

    name = "logical.clamp"
    ELEMENTS: ClassVar[ElementRule] = require_numeric
    min = opt_prop_def(FloatAttr | IntegerAttr)
    max = opt_prop_def(FloatAttr | IntegerAttr)
    traits = traits_def(Composite())

    def __init__(self, operand: Operand, min: float | None = None, max: float | None = None):
        info = tensor_info(SSAValue.get(operand).type)
        super().__init__(operand, min=_bound(min, info), max=_bound(max, info))

    @property
    def bounds(self) -> tuple[float | int | None, float | int | None]:
        """The smaller and the larger bound, as numbers of the element type."""
        low, high = (_number(self.properties.get(name), self.info.element) for name in ("min", "max"))
        return low, high

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        type_ = super().infer(operands, properties)
        bounds = [(name, properties[name]) for name in ("min", "max") if name in properties]
        if not bounds:
            raise VerifyException("has neither min nor max; give at least one")
        for name, bound in bounds:
            _check_bound(name, bound, element_of(type_))
        return type_


def _bound(bound: float | None, info: TensorInfo) -> float | None:
    """A bound of floats as a float, so that ``clamp(x, 0, 6)`` is what it looks like."""
    return float(bound) if isinstance(bound, Integral) and info.element.is_float else bound


def _number(bound: Attribute | None, element: ElementType) -> float | int | None:
    if bound is None:
        return None
    if element.is_float:
        return float(element.dtype.type(float_value(bound)))
    return int_value(bound)


def _check_bound(name: str, bound: Attribute, element: ElementType) -> None:
    """Refuse a bound that is no number of the element type.

    Raises:
        VerifyException: an integer for floats or the other way round, NaN, or out of range.
    """
    if element.is_float:
        if not isinstance(bound, FloatAttr):
            raise VerifyException(f"{name} is {bound}; write a bound of floats as a float, such as 1.0")
        if math.isnan(bound.value.data):
            raise VerifyException(f"{name} is NaN; it is a number, or left out")
        return
    if not isinstance(bound, IntegerAttr):
        raise VerifyException(f"{name} is {bound}; write a bound of integers as an integer, such as 1")
    limits = np.iinfo(element.dtype)
    if not limits.min <= (number := bound.value.data) <= limits.max:
        raise VerifyException(
            f"{name} is {number}; {element.name} holds {limits.min} to {limits.max}, so leave it out"
        )
