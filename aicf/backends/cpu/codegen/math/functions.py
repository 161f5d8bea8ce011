"""The functions of floats that have code on this backend, by name; a test holds each of them to 4 ulp."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aicf.backends.cpu.codegen.ir_builder import Value
from aicf.backends.cpu.codegen.math.atan import atan
from aicf.backends.cpu.codegen.math.elementary import VectorMath
from aicf.backends.cpu.codegen.math.pow import power
from aicf.backends.cpu.codegen.math.trig import cos, sin

FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "exp": VectorMath.exp,
    "log": VectorMath.log,
    "tanh": VectorMath.tanh,
    "erf": VectorMath.erf,
    "sigmoid": VectorMath.sigmoid,
    "sqrt": VectorMath.sqrt,
    "rsqrt": VectorMath.rsqrt,
    "expm1": VectorMath.expm1,
    "log1p": VectorMath.log1p,
    "sin": sin,
    "cos": cos,
    "atan": atan,
    "pow": power,
    "abs": VectorMath.abs,
    "floor": VectorMath.floor,
    "ceil": VectorMath.ceil,
    "round": VectorMath.round,
}
"""From `VectorMath` of a type and width, and one value an argument, to the value of the function."""
