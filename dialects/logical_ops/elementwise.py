"""What elementwise ops share.

Their operands have equal types: broadcasting is an op of its own (``data_movement.py``).
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import operand_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    ElementRule,
    LogicalOp,
    Operand,
    TypeText,
    require_float,
    require_integer,
    require_numeric,
    same_types,
)
from aicf.dialects.logical_ops.properties import Properties, float_value
from aicf.dialects.traits import Elementwise
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["BinaryOp", "IntegerBinaryOp", "ParametricOp", "UnaryOp"]


def _number_of_two(info: TensorInfo) -> None:
    require_numeric(info, "use logical.and, logical.or or logical.xor, or cast to a number")


class BinaryOp(LogicalOp, ABC):
    """``(T, T) -> T`` elementwise; ints and floats, unless a subclass says otherwise."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    ELEMENTS: ClassVar[ElementRule] = _number_of_two

    lhs = operand_def()
    rhs = operand_def()
    traits = traits_def(Elementwise())

    def __init__(self, lhs: Operand, rhs: Operand):
        super().__init__(lhs, rhs)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        cls.ELEMENTS(info)
        return info.with_sizes(info.sizes)


class IntegerBinaryOp(BinaryOp, ABC):
    """``(T, T) -> T`` elementwise; integers only."""

    ELEMENTS: ClassVar[ElementRule] = require_integer


class UnaryOp(LogicalOp, ABC):
    """``T -> T`` elementwise; floats, unless a subclass says otherwise."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    ELEMENTS: ClassVar[ElementRule] = require_float

    operand = operand_def()
    traits = traits_def(Elementwise())

    def __init__(self, operand: Operand, **properties: object):
        super().__init__(operand, result=None, **properties)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        cls.ELEMENTS(info)
        return info.with_sizes(info.sizes)


class ParametricOp(UnaryOp, ABC):
    """``T -> T`` of floats with numbers as attributes, all of them finite and of type f64."""

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        for name in cls.get_irdl_definition().properties:
            if name in properties and not math.isfinite(number := float_value(properties[name])):
                raise VerifyException(f"{name} is {number}; it is a finite number")
        return super().infer(operands, properties)
