"""cuDNN's attention without a GPU: which work is legal, and that a record is the call that does it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, f64

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.attention.cudnn.codegen import emit
from aicf.backends.cuda.families.attention.cudnn.kernel import AttentionCudnnKernel
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import attribute_of, json_value
from tests.backends.cuda import cudnn_model
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.test_attention import attention, bert, packed
from tests.support.record_checks import record_reason

TARGET = TargetAttr("cuda", "sm_90a")
KERNEL = AttentionCudnnKernel()


def shared(batch: int, rows: int, groups: int, heads: int, size: int) -> OperandInfo:
    """``[batch, groups, heads, rows, size]``: the heads of a group share what ``[batch, groups, rows, size]`` has."""
    strides = (groups * rows * size, rows * size, 0, size, 1)
    return OperandInfo("temp", (batch, groups, heads, rows, size), "f16", strides)


def whole(*shape: int) -> OperandInfo:
    """Row-major."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return OperandInfo("temp", shape, "f16", tuple(strides))


WORKS: dict[str, Workload] = {
    "one matrix": attention([whole(7, 8), whole(9, 8), whole(9, 16)], whole(7, 16)),
    "heads": attention([whole(3, 7, 8), whole(3, 9, 8), whole(3, 9, 8)], whole(3, 7, 8)),
    "packed heads": attention([packed(2, 7, 3, 8)] * 3, packed(2, 7, 3, 8)),
    "causal": attention([packed(2, 7, 3, 8)] * 3, packed(2, 7, 3, 8), past=0),
    "causal, one query": attention(
        [whole(2, 3, 1, 8), whole(2, 3, 9, 8), whole(2, 3, 9, 8)], whole(2, 3, 1, 8), past=8
    ),
    "causal, later": attention(
        [whole(2, 3, 4, 8), whole(2, 3, 9, 8), whole(2, 3, 9, 8)], whole(2, 3, 4, 8), past=5
    ),
    "shared keys": attention(
        [whole(2, 3, 4, 5, 8), shared(2, 9, 3, 4, 8), shared(2, 9, 3, 4, 8)], whole(2, 3, 4, 5, 8)
    ),
    "keys of one head": attention(
        [whole(2, 4, 5, 8), *[replace(whole(2, 4, 9, 8), strides=(72, 0, 8, 1))] * 2], whole(2, 4, 5, 8)
    ),
    "three batch dims": attention([whole(2, 3, 4, 5, 8)] * 3, whole(2, 3, 4, 5, 8), scale=-0.3),
}


def attended(work: Workload, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The meaning of the work, query by query."""
    scale, past = json_value(work.attrs["scale"]), json_value(work.attrs["past"])
    is_causal = json_value(work.attrs["causal"])
    assert isinstance(scale, float) and isinstance(past, int)
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    for place in np.ndindex(*q.shape[:-1]):
        *batch, query = place
        seen = query + past + 1 if is_causal else k.shape[-2]
        scores = k[(*batch, slice(seen))] @ q[place] * scale
        weights = np.exp(scores - scores.max())
        y[place] = weights / weights.sum() @ v[(*batch, slice(seen))]
    return y


@pytest.mark.parametrize("name", WORKS)
def test_a_record_is_the_call_that_does_the_work(name: str) -> None:
    """By cuDNN's rules, on random data: heads that share keys, and which key a query sees last."""
    work = WORKS[name]
    assert KERNEL.legal(work, TARGET) is None
    record = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    (call,) = emit(launch_of(work, KERNEL.id, record))
    rng = np.random.default_rng(3)
    own = {name: rng.standard_normal(each.shape) for name, each in zip("qkv", work.operands, strict=True)}
    # What is repeated holds one value.
    for key, operand in zip("qkv", work.operands, strict=True):
        for dim, stride in enumerate(operand.strides):
            if stride == 0:
                own[key] = np.repeat(own[key].take([0], dim), operand.shape[dim], dim)
    stored = {
        key: own[key][tuple(slice(1) if step == 0 else slice(None) for step in each.strides)]
        for key, each in zip("qkv", work.operands, strict=True)
    }
    result = cudnn_model.run(cudnn_model.node_of(call), stored)
    wanted = attended(work, own["q"], own["k"], own["v"])
    np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-12)


