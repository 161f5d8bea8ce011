"""Activations, elementwise; NaN stays NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    Composite,
    Elementwise,
    LogicalOp,
    Properties,
)
from aicf.dialects.logical_ops.elementwise import UnaryOp
from aicf.dialects.types import AnyTensor

__all__ = ["APPROXIMATIONS", "Approximation", "GeluOp", "ReluOp", "SiluOp"]


Approximation = Literal["none", "tanh"]
APPROXIMATIONS: tuple[Approximation, ...] = ("none", "tanh")


@irdl_op_definition
class ReluOp(UnaryOp):
    """``max(x, 0)``; NaN stays NaN."""

    name = "logical.relu"
    TAKES_INTS: ClassVar[bool] = True
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class SiluOp(UnaryOp):
    """``x * sigmoid(x)``, also called swish.

    Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, 2018.
    """

    name = "logical.silu"
    traits = traits_def(Pure(), Elementwise(), Composite())


@irdl_op_definition
class GeluOp(UnaryOp):
    """``x * Phi(x)``, Phi the normal distribution's; ``approximate = "tanh"`` takes Phi from a tanh of a cubic.

    Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
    """

    name = "logical.gelu"
    approximate = prop_def(StringAttr, default_value=StringAttr("none"))
    traits = traits_def(Pure(), Elementwise(), Composite())

    def __init__(self, operand: SSAValue | Operation, approximate: Approximation = "none"):
        value = SSAValue.get(operand)
        properties: dict[str, Attribute] = {"approximate": StringAttr(approximate)}
        LogicalOp.__init__(
            self, operands=[value], result_types=[self.infer([value.type], properties)], properties=properties
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        approximate = properties.get("approximate")
        if isinstance(approximate, StringAttr) and approximate.data not in APPROXIMATIONS:
            legal = ", ".join(f'"{name}"' for name in APPROXIMATIONS)
            raise VerifyException(f'approximate is "{approximate.data}"; use one of {legal}')
        return super().infer(operands, properties)
