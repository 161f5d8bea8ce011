"""Functions of one float, elementwise."""

from __future__ import annotations

from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Pure

from aicf.dialects.logical_ops.base import (
    Elementwise,
)
from aicf.dialects.logical_ops.elementwise import UnaryOp

__all__ = ["ErfOp", "ExpOp", "LogOp", "RsqrtOp", "SigmoidOp", "SqrtOp", "TanhOp"]


@irdl_op_definition
class ExpOp(UnaryOp):
    """``e ** x``."""

    name = "logical.exp"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm; -inf at 0, NaN below."""

    name = "logical.log"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root; NaN below 0."""

    name = "logical.sqrt"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """``1 / sqrt(x)``."""

    name = "logical.rsqrt"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent."""

    name = "logical.tanh"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class ErfOp(UnaryOp):
    """The error function."""

    name = "logical.erf"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """``1 / (1 + exp(-x))``."""

    name = "logical.sigmoid"
    traits = traits_def(Pure(), Elementwise())
