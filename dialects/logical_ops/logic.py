"""Logic and shifts, elementwise: of truth values, and of the bits of integers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Commutative, Pure

from aicf.dialects.logical_ops.base import require_integer
from aicf.dialects.logical_ops.elementwise import IntegerBinaryOp, UnaryOp
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import Elementwise
from aicf.dialects.types import AnyTensor, tensor_info

__all__ = ["AndOp", "NotOp", "OrOp", "ShiftLeftOp", "ShiftRightOp", "XorOp"]


class LogicOp(IntegerBinaryOp, ABC):
    """``and``, ``or`` and ``xor``."""

    TAKES_BOOLS: ClassVar[bool] = True


@irdl_op_definition
class AndOp(LogicOp):
    """``lhs & rhs``."""

    name = "logical.and"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class OrOp(LogicOp):
    """``lhs | rhs``."""

    name = "logical.or"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class XorOp(LogicOp):
    """``lhs ^ rhs``."""

    name = "logical.xor"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class NotOp(UnaryOp):
    """``not x`` of i1, ``~x`` of integers."""

    name = "logical.not"
    traits = traits_def(Pure(), Elementwise())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_integer(info, takes_bools=True)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class ShiftLeftOp(IntegerBinaryOp):
    """The bits of lhs, rhs places up: ``lhs * 2 ** rhs``, which wraps around.

    An amount that is negative, or the number of bits or more, gives 0.
    """

    name = "logical.shift_left"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class ShiftRightOp(IntegerBinaryOp):
    """The bits of lhs, rhs places down: ``lhs / 2 ** rhs`` rounded down.

    An amount that is negative, or the number of bits or more, gives 0, and -1 of a negative lhs.
    """

    name = "logical.shift_right"
    traits = traits_def(Pure(), Elementwise())
