"""What elementwise ops share.

Their operands have equal types: broadcasting is an op of its own (``data_movement.py``).
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import operand_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    TypeText,
    require_float,
    require_integer,
    require_numeric,
    same_types,
)
from aicf.dialects.logical_ops.properties import Properties, float_value
from aicf.dialects.types import AnyTensor, tensor_info

__all__ = ["BinaryOp", "IntegerBinaryOp", "ParametricOp", "UnaryOp"]


class BinaryOp(LogicalOp, ABC):
    """``(T, T) -> T`` elementwise; ints and floats."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME

    lhs = operand_def()
    rhs = operand_def()

    def __init__(self, lhs: Operand, rhs: Operand):
        super().__init__(lhs, rhs)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        require_numeric(info, "use logical.and, logical.or or logical.xor, or cast to a number")
        return info.with_sizes(info.sizes)


class IntegerBinaryOp(BinaryOp, ABC):
    """``(T, T) -> T`` elementwise; integers only, and i1 where a subclass says so."""

    TAKES_BOOLS: ClassVar[bool] = False

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        require_integer(info, cls.TAKES_BOOLS)
        return info.with_sizes(info.sizes)


class UnaryOp(LogicalOp, ABC):
    """``T -> T`` elementwise; floats, and ints where a subclass says so."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    TAKES_INTS: ClassVar[bool] = False

    operand = operand_def()

    def __init__(self, operand: Operand, **properties: object):
        super().__init__(operand, result=None, **properties)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        if cls.TAKES_INTS:
            require_numeric(info, "cast to a number first")
        else:
            require_float(info)
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
