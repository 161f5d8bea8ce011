"""Functions of one float, elementwise."""

from __future__ import annotations

from xdsl.irdl import irdl_op_definition, traits_def

from aicf.dialects.logical_ops.elementwise import UnaryOp
from aicf.dialects.traits import Composite, Expensive

__all__ = [
    "AcosOp",
    "AcoshOp",
    "AsinOp",
    "AsinhOp",
    "AtanOp",
    "AtanhOp",
    "CeilOp",
    "CosOp",
    "CoshOp",
    "ErfOp",
    "ExpOp",
    "Expm1Op",
    "FloorOp",
    "Log1pOp",
    "LogOp",
    "ReciprocalOp",
    "RoundOp",
    "RsqrtOp",
    "SigmoidOp",
    "SinOp",
    "SinhOp",
    "SqrtOp",
    "TanOp",
    "TanhOp",
]


@irdl_op_definition
class ExpOp(UnaryOp):
    """``e ** x``."""

    name = "logical.exp"
    traits = traits_def(Expensive())


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm; -inf at 0, NaN below."""

    name = "logical.log"
    traits = traits_def(Expensive())


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root; NaN below 0."""

    name = "logical.sqrt"
    traits = traits_def(Expensive())


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """``1 / sqrt(x)``."""

    name = "logical.rsqrt"
    traits = traits_def(Expensive())


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent."""

    name = "logical.tanh"
    traits = traits_def(Expensive())


@irdl_op_definition
class ErfOp(UnaryOp):
    """The error function."""

    name = "logical.erf"
    traits = traits_def(Expensive())


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """``1 / (1 + exp(-x))``."""

    name = "logical.sigmoid"
    traits = traits_def(Expensive())


@irdl_op_definition
class Expm1Op(UnaryOp):
    """``e ** x - 1``, without the cancellation near 0."""

    name = "logical.expm1"
    traits = traits_def(Expensive())


@irdl_op_definition
class Log1pOp(UnaryOp):
    """``log(1 + x)``, without rounding ``1 + x``; -inf at -1, NaN below."""

    name = "logical.log1p"
    traits = traits_def(Expensive())


@irdl_op_definition
class SinOp(UnaryOp):
    """The sine, of radians; NaN of an infinity."""

    name = "logical.sin"
    traits = traits_def(Expensive())


@irdl_op_definition
class CosOp(UnaryOp):
    """The cosine, of radians; NaN of an infinity."""

    name = "logical.cos"
    traits = traits_def(Expensive())


@irdl_op_definition
class TanOp(UnaryOp):
    """The tangent, of radians; NaN of an infinity."""

    name = "logical.tan"
    traits = traits_def(Composite())


@irdl_op_definition
class AsinOp(UnaryOp):
    """The arc sine, in radians; NaN outside of -1 to 1."""

    name = "logical.asin"
    traits = traits_def(Composite())


@irdl_op_definition
class AcosOp(UnaryOp):
    """The arc cosine, in radians; NaN outside of -1 to 1."""

    name = "logical.acos"
    traits = traits_def(Composite())


@irdl_op_definition
class AtanOp(UnaryOp):
    """The arc tangent, in radians, from -pi/2 to pi/2."""

    name = "logical.atan"
    traits = traits_def(Expensive())


@irdl_op_definition
class SinhOp(UnaryOp):
    """The hyperbolic sine."""

    name = "logical.sinh"
    traits = traits_def(Composite())


@irdl_op_definition
class CoshOp(UnaryOp):
    """The hyperbolic cosine."""

    name = "logical.cosh"
    traits = traits_def(Composite())


@irdl_op_definition
class AsinhOp(UnaryOp):
    """The inverse of the hyperbolic sine."""

    name = "logical.asinh"
    traits = traits_def(Composite())


@irdl_op_definition
class AcoshOp(UnaryOp):
    """The inverse of the hyperbolic cosine; NaN below 1."""

    name = "logical.acosh"
    traits = traits_def(Composite())


@irdl_op_definition
class AtanhOp(UnaryOp):
    """The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside."""

    name = "logical.atanh"
    traits = traits_def(Composite())


@irdl_op_definition
class FloorOp(UnaryOp):
    """The largest whole number that is not above x."""

    name = "logical.floor"


@irdl_op_definition
class CeilOp(UnaryOp):
    """The smallest whole number that is not below x."""

    name = "logical.ceil"


@irdl_op_definition
class RoundOp(UnaryOp):
    """The nearest whole number, the even one of two that are equally near."""

    name = "logical.round"


@irdl_op_definition
class ReciprocalOp(UnaryOp):
    """``1 / x``."""

    name = "logical.reciprocal"
    traits = traits_def(Composite())
