"""What elementwise ops share.

Their operands have equal types: broadcasting is an op of its own (``data_movement.py``).
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import operand_def

from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Properties,
    TypeText,
    operand_types,
    operand_values,
    require_float,
    require_numeric,
    same_types,
)
from aicf.dialects.types import AnyTensor, tensor_info

__all__ = ["BinaryOp", "UnaryOp"]


class BinaryOp(LogicalOp, ABC):
    """``(T, T) -> T`` elementwise; ints and floats."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME

    lhs = operand_def()
    rhs = operand_def()

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        values = operand_values(lhs, rhs)
        super().__init__(operands=values, result_types=[self.infer(operand_types(values), {})])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        require_numeric(info, "use logical.max for or, logical.min for and, or cast to a number")
        return info.with_sizes(info.sizes)


class UnaryOp(LogicalOp, ABC):
    """``T -> T`` elementwise; floats, and ints where a subclass says so."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    TAKES_INTS: ClassVar[bool] = False

    operand = operand_def()

    def __init__(self, operand: SSAValue | Operation):
        value = SSAValue.get(operand)
        super().__init__(operands=[value], result_types=[self.infer([value.type], {})])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        if cls.TAKES_INTS:
            require_numeric(info, "cast to a number first")
        else:
            require_float(info)
        return info.with_sizes(info.sizes)
