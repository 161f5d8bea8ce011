"""Logic and shifts, elementwise: of truth values, and of the bits of integers."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Commutative

from aicf.dialects.logical_ops.base import ElementRule, require_bits
from aicf.dialects.logical_ops.elementwise import BinaryOp, IntegerBinaryOp, UnaryOp

__all__ = ["AndOp", "NotOp", "OrOp", "ShiftLeftOp", "ShiftRightOp", "XorOp"]


class LogicOp(BinaryOp, ABC):
    """``and``, ``or`` and ``xor``, of integers and i1."""

    ELEMENTS: ClassVar[ElementRule] = require_bits


@irdl_op_definition
class AndOp(LogicOp):
    """``lhs & rhs``."""

    name = "logical.and"
    traits = traits_def(Commutative())


@irdl_op_definition
class OrOp(LogicOp):
    """``lhs | rhs``."""

    name = "logical.or"
    traits = traits_def(Commutative())


@irdl_op_definition
class XorOp(LogicOp):
    """``lhs ^ rhs``."""

    name = "logical.xor"
    traits = traits_def(Commutative())


@irdl_op_definition
class NotOp(UnaryOp):
    """``not x`` of i1, ``~x`` of integers."""

    name = "logical.not"
    ELEMENTS: ClassVar[ElementRule] = require_bits


@irdl_op_definition
class ShiftLeftOp(IntegerBinaryOp):
    """The bits of lhs, rhs places up: ``lhs * 2 ** rhs``, which wraps around.

    An amount that is negative, or the number of bits or more, gives 0.
    """

    name = "logical.shift_left"


@irdl_op_definition
class ShiftRightOp(IntegerBinaryOp):
    """The bits of lhs, rhs places down: ``lhs / 2 ** rhs`` rounded down.

    An amount that is negative, or the number of bits or more, gives 0, and -1 of a negative lhs.
    """

    name = "logical.shift_right"
