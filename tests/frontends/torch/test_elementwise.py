"""ATen's elementwise ops at the values where they are easily wrong: signs, halves, NaN, infinities, other types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.torch_graphs import assert_like_eager, lowered_outputs

pytestmark = pytest.mark.peers
aten = torch.ops.aten

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.75, -20.0, 30.0, math.inf, -math.inf, math.nan]

UNARY = [
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc"),
    *("erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "isneginf"),
    *("isposinf", "log", "log10", "log1p", "log2", "logit", "neg", "reciprocal", "round", "rsqrt"),
    *("sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh"),
    *("trunc", "nan_to_num", "relu", "silu", "gelu", "hardswish", "hardsigmoid", "softplus", "mish"),
    *("elu", "selu", "leaky_relu", "hardtanh", "log_sigmoid", "lgamma", "digamma", "special_entr"),
    *("special_erfcx", "special_ndtr", "special_log_ndtr", "softshrink", "hardshrink", "celu"),
    *("deg2rad",),
]
BINARY = [
    *("add", "sub", "mul", "div", "atan2", "fmax", "fmin", "fmod", "floor_divide", "hypot"),
    *("logaddexp", "logaddexp2", "maximum", "minimum", "pow", "remainder", "xlogy", "copysign", "eq"),
    *("ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "ldexp", "heaviside"),
    *("special_xlog1py",),
]
ENDLESS = {"cos", "erfinv", "logit", "sin", "sinc", "tan", "gelu", "silu", "mish", "hardswish", "log_sigmoid"}
"""What PyTorch gives of infinities and NaN is not the limit, or differs between its kernels."""


def named(name: str) -> Callable[..., Any]:
    return getattr(aten, name)


def special(dtype: torch.dtype, finite: bool = False) -> torch.Tensor:
    values = torch.tensor(SPECIAL, dtype=dtype)
    return values[values.isfinite()] if finite else values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str, dtype: torch.dtype) -> None:
    finite = name in ENDLESS or name in ("nan_to_num", "lgamma", "digamma", "special_erfcx")
    values = special(dtype, finite)
    if name in ("special_erfcx", "special_log_ndtr"):
        # PyTorch has them of f32 and f64 only; far below 0 the first is too large for f32.
        if dtype in (torch.float16, torch.bfloat16):
            return
        values = values[values > -2]
    assert_like_eager(named(name), values)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("name", ["exp", "sqrt", "sign", "isnan", "erf", "square", "sigmoid", "signbit"])
def test_functions_of_integers(name: str, dtype: torch.dtype) -> None:
    assert_like_eager(
        named(name), torch.tensor([0, 1, 1, 0] if dtype == torch.bool else [0, 1, 7, 9], dtype=dtype)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", BINARY)
def test_operators(name: str, dtype: torch.dtype) -> None:
    values = special(dtype, finite=name in ("ldexp", "floor_divide"))
    assert_like_eager(named(name), values[:, None], values)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize(
    "fn",
    [
        torch.remainder,
        torch.fmod,
        torch.floor_divide,
        torch.div,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        torch.pow,
        torch.bitwise_left_shift,
        torch.bitwise_right_shift,
        torch.maximum,
    ],
)
def test_integers(fn: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    x = torch.tensor([-7, -3, -1, 0, 1, 2, 3, 7], dtype=dtype)
    y = torch.tensor([1, 2, 3, 5], dtype=dtype)
    if fn not in (torch.pow, torch.bitwise_left_shift, torch.bitwise_right_shift):
        y = torch.cat([y, -y])
    assert_like_eager(fn, x[:, None], y)


def test_quotients_that_would_round_up() -> None:
    x = torch.tensor([1.0, 6.0, -1.0, 5.4, 1e9, 3.0])
    y = torch.tensor([0.1, 0.1, 0.1, 0.6, 3e-3, 1e-8])
    for fn in (torch.floor_divide, torch.remainder, torch.fmod):
        for one, other in ((x, y), (x, -y), (x.double(), y.double()), (x.half()[:4], y.half()[:4])):
            expected = fn(one, other).double().numpy()
            (found,) = lowered_outputs(fn, one, other)
            assert abs(found - expected).max() <= 1e-6 * max(1, abs(expected).max())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 0.1,
        lambda x: x + 1e-4,
        lambda x: 2.7 - x,
        lambda x: x / 3,
        lambda x: x > 0.1,
        lambda x: x**3,
        lambda x: x**-2,
        lambda x: 2**x,
        lambda x: x**0,
        lambda x: torch.where(x > 0, x, 2.5),
        lambda x: torch.where(x > 0, 1, x),
        lambda x: x.clamp(min=-0.7),
        lambda x: x.clamp(-0.7, torch.inf),
        lambda x: torch.clamp(x, torch.zeros(()), torch.ones(3, 1)),
        lambda x: aten.sub.Tensor(x, x * 2, alpha=0.3),
        lambda x: aten.rsub.Scalar(x, 3, 2),
        lambda x: torch.addcmul(x, x, x, value=0.3),
        lambda x: torch.addcdiv(x, x, x + 10, value=3),
        lambda x: torch.lerp(x, x + 1, 0.7),
        lambda x: torch.lerp(x, x + 1, x.abs()),
        lambda x: torch.round(x * 100, decimals=-1),
        lambda x: x.to(torch.float64) * 2 + x,
        lambda x: x + torch.full((), 2.0, dtype=torch.float64),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_numbers(fn: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    assert_like_eager(fn, torch.randn(3, 4).to(dtype))


def test_integers_with_numbers() -> None:
    x = torch.tensor([0, 1, 5, 250], dtype=torch.uint8)
    for fn in (
        lambda x: x - 1,
        lambda x: x + 10,
        lambda x: x * 0.5,
        lambda x: x > 0.5,
        lambda x: x // 3,
        lambda x: x / 3,
        lambda x: x == True,  # noqa: E712
        lambda x: -x.to(torch.int16),
        lambda x: x.float().to(torch.uint8),
        lambda x: (-x.float()).to(torch.uint8),
    ):
        assert_like_eager(fn, x)


def test_truth_values() -> None:
    x, y = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for fn in (torch.add, torch.mul, torch.maximum, torch.logical_xor, torch.bitwise_or, torch.eq, torch.lt):
        assert_like_eager(fn, x, y)
    assert_like_eager(lambda x: x + 1, x)
    assert_like_eager(lambda x: x * 1.5, x)
    assert_like_eager(torch.bitwise_not, x)


def test_bessel_functions_and_quantiles() -> None:
    x = torch.tensor([0.0, 0.3, -2.0, 7.9, 8.1, -20.0, 60.0])
    for name in ("special_i0", "special_i0e", "special_i1", "special_i1e"):
        assert_like_eager(lambda x: named(name)(x) / x.cosh(), x)  # noqa: B023
    assert_like_eager(
        aten.special_ndtri, torch.tensor([0.0, 1e-30, 1e-10, 0.1, 0.3, 0.5, 0.8, 0.99, 1.0, 1.5, -1.0])
    )


def test_logarithms_of_powers_are_whole() -> None:
    powers = 2.0 ** torch.arange(-20, 21)
    (found,) = lowered_outputs(lambda x: torch.log2(x).floor(), powers)
    assert found.tolist() == list(range(-20, 21))
