"""Attention's meaning against loops over queries, written here from the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import Block

from aicf.dialects import logical
from aicf.dialects.types import element_of_dtype, tensor
from aicf.semantics import evaluate

Array = np.ndarray


def attended(q: Array, k: Array, v: Array, scale: float, seen: Array, bias: Array) -> Array:
    """One head, query by query; `seen` and `bias` are ``[M, N]``."""
    rows: list[Array] = []
    for i, query in enumerate(q):
        keys = [j for j in range(len(k)) if seen[i, j]]
        weights = [math.exp(scale * math.fsum(query * k[j]) + bias[i, j]) for j in keys]
        rows.append(sum(weight * v[j] for weight, j in zip(weights, keys, strict=True)) / math.fsum(weights))
    return np.array(rows)


def run(op: logical.AttentionOp, *arrays: Array) -> Array:
    op.verify()
    (result,) = evaluate(op, list(arrays), "exact")
    return result


def values(*arrays: Array):
    return Block(arg_types=[tensor(array.shape, element_of_dtype(array.dtype)) for array in arrays]).args


@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.sampled_from([(), (2,)]),
    groups=st.integers(1, 2),
    repeats=st.integers(1, 3),
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    past=st.none() | st.integers(0, 3),
    mask=st.sampled_from(["none", "added", "flags"]),
    scale=st.none() | st.just(0.7),
)
def test_attention(seed, batch, groups, repeats, sizes, past, mask, scale) -> None:
    rng = np.random.default_rng(seed)
    m, n, d, e = sizes
    q = rng.uniform(-1, 1, (*batch, groups * repeats, m, d))
    k, v = rng.uniform(-1, 1, (*batch, groups, n, d)), rng.uniform(-1, 1, (*batch, groups, n, e))
    seen, bias = np.ones((m, n), bool), np.zeros((m, n))
    if mask == "flags":
        seen = rng.random((m, n)) < 0.6
        seen[:, 0] = True
    if mask == "added":
        bias = rng.uniform(-1, 1, (m, n))
    masks = {"none": [], "added": [bias], "flags": [seen.copy()]}[mask]
    op = logical.AttentionOp(*values(q, k, v, *masks), scale=scale, causal=past is not None, past=past or 0)
    if past is not None:
        seen = seen & (np.arange(n) <= np.arange(m)[:, None] + past)
    expected = np.empty((*batch, groups * repeats, m, e))
    for index in np.ndindex(*batch, groups * repeats):
        own = (*index[:-1], index[-1] // repeats)
        expected[index] = attended(q[index], k[own], v[own], scale or d**-0.5, seen, bias)
    np.testing.assert_allclose(run(op, q, k, v, *masks), expected, rtol=1e-12, atol=1e-12)


def test_a_query_that_sees_no_key_gives_nan() -> None:
    q = np.ones((1, 2, 3))
    seen = np.array([[True, False], [False, False]])
    result = run(logical.AttentionOp(*values(q, q, q, seen)), q, q, q, seen)
    assert np.isfinite(result[0, 0]).all() and np.isnan(result[0, 1]).all()


@pytest.mark.parametrize("kind", ["flags", "added"])
@pytest.mark.parametrize("past", [None, 0])
def test_a_query_that_sees_no_key_gives_zero_if_so_said(kind: str, past: int | None) -> None:
    """Others give what they give in any case, and NaN stays NaN."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.uniform(-1, 1, (2, size, 3)) for size in (4, 5, 5))
    seen = rng.random((4, 5)) < 0.6
    seen[:, 0], seen[2] = True, False
    q[1, 3, 0] = np.nan
    mask = seen if kind == "flags" else np.where(seen, 0.0, -np.inf)
    named = {"causal": past is not None, "past": past or 0}
    plain, zeros = (
        run(logical.AttentionOp(*values(q, k, v, mask), empty_as_zero=flag, **named), q, k, v, mask)
        for flag in (False, True)
    )
    assert np.isnan(plain[:, 2]).all() and (zeros[:, 2] == 0).all() and np.isnan(zeros[1, 3]).all()
    np.testing.assert_array_equal(plain[:, [0, 1, 3]], zeros[:, [0, 1, 3]])


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_the_result_has_the_type_of_the_queries(element: str) -> None:
    args = Block(arg_types=[tensor((2, 3, 4), element)] * 3).args
    assert logical.AttentionOp(*args).info.element.name == element
