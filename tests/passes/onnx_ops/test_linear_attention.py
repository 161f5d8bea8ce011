"""ONNX's LinearAttention and CausalConvWithState, against the reference implementation of package onnx."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import Array, expect, one_node

RNG = np.random.default_rng(16)
BATCH, TOKENS, HEADS, GROUPS, SIZE, VALUE_SIZE = 2, 4, 4, 2, 3, 5
COUNTS = {"q_num_heads": HEADS, "kv_num_heads": GROUPS}


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def given(decay: int = 0, beta: int = 0, past: bool = False) -> list[Array | None]:
    """Operands; `decay` and `beta` are sizes of their last dimensions, 0 for none."""
    return [
        normal(BATCH, TOKENS, HEADS * SIZE),
        normal(BATCH, TOKENS, GROUPS * SIZE),
        normal(BATCH, TOKENS, GROUPS * VALUE_SIZE),
        normal(BATCH, GROUPS, SIZE, VALUE_SIZE) if past else None,
        -np.abs(normal(BATCH, TOKENS, decay)) if decay else None,
        RNG.random((BATCH, TOKENS, beta), np.float32) if beta else None,
    ]


@pytest.mark.parametrize(
    ("rule", "decay", "beta"),
    [
        ("linear", 0, 0),
        ("gated", GROUPS, 0),
        ("gated", GROUPS * SIZE, 0),
        ("delta", 0, GROUPS),
        ("delta", 0, 1),
        ("gated_delta", GROUPS * SIZE, 1),
    ],
)
def test_linear_attention(rule: str, decay: int, beta: int) -> None:
    expect("LinearAttention", given(decay, beta), 2, opset=27, update_rule=rule, **COUNTS)
    expect(
        "LinearAttention", given(decay, beta, past=True), 2, opset=27, update_rule=rule, scale=0.4, **COUNTS
    )


def test_a_rule_without_its_operand_is_refused() -> None:
    model = one_node("LinearAttention", given()[:3], 2, opset=27, update_rule="delta", **COUNTS)
    with pytest.raises(InvalidIR, match='update_rule "delta" needs beta'):
        aicf.compile(model)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize(("past", "bias"), [(False, True), (True, False)])
def test_causal_conv(activation: str, past: bool, bias: bool) -> None:
    inputs = [
        normal(BATCH, 3, TOKENS),
        normal(3, 1, 3),
        normal(3) if bias else None,
        normal(BATCH, 3, 2) if past else None,
    ]
    expect("CausalConvWithState", inputs, 2, opset=27, activation=activation)
