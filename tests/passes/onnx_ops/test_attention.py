"""ONNX's Attention and RotaryEmbedding, against the reference implementation of package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import Array, expect, one_node

RNG = np.random.default_rng(15)

# Heads of queries and of keys, queries, keys, sizes of a key and of a value.
HEADS, GROUPS, QUERIES, KEYS, SIZE, VALUE_SIZE = 4, 2, 3, 5, 8, 6
FLAT = {"q_num_heads": HEADS, "kv_num_heads": GROUPS}


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def given(rank: int = 4, past: int = 0) -> list[Array | None]:
    """Queries, keys and values of a batch of two, and a past of keys and values if there is one."""
    if rank == 3:
        return [
            normal(2, QUERIES, HEADS * SIZE),
            normal(2, KEYS, GROUPS * SIZE),
            normal(2, KEYS, GROUPS * VALUE_SIZE),
        ]
    new = [
        normal(2, HEADS, QUERIES, SIZE),
        normal(2, GROUPS, KEYS, SIZE),
        normal(2, GROUPS, KEYS, VALUE_SIZE),
    ]
    old = [normal(2, GROUPS, past, SIZE), normal(2, GROUPS, past, VALUE_SIZE)] if past else []
    return [*new, None, *old]


def bools(*shape: int) -> Array:
    return RNG.random(shape) < 0.5


@pytest.mark.parametrize(
    "attributes",
    [{}, {"scale": 0.3, "is_causal": 1}, {"softcap": 0.7}, {"softcap": 1.5, "is_causal": 1}],
)
@pytest.mark.parametrize("rank", [3, 4])
def test_attention(rank: int, attributes: dict[str, Any]) -> None:
    expect("Attention", given(rank), opset=23, **attributes, **(FLAT if rank == 3 else {}))


@pytest.mark.parametrize("causal", [0, 1])
def test_past_and_present(causal: int) -> None:
    expect("Attention", given(past=4), 3, opset=23, is_causal=causal)


@pytest.mark.parametrize(("mode", "softcap"), [(0, 0.0), (1, 2.0), (2, 2.0), (3, 0.0)])
def test_scores_as_an_output(mode: int, softcap: float) -> None:
    inputs = given()
    inputs[3] = normal(2, 1, QUERIES, KEYS)
    expect("Attention", inputs, 4, opset=23, qk_matmul_output_mode=mode, softcap=softcap)


@pytest.mark.parametrize(
    ("mask", "attributes"),
    [
        (bools(QUERIES, KEYS), {}),
        (bools(2, 1, QUERIES, KEYS), {"is_causal": 1}),
        (bools(QUERIES, 4), {"is_causal": 1, "softcap": 3.0}),
        (normal(2, HEADS, QUERIES, KEYS), {}),
        (normal(QUERIES, 4), {"is_causal": 1}),
        (normal(2, 1, QUERIES, KEYS), {"softcap": 3.0}),
        (normal(KEYS), {}),
    ],
)
def test_mask(mask: Array, attributes: dict[str, Any]) -> None:
    expect("Attention", [*given()[:3], mask], opset=24, **attributes)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_a_query_that_sees_no_key_gives_zero(softcap: float) -> None:
    mask = bools(2, 1, QUERIES, KEYS)
    mask[1, 0, 1] = False
    additive = np.where(mask, normal(*mask.shape), np.float32(-np.inf))
    expect("Attention", [*given()[:3], additive if softcap else mask], opset=24, softcap=softcap)


@pytest.mark.parametrize(
    "attributes", [{}, {"is_causal": 1}, {"left_window_size": 2, "right_window_size": 0}]
)
def test_keys_after_the_valid_ones_are_hidden(attributes: dict[str, Any]) -> None:
    valid = np.array([KEYS, 2], np.int64)
    mask = normal(HEADS, QUERIES, KEYS) if attributes else None
    expect("Attention", [*given()[:3], mask, None, None, valid], opset=25, **attributes)


@pytest.mark.parametrize(("left", "right", "past"), [(1, -1, 0), (-1, 1, 2), (0, 0, 0), (2, 1, 2)])
def test_window(left: int, right: int, past: int) -> None:
    expect("Attention", given(past=past), opset=25, left_window_size=left, right_window_size=right)


def test_probabilities_in_double() -> None:
    expect("Attention", given(), opset=23, softmax_precision=11)


def test_attention_without_heads_is_refused() -> None:
    model = one_node("Attention", given(3), opset=23)
    with pytest.raises(InvalidIR, match="q_num_heads is 0; it divides the last dimension of 2x3x32xf32"):
        aicf.compile(model)


@pytest.mark.parametrize(
    ("interleaved", "turned", "rank", "positions"),
    [(0, 0, 4, True), (1, 4, 4, False), (0, 4, 3, False), (1, 0, 3, True)],
)
def test_rotary_embedding(interleaved: int, turned: int, rank: int, positions: bool) -> None:
    x = normal(2, HEADS, 3, SIZE) if rank == 4 else normal(2, 3, HEADS * SIZE)
    pairs = (turned or SIZE) // 2
    caches = (
        [normal(10, pairs), normal(10, pairs)] if positions else [normal(2, 3, pairs), normal(2, 3, pairs)]
    )
    position_ids = [RNG.integers(0, 10, (2, 3))] if positions else []
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": turned}
    expect(
        "RotaryEmbedding",
        [x, *caches, *position_ids],
        opset=23,
        **attributes,
        **({"num_heads": HEADS} if rank == 3 else {}),
    )