def test_heads_that_share_keys_are_not_repeated() -> None:
    record = KERNEL.record(WORKS["shared keys"], TARGET)
    assert json_value(record["q"]) == {"sizes": [6, 4, 5, 8], "strides": [160, 40, 8, 1]}
    assert json_value(record["k"]) == {"sizes": [6, 1, 9, 8], "strides": [72, 72, 8, 1]}


X = packed(2, 100, 3, 64)
MASK = OperandInfo("const", (2, 1, 1, 100), "f16", (100, 0, 0, 1))


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (bert(dtype="f32"), "cudnn is given f16, bf16, all operands alike; here are f32"),
        (attention([X, X, X, MASK], X), "no mask but a causal one"),
        (attention([X, X, X], X, past=3), "here the first sees 4 of 100, and there are 100 queries"),
        (attention([X, X, X], X, past=-1), "here the first sees 0 of 100"),
        (attention([packed(2, 9, 3, 264)] * 3, packed(2, 9, 3, 264)), "a query has 264 elements"),
        (attention([packed(2, 9, 3, 12)] * 3, packed(2, 9, 3, 12)), "a query has 12 elements"),
        (attention([replace(X, offset=4), X, X], X), "tensors that start at multiples of 16 bytes"),
        (
            attention([replace(X, strides=(19200, 64, 1, 192)), X, X], X),
            "rows of the queries are not neighbours",
        ),
        (replace(bert(), rounding="strict"), "the policy wants them rounded"),
        (
            attention([replace(whole(2, 3, 4, 8), strides=(0, 32, 8, 1)), *[whole(2, 3, 4, 8)] * 2], X),
            "steps evenly over a batch and over heads",
        ),
    ],
)
def test_what_cudnn_is_not_given_has_a_reason(work: Workload, reason: str) -> None:
    assert reason in str(KERNEL.legal(work, TARGET))


def test_probabilities_that_would_be_nan_are_not_hidden() -> None:
    work = bert()
    flagged = replace(work, attrs={**work.attrs, "nan_as_zero": BoolAttr.from_bool(True)})
    assert "cudnn keeps probabilities that are NaN" in str(KERNEL.legal(flagged, TARGET))


def test_a_batch_that_steps_unevenly_is_refused() -> None:
    """No two dims of cuDNN's are these three."""
    q = replace(whole(2, 3, 4, 5, 8), strides=(5000, 1600, 200, 8, 1))
    k = replace(whole(2, 3, 4, 5, 8), strides=(480, 160, 1000, 8, 1))
    assert "steps evenly over a batch and over heads" in str(KERNEL.legal(attention([q, k, q], q), TARGET))


@pytest.mark.parametrize(
    ("entry", "value"), [("mask", "top_left"), ("scale", 0.25), ("barred_notes", []), ("dtype", "bf16")]
)
def test_an_edited_call_is_refused(entry: str, value: Any) -> None:
    work = bert()
    record = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    assert record_reason(KERNEL, work, record, TARGET) is None
    said = str(record_reason(KERNEL, work, {**record, entry: attribute_of(value)}, TARGET))
    assert f"its '{entry}' is {value}" in said


def test_what_is_not_seen_costs_nothing() -> None:
    work = bert(rows=4096)
    causal = replace(work, attrs={**work.attrs, "causal": BoolAttr.from_bool(True)})
    assert KERNEL.cost_us(causal, TARGET) < KERNEL.cost_us(work, TARGET)
    assert KERNEL.record(causal, TARGET)["scale"] == FloatAttr(0.125, f64)
