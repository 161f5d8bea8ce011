"""Activations, elementwise; NaN stays NaN.

Their attributes have the names and defaults of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from xdsl.dialects.builtin import FloatAttr, StringAttr, f64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import ElementRule, Operand, require_numeric
from aicf.dialects.logical_ops.elementwise import ParametricOp, UnaryOp
from aicf.dialects.logical_ops.properties import Properties, float_value
from aicf.dialects.traits import Composite
from aicf.dialects.types import AnyTensor

__all__ = [
    "APPROXIMATIONS",
    "Approximation",
    "EluOp",
    "GeluOp",
    "HardSigmoidOp",
    "HardSwishOp",
    "LeakyReluOp",
    "ReluOp",
    "SiluOp",
    "SoftplusOp",
]


Approximation = Literal["none", "tanh"]
APPROXIMATIONS: tuple[Approximation, ...] = ("none", "tanh")


@irdl_op_definition
class ReluOp(UnaryOp):
    """``max(x, 0)``; NaN stays NaN."""

    name = "logical.relu"
    ELEMENTS: ClassVar[ElementRule] = require_numeric


@irdl_op_definition
class SiluOp(UnaryOp):
    """``x * sigmoid(x)``, also called swish.

    Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, 2018.
    """

    name = "logical.silu"
    traits = traits_def(Composite())


@irdl_op_definition
class GeluOp(UnaryOp):
    """``x * Phi(x)``, Phi the normal distribution's; ``approximate = "tanh"`` takes Phi from a tanh of a cubic.

    Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
    """

    name = "logical.gelu"
    approximate = prop_def(StringAttr, default_value=StringAttr("none"))
    traits = traits_def(Composite())

    def __init__(self, operand: Operand, approximate: Approximation = "none"):
        super().__init__(operand, approximate=approximate)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        approximate = properties.get("approximate")
        if isinstance(approximate, StringAttr) and approximate.data not in APPROXIMATIONS:
            legal = ", ".join(f'"{name}"' for name in APPROXIMATIONS)
            raise VerifyException(f'approximate is "{approximate.data}"; use one of {legal}')
        return super().infer(operands, properties)


@irdl_op_definition
class LeakyReluOp(ParametricOp):
    """``x > 0 ? x : negative_slope * x``.

    Maas, Hannun and Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models, 2013.
    """

    name = "logical.leaky_relu"
    negative_slope = prop_def(FloatAttr, default_value=FloatAttr(0.01, f64))
    traits = traits_def(Composite())

    def __init__(self, operand: Operand, negative_slope: float = 0.01):
        super().__init__(operand, negative_slope=negative_slope)


@irdl_op_definition
class EluOp(ParametricOp):
    """``x > 0 ? x : alpha * (exp(x) - 1)``.

    Clevert, Unterthiner and Hochreiter, Fast and Accurate Deep Network Learning by Exponential Linear Units, 2016.
    """

    name = "logical.elu"
    alpha = prop_def(FloatAttr, default_value=FloatAttr(1.0, f64))
    traits = traits_def(Composite())

    def __init__(self, operand: Operand, alpha: float = 1.0):
        super().__init__(operand, alpha=alpha)


@irdl_op_definition
class SoftplusOp(ParametricOp):
    """``log(1 + exp(beta * x)) / beta``, exact for every x: there is no threshold from which it is x.

    Dugas, Bengio, Belisle, Nadeau and Garcia, Incorporating Second-Order Functional Knowledge, 2001.
    """

    name = "logical.softplus"
    beta = prop_def(FloatAttr, default_value=FloatAttr(1.0, f64))
    traits = traits_def(Composite())

    def __init__(self, operand: Operand, beta: float = 1.0):
        super().__init__(operand, beta=beta)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        if "beta" in properties and float_value(properties["beta"]) == 0:
            raise VerifyException("beta is 0.0; the softplus is divided by it")
        return super().infer(operands, properties)


@irdl_op_definition
class HardSigmoidOp(ParametricOp):
    """``min(max(alpha * x + beta, 0), 1)``; the defaults are PyTorch's 1/6 and 1/2, ONNX has 1/5 for alpha.

    Courbariaux, Bengio and David, BinaryConnect, 2015.
    """

    name = "logical.hard_sigmoid"
    alpha = prop_def(FloatAttr, default_value=FloatAttr(1 / 6, f64))
    beta = prop_def(FloatAttr, default_value=FloatAttr(0.5, f64))
    traits = traits_def(Composite())

    def __init__(self, operand: Operand, alpha: float = 1 / 6, beta: float = 0.5):
        super().__init__(operand, alpha=alpha, beta=beta)


@irdl_op_definition
class HardSwishOp(UnaryOp):
    """``x * min(max(x / 6 + 1/2, 0), 1)``.

    Howard and others, Searching for MobileNetV3, 2019.
    """

    name = "logical.hard_swish"
    traits = traits_def(Composite())
