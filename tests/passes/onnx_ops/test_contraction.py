"""ONNX's MatMul and Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicf.errors import InvalidIR
from tests.support.onnx_models import Array, expect, one_node

RNG = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((4,), (4,)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
    ],
)
def test_matmul_follows_numpy(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    expect("MatMul", [normal(*lhs), normal(*rhs)])


def test_matmul_of_integers() -> None:
    expect("MatMul", [RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 2))])


@pytest.mark.parametrize(
    ("bias", "attributes"),
    [
        (None, {}),
        ((5,), {"transB": 1}),
        ((1, 5), {"transA": 1, "alpha": 0.25}),
        ((3, 1), {"transA": 1, "transB": 1, "beta": -0.5}),
        ((), {"alpha": 2.0, "beta": 0.75}),
        ((3, 5), {"transB": 1, "beta": 0.0}),
        ((1,), {"transB": 1}),
    ],
)
def test_gemm(bias: tuple[int, ...] | None, attributes: dict[str, Any]) -> None:
    a = normal(*((4, 3) if attributes.get("transA") else (3, 4)))
    b = normal(*((5, 4) if attributes.get("transB") else (4, 5)))
    inputs = [a, b] if bias is None else [a, b, normal(*bias)]
    expect("Gemm", inputs, opset=13, **attributes)


def test_gemm_of_a_batch_is_refused() -> None:
    import aicf

    model = one_node("Gemm", [normal(2, 3, 4), normal(4, 5)])
    with pytest.raises(InvalidIR, match=r"Gemm 'node': A is 2x3x4xf32 and B is 4x5xf32; both are matrices"):
        aicf.compile(model)
