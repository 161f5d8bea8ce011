"""PyTorch's elementwise functions by the names of ours, and what results of both must agree in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.elementwise_ops import FLOATS, INTEGERS, OPS, TOLERANCE, Array
from tests.support.torch_tensors import array_of, tensor

torch = pytest.importorskip("torch")
functional = torch.nn.functional

DIVISIONS = ("div", "floor_div", "mod")

TORCH: Mapping[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "sign": torch.sign,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "is_nan": torch.isnan,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.125),
    "elu": lambda x: functional.elu(x, 0.75),
    # Their threshold, from which they return x, out of the way.
    "softplus": lambda x: functional.softplus(x, 0.5, threshold=80),
    "hard_sigmoid": functional.hardsigmoid,
    "hard_swish": functional.hardswish,
    "clamp": lambda x: torch.clamp(x, 1 if x.dtype == torch.uint8 else -2, 3),
    "clamp_below": lambda x: torch.clamp(x, min=1 if x.dtype == torch.uint8 else -1),
    "clamp_above": lambda x: torch.clamp(x, max=1),
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc"),
    "max": torch.maximum,
    "min": torch.minimum,
    "pow": torch.pow,
    "floor_div": torch.floor_divide,
    "mod": torch.remainder,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


def defined(name: str, dtype: str, arrays: Sequence[Array]) -> list[Array]:
    """The operands, with others in their place where PyTorch's function is not defined on them."""
    arrays = [array.copy() for array in arrays[: OPS[name].operands]]
    if name in DIVISIONS and dtype in INTEGERS:
        # Division by zero raises there, and the quotient of the smallest number and -1 is left to the machine.
        arrays[1][np.isin(arrays[1].astype(np.int64), (0, -1))] = 3
    if name.startswith("shift"):
        # An amount that is no number of bits is left open there.
        arrays[1] = arrays[1] % (8 * arrays[1].itemsize)
    if name == "sign" and dtype in FLOATS:
        # The sign of NaN is 0 there, and NaN here and in NumPy.
        arrays[0][np.isnan(arrays[0])] = -1
    if name.startswith("gelu"):
        # The GELU of infinity is infinity, and NaN in their vector code.
        arrays[0][np.isinf(arrays[0])] = 1
    if name in ("sinh", "cosh") and dtype == "f32":
        # Their vector code gives infinity from 88 on, where both are finite up to 89.4.
        arrays[0][(np.abs(arrays[0]) > 88) & (np.abs(arrays[0]) < 90)] = 1
    return arrays


def theirs_of(name: str, arrays: Sequence[Array]) -> Array:
    """What PyTorch gives."""
    return array_of(TORCH[name](*map(tensor, arrays)))


def assert_like_theirs(found: Array, theirs: Array, dtype: str) -> None:
    """Integers are equal; floats within some units of the last place."""
    assert found.dtype == theirs.dtype
    assert found.shape == theirs.shape
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, theirs)
        return
    found, theirs = found.astype(np.float64), theirs.astype(np.float64)
    # Their functions of f32 are some units of the last place off themselves, more where terms cancel.
    tolerance = 4 * TOLERANCE[dtype]
    np.testing.assert_allclose(found, theirs, rtol=tolerance, atol=tolerance)
