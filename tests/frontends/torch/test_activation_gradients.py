"""Gradients of activations, as the op of ATen and as what a graph traced through autograd has of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.support.torch_graphs import assert_like_eager

pytestmark = pytest.mark.peers
aten = torch.ops.aten

OPS: dict[str, Callable[..., Any]] = {
    "tanh": aten.tanh_backward,
    "sigmoid": aten.sigmoid_backward,
    "logit": lambda g, x: aten.logit_backward(g, x.sigmoid()),
    "logit_eps": lambda g, x: aten.logit_backward(g, x, 0.1),
    "gelu": aten.gelu_backward,
    "gelu_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "mish": aten.mish_backward,
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.3),
    "relu": lambda g, x: aten.threshold_backward(g, x, 0),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False),
    "elu": lambda g, x: aten.elu_backward(g, 1.5, 0.9, 0.8, False, x),
    "elu_of_result": lambda g, x: aten.elu_backward(g, 1.5, 0.9, 0.8, True, x),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 0.5),
    "hardswish": aten.hardswish_backward,
    "hardsigmoid": aten.hardsigmoid_backward,
    "softplus": lambda g, x: aten.softplus_backward(g, x, 2.0, 3.0),
    "log_sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, (-x.abs()).exp()),
    "glu": lambda g, x: aten.glu_backward(g, aten.full((4, 12), 0.3, dtype=x.dtype), -1),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "prelu": lambda g, x: aten._prelu_kernel_backward(g, x, x * 0.1),
    "rrelu": lambda g, x: aten.rrelu_with_noise_backward(g, x, x, 0.1, 0.3, False, False),
    "rrelu_training": lambda g, x: aten.rrelu_with_noise_backward(g, x, x, 0.1, 0.3, True, False),
    "native_dropout": lambda g, x: aten.native_dropout_backward(g, x > 0, 1.25),
}


def operands(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 6) * 2
    x.view(-1)[:7] = torch.tensor([0.0, -3.0, 3.0, 0.5, -0.5, -1.0, 4.5])
    return [torch.randn(4, 6).to(dtype), x.to(dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", OPS)
def test_op(name: str, dtype: torch.dtype) -> None:
    assert_like_eager(OPS[name], *operands(dtype))


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{
        name: getattr(F, name)
        for name in (
            *(
                "celu",
                "elu",
                "gelu",
                "glu",
                "hardshrink",
                "hardsigmoid",
                "hardswish",
                "hardtanh",
                "leaky_relu",
            ),
            *("logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus", "softshrink", "softsign"),
        )
    },
    **{
        name: getattr(torch, name)
        for name in (
            *(
                "asinh",
                "atan",
                "cos",
                "erf",
                "exp",
                "expm1",
                "neg",
                "sigmoid",
                "sin",
                "sinh",
                "square",
                "tanh",
            ),
            *("abs", "erfc", "exp2", "sinc", "floor", "round", "trunc", "nan_to_num"),
        )
    },
    "sqrt": lambda x: x.abs().sqrt(),
    "log2": lambda x: x.abs().log2(),
    "lgamma": lambda x: (x.abs() + 1).lgamma(),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "norm": lambda x: x.norm(dim=1),
    "norm_1": lambda x: x.norm(p=1),
    "norm_3": lambda x: torch.linalg.vector_norm(x, 3, dim=0),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1),
    "prod": lambda x: (x + 3).prod(1),
    "mean": lambda x: x.mean(0) ** 2,
    "clamp": lambda x: x.clamp(-0.4, 0.6) ** 2,
    "where": lambda x: torch.where(x > 0, x * 2, x**2),
    "maximum": lambda x: torch.maximum(x, 1 - x),
    "atan2": lambda x: torch.atan2(x, x + 2),
    "pow": lambda x: x.abs() ** 1.5,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
    "lerp": lambda x: torch.lerp(x, x * x, 0.3),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "logaddexp": lambda x: torch.logaddexp(x, 1 - x),
    "remainder": lambda x: torch.remainder(x, 0.7),
    "cast": lambda x: x.double().sin(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_through_autograd(name: str) -> None:
    gradient, x = operands(torch.float32)

    def backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        result, pull = torch.func.vjp(FUNCTIONS[name], x)
        (found,) = pull(torch.ones_like(result) * gradient.sum().to(result.dtype))
        return found

    assert_like_eager(backward, gradient, x)
