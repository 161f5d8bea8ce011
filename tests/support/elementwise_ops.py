"""The elementwise ops by name, as programs of one op: what backends and peers are compared on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph, Value

Array = NDArray[Any]

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i64", "i16", "i8", "u8")
NUMBERS = (*FLOATS, *INTEGERS)
BITS = (*INTEGERS, "i1")


@dataclass(frozen=True)
class Elementwise:
    """One op."""

    build: Callable[..., Value]
    operands: int = 1
    dtypes: tuple[str, ...] = FLOATS
    cancels: bool = False
    """Whether its formula subtracts near equals: small results are then as exact as 1 is."""

    def program(self, shape: tuple[int, ...], dtype: str) -> ModuleOp:
        """A module that computes ``y`` of ``x0`` and, for two operands, ``x1``."""
        g = Graph("elementwise")
        values = [g.input(f"x{number}", shape, dtype) for number in range(self.operands)]
        g.output(self.build(g, *values), "y")
        return g.module()


OPS: Mapping[str, Elementwise] = {
    "abs": Elementwise(Graph.abs, 1, NUMBERS),
    "sign": Elementwise(Graph.sign, 1, NUMBERS),
    "neg": Elementwise(Graph.neg, 1, NUMBERS),
    "reciprocal": Elementwise(Graph.reciprocal),
    "exp": Elementwise(Graph.exp),
    "expm1": Elementwise(Graph.expm1),
    "log": Elementwise(Graph.log),
    "log1p": Elementwise(Graph.log1p),
    "sqrt": Elementwise(Graph.sqrt),
    "rsqrt": Elementwise(Graph.rsqrt),
    "tanh": Elementwise(Graph.tanh),
    "erf": Elementwise(Graph.erf),
    "sin": Elementwise(Graph.sin),
    "cos": Elementwise(Graph.cos),
    "tan": Elementwise(Graph.tan),
    "asin": Elementwise(Graph.asin),
    "acos": Elementwise(Graph.acos),
    "atan": Elementwise(Graph.atan),
    "sinh": Elementwise(Graph.sinh),
    "cosh": Elementwise(Graph.cosh),
    "asinh": Elementwise(Graph.asinh),
    "acosh": Elementwise(Graph.acosh),
    "atanh": Elementwise(Graph.atanh),
    "floor": Elementwise(Graph.floor),
    "ceil": Elementwise(Graph.ceil),
    "round": Elementwise(Graph.round),
    "is_nan": Elementwise(Graph.is_nan),
    "relu": Elementwise(Graph.relu, 1, NUMBERS),
    "sigmoid": Elementwise(Graph.sigmoid),
    "silu": Elementwise(Graph.silu),
    "gelu": Elementwise(Graph.gelu, cancels=True),
    "leaky_relu": Elementwise(lambda g, x: g.leaky_relu(x, 0.125)),
    "elu": Elementwise(lambda g, x: g.elu(x, 0.75)),
    "softplus": Elementwise(lambda g, x: g.softplus(x, 0.5)),
    "hard_sigmoid": Elementwise(Graph.hard_sigmoid, cancels=True),
    "hard_swish": Elementwise(Graph.hard_swish, cancels=True),
    "clamp": Elementwise(lambda g, x: g.clamp(x, 1 if x.dtype == "u8" else -2, 3), 1, NUMBERS),
    "clamp_below": Elementwise(lambda g, x: g.clamp(x, min=1 if x.dtype == "u8" else -1), 1, NUMBERS),
    "clamp_above": Elementwise(lambda g, x: g.clamp(x, max=1), 1, NUMBERS),
    "add": Elementwise(Graph.add, 2, NUMBERS),
    "sub": Elementwise(Graph.sub, 2, NUMBERS),
    "mul": Elementwise(Graph.mul, 2, NUMBERS),
    "div": Elementwise(Graph.div, 2, NUMBERS),
    "max": Elementwise(Graph.max, 2, NUMBERS),
    "min": Elementwise(Graph.min, 2, NUMBERS),
    "pow": Elementwise(Graph.pow, 2),
    "floor_div": Elementwise(Graph.floor_div, 2, INTEGERS),
    "mod": Elementwise(Graph.mod, 2, INTEGERS),
    "and": Elementwise(Graph.and_, 2, BITS),
    "or": Elementwise(Graph.or_, 2, BITS),
    "xor": Elementwise(Graph.xor, 2, BITS),
    "not": Elementwise(Graph.not_, 1, BITS),
    "shift_left": Elementwise(Graph.shift_left, 2, INTEGERS),
    "shift_right": Elementwise(Graph.shift_right, 2, INTEGERS),
    "eq": Elementwise(Graph.eq, 2, (*NUMBERS, "i1")),
    "ne": Elementwise(Graph.ne, 2, (*NUMBERS, "i1")),
    "lt": Elementwise(Graph.lt, 2, (*NUMBERS, "i1")),
    "le": Elementwise(Graph.le, 2, (*NUMBERS, "i1")),
    "gt": Elementwise(Graph.gt, 2, (*NUMBERS, "i1")),
    "ge": Elementwise(Graph.ge, 2, (*NUMBERS, "i1")),
}
CASES = [(name, dtype) for name, op in OPS.items() for dtype in op.dtypes]
"""Every op with every element type it takes."""


def every_op(shape: tuple[int, ...], dtype: str) -> ModuleOp:
    """A module with a result for each op that takes an element type, by its name, of ``x0`` and ``x1``."""
    g = Graph("every_op")
    values = [g.input(f"x{number}", shape, dtype) for number in range(2)]
    for name, op in OPS.items():
        if dtype in op.dtypes:
            g.output(op.build(g, *values[: op.operands]), name)
    return g.module()


def edges(dtype: str) -> Array:
    """Values of an element type at which something may go wrong."""
    element = element_named(dtype)
    if element.kind == "bool":
        return np.array([False, True])
    if element.kind == "int":
        limits = np.iinfo(element.dtype)
        whole = np.array([limits.min, limits.min + 1, limits.max, 0, 1, -1, 2, -2, 3, -3, 7, -7], object)
        return (whole % (1 << limits.bits)).astype(f"u{element.bytes}").astype(element.dtype)
    limits = ml_dtypes.finfo(element.dtype)
    small = [0.0, float(limits.smallest_subnormal), float(limits.tiny)]
    positive = [*small, 0.3, 0.5, 1.0, 1.5, 2.5, 3.0, 20.0, 1e30, np.inf]
    with np.errstate(over="ignore"):
        return np.array([*positive, *(-value for value in positive), np.nan]).astype(element.dtype)


def operands(count: int, dtype: str, shape: tuple[int, ...], seed: int) -> list[Array]:
    """Random arrays, every third element an edge."""
    random = np.random.default_rng(seed)
    element, special = element_named(dtype), edges(dtype)
    found: list[Array] = []
    for _ in range(count):
        if element.is_float:
            array = random.normal(size=shape) * 10.0 ** random.integers(-3, 3, shape)
        else:
            array = (
                random.integers(0, 2, shape) if element.kind == "bool" else random.integers(-50, 50, shape)
            )
        at_edge = random.random(shape) < 1 / 3
        chosen = special[random.integers(0, len(special), shape)]
        found.append(np.where(at_edge, chosen, array.astype(element.dtype)))
    return found


TOLERANCE = {"f32": 2e-6, "f64": 1e-14, "f16": 2**-10, "bf16": 2**-7}
"""Of a result: a few ulp; one of f16 and bf16, which are computed in f32 and rounded once."""


def assert_same(name: str, found: Array, wanted: Array, dtype: str) -> None:
    """Numbers within a few ulp; NaN, infinities, integers and truth values exactly."""
    assert found.shape == wanted.shape
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    limits = ml_dtypes.finfo(found.dtype)
    with np.errstate(over="ignore"):
        wanted = wanted.astype(found.dtype)
    tiny = 4 * limits.tiny if found.dtype.itemsize > 2 else 1.5 * float(limits.smallest_subnormal)
    least = TOLERANCE[dtype] if OPS[name].cancels else float(tiny)
    pair = (array.astype(np.float64) for array in (found, wanted))
    np.testing.assert_allclose(*pair, rtol=1.01 * TOLERANCE[dtype], atol=least, err_msg=name)
