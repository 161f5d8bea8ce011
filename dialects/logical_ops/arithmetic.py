"""Arithmetic, elementwise.

Integers wrap around; integer division truncates toward zero and gives 0 for a zero divisor; ``max`` and ``min``
propagate NaN.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Commutative, Pure

from aicf.dialects.logical_ops.base import (
    Elementwise,
    Properties,
    same_types,
)
from aicf.dialects.logical_ops.elementwise import BinaryOp, UnaryOp
from aicf.dialects.types import AnyTensor

__all__ = ["AddOp", "DivOp", "MaxOp", "MinOp", "MulOp", "NegOp", "SubOp"]


@irdl_op_definition
class AddOp(BinaryOp):
    """``lhs + rhs``."""

    name = "logical.add"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class SubOp(BinaryOp):
    """``lhs - rhs``."""

    name = "logical.sub"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class MulOp(BinaryOp):
    """``lhs * rhs``."""

    name = "logical.mul"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class DivOp(BinaryOp):
    """``lhs / rhs``; integers truncate toward zero, and x / 0 is 0."""

    name = "logical.div"
    traits = traits_def(Pure(), Elementwise())


class ExtremumOp(BinaryOp, ABC):
    """``max`` and ``min``, which are also or and and of i1."""

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class MaxOp(ExtremumOp):
    """The larger of the two; NaN if either is NaN."""

    name = "logical.max"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class MinOp(ExtremumOp):
    """The smaller of the two; NaN if either is NaN."""

    name = "logical.min"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class NegOp(UnaryOp):
    """``-x``."""

    name = "logical.neg"
    TAKES_INTS: ClassVar[bool] = True
    traits = traits_def(Pure(), Elementwise())
