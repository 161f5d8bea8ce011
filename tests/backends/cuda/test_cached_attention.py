"""A step of a decoder over a cache without a GPU: the text of the kernel on a simulated one, against float64 NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.decode.codegen import emit
from aicf.backends.cuda.families.attention.decode.kernel import CachedStepKernel, Spec
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.attention_simulator import names, run_attention
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run

Array = np.ndarray
TARGET = TargetAttr("cuda", "sm_90a", {})
KERNEL = CachedStepKernel()
HEADS, SHARED, SIZE, SCALE = 2, 3, 32, 0.25
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def work(
    capacity: int, dtype: str = "f16", window: int = 0, integer: str = "i64", **more: Attribute
) -> Workload:
    """One token of `HEADS * SHARED` heads; keys and values of `HEADS` heads lie by tokens."""
    batch = (HEADS, SHARED)
    query = OperandInfo("temp", (*batch, 1, SIZE), dtype, (SHARED * SIZE, SIZE, SIZE, 1))
    cache = OperandInfo("state", (*batch, capacity, SIZE), dtype, (SIZE, 0, HEADS * SIZE, 1))
    position = OperandInfo("input", (*batch, 1, capacity), integer, (0, 0, 0, 0))
    attrs: Mapping[str, Attribute] = {
        "scale": FloatAttr(SCALE, f64),
        **{name: BoolAttr.from_bool(name in ("causal", "position")) for name in _FLAGS},
        "past": IntegerAttr(0, i64),
        "window": IntegerAttr(window, i64),
        "softcap": FloatAttr(0.0, f64),
        **more,
    }
    return Workload(
        "step", "cached_attention", attrs, (query, cache, cache, position), (query,), Block(), None
    )


_FLAGS = ("mask", "causal", "position", "nan_as_zero", "empty_as_zero")


def launched(given: Workload, spec: Spec) -> KernelLaunch:
    (one,) = emit(launch_of(given, KERNEL.id, KERNEL.record_of(given, TARGET, spec)))
    assert isinstance(one, KernelLaunch)
    return one


def expected(ins: Sequence[Array], position: int, window: int) -> Array:
    q, k, v = (each.astype(np.float64) for each in ins[:3])
    q = q.reshape(HEADS, SHARED, SIZE)
    k, v = (each.reshape(-1, HEADS, SIZE)[: position + 1].transpose(1, 0, 2) for each in (k, v))
    first = max(0, position + 1 - window) if window else 0
    scores = np.einsum("gsd,gnd->gsn", q, k[:, first:]) * SCALE
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("gsn,gnd->gsd", weights / weights.sum(-1, keepdims=True), v[:, first:])


@pytest.mark.parametrize(
    ("dtype", "spec", "window"),
    [("f16", Spec(1, 2), 0), ("bf16", Spec(2, 2), 0), ("f16", Spec(2, 2), 9), ("bf16", Spec(1, 2), 9)],
)
def test_keys_that_are_not_seen_are_not_loaded(dtype: str, spec: Spec, window: int) -> None:
    """Keys and values beyond the position, and before the window, are NaN here."""
    given, random = work(70, dtype, window), np.random.default_rng(window)
    launch = launched(given, spec)
    for position in (0, 40, 69):
        q = random.standard_normal((HEADS * SHARED, SIZE)).astype(DTYPES[dtype])
        k, v = random.standard_normal((2, 70, HEADS * SIZE)).astype(DTYPES[dtype])
        first = max(0, position + 1 - window) if window else 0
        for cache in (k, v):
            cache[position + 1 :] = cache[:first] = np.nan
        ins = [q, k, v, np.array([position], np.int64)]
        found = run_attention(launch, ins, np.empty((HEADS, SHARED, SIZE), DTYPES[dtype]))
        error = 2e-3 if dtype == "f16" else 2e-2
        np.testing.assert_allclose(found.astype(np.float64), expected(ins, position, window), atol=error)


def step(capacity: int, window: int) -> Workload:
    """One token of `HEADS` heads with keys of their own, which its row joins."""
    given = work(capacity, window=window)
    one = OperandInfo("temp", (HEADS, 1, SIZE), "f16", (SIZE, HEADS * SIZE, 1))
    state = OperandInfo("state", (HEADS, capacity, SIZE), "f16", (SIZE, HEADS * SIZE, 1))
    row = OperandInfo("input", (), "i64", ())
    position = OperandInfo("input", (HEADS, 1, capacity), "i64", (0, 0, 0))
    operands = one, state, state, row, one, one, position
    return replace(given, kind="cached_attention_step", operands=operands, results=(one, state, state))


@pytest.mark.parametrize(("position", "window"), [(5, 0), (21, 0), (39, 0), (21, 9)])
def test_a_state_that_is_copied_is_copied_whole(position: int, window: int) -> None:
    """Its rows that the token does not see, NaN here, are copied too, and count for nothing."""
    given, random = step(40, window), np.random.default_rng(position)
    q, new_k, new_v = random.standard_normal((3, HEADS, SIZE)).astype(np.float16)
    caches = random.standard_normal((2, 40, HEADS * SIZE)).astype(np.float16)
    first = max(0, position + 1 - window) if window else 0
    caches[:, position + 1 :] = caches[:, :first] = np.nan
    number = np.array([position], np.int64)
    ins = [q, *caches, number, new_k, new_v, number]
    memory = Memory([*(each.nbytes for each in ins), q.nbytes, *(each.nbytes for each in caches)])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    run([launched(given, Spec(2, 2))], memory, names)
    found, *copied = (buffer.view(np.float16) for buffer in memory.buffers[-3:])
    wanted = caches.copy()
    wanted[:, position] = new_k.reshape(-1), new_v.reshape(-1)
    np.testing.assert_array_equal(np.stack(copied).reshape(caches.shape), wanted)
    repeated = [np.repeat(q[:, None], SHARED, 1), *wanted]
    exact = expected(repeated, position, window)[:, 0]
    np.testing.assert_allclose(found.reshape(HEADS, SIZE).astype(np.float64), exact, atol=2e-3)


def test_registers_hold_all_of_a_long_cache() -> None:
    """2,048 positions, with nothing spilled and loads that a predicate guards."""
    given = work(2048, integer="i32")
    launch = launched(given, KERNEL.schedule(given, TARGET))
    found = instructions(compile_kernels([launch.code], "sm_90a")[launch.code.symbol])
    assert not starting(found, SPILLS)
    assert any(name.startswith("LDG.E.128") for name in found)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (work(64), None),
        (work(64, position=BoolAttr.from_bool(False)), "follow from no position"),
        (work(64, softcap=FloatAttr(2.0, f64)), "no score is capped here"),
        (work(64, integer="i16"), "the position is i16, not i32 or i64"),
    ],
)
def test_legality_says_what_is_missing(given: Workload, reason: str | None) -> None:
    found = KERNEL.legal(given, TARGET)
    assert found is None if reason is None else found is not None and reason in found
