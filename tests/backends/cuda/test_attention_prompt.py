"""A part of a prompt over a cache without a GPU: the text of the kernels on a simulated one against float64 NumPy,
which units of queries look at which tiles of keys, and the machine code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet, part, splice, stage
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention import template
from aicf.backends.cuda.families.attention.tensor import codegen as tensor_code
from aicf.backends.cuda.families.attention.tensor.kernel import CachedAttentionKernel
from aicf.backends.cuda.families.attention.tensor.schedule import AttentionSpec
from aicf.backends.cuda.families.attention.wgmma import codegen as wgmma_code
from aicf.backends.cuda.families.attention.wgmma import template as wgmma
from aicf.backends.cuda.families.attention.wgmma.kernel import CachedWgmmaKernel, Spec
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda import halves_simulator
from tests.backends.cuda.attention_simulator import run_attention
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run_cluster

Array = np.ndarray
TARGET = TargetAttr("cuda", "sm_90a", {})
MMA, WGMMA = CachedAttentionKernel(), CachedWgmmaKernel()
SCALE, SHARED = 0.25, 2
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def work(
    rows: int,
    capacity: int,
    size: int,
    dtype: str = "f16",
    heads: int = 1,
    shared: int = SHARED,
    window: int = 0,
    softcap: float = 0.0,
    integer: str = "i64",
    mask: bool = False,
) -> Workload:
    """Tokens with `heads * shared` heads, which lie by tokens; keys and values of `heads` heads do as well."""
    batch, every = (heads, shared), heads * shared * size
    query = OperandInfo("temp", (*batch, rows, size), dtype, (shared * size, size, every, 1))
    cache = OperandInfo("state", (*batch, capacity, size), dtype, (size, 0, heads * size, 1))
    position = OperandInfo("input", (*batch, rows, capacity), integer, (0, 0, 0, 0))
    masks = [OperandInfo("temp", (rows, capacity), "f32", (capacity, 1))] if mask else []
    flags = {
        name: BoolAttr.from_bool(name in ("causal", "position") or (mask and name == "mask"))
        for name in ("mask", "causal", "position", "nan_as_zero", "empty_as_zero")
    }
    attrs: Mapping[str, Attribute] = {
        "scale": FloatAttr(SCALE, f64),
        **flags,
        "past": IntegerAttr(0, i64),
        "window": IntegerAttr(window, i64),
        "softcap": FloatAttr(softcap, f64),
    }
    operands = (query, cache, cache, *masks, position)
    return Workload("prompt", "cached_attention", attrs, operands, (query,), Block(), None)


def launched(given: Workload, spec: AttentionSpec) -> KernelLaunch:
    (one,) = tensor_code.emit(launch_of(given, MMA.id, MMA.record_of(given, TARGET, spec)))
    return one


@pytest.mark.parametrize(
    ("dtype", "spec"),
    [
        ("f16", AttentionSpec(16, 16, 2, 1, 1)),
        ("bf16", AttentionSpec(16, 32, 2, 1, 2)),
        ("f16", AttentionSpec(16, 64, 1, 1, 1)),
    ],
    ids=["tiles", "warps", "one tile"],
)
@pytest.mark.parametrize("position", [0, 13, 32])
def test_tokens_see_what_comes_before_them(dtype: str, spec: AttentionSpec, position: int) -> None:
    """And no other: tiles after the last token are NaN where there are several."""
    rows, capacity, size, random = 9, 41, 16, np.random.default_rng(position)
    given = work(rows, capacity, size, dtype)
    q = random.standard_normal((rows, SHARED, size)).astype(DTYPES[dtype])
    caches = random.standard_normal((2, capacity, size)).astype(DTYPES[dtype])
    if capacity > spec.block_n:
        caches[:, -(-(position + 16) // spec.block_n) * spec.block_n :] = np.nan
    ins = [q, *caches, np.array([position], np.int64)]
    found = run_attention(launched(given, spec), ins, np.empty(q.shape, DTYPES[dtype]))
    error = 3e-3 if dtype == "f16" else 3e-2
    np.testing.assert_allclose(found.astype(np.float64), attended(q, caches, position), atol=error)


def attended(q: Array, caches: Array, position: int) -> Array:
    """In float64: each token [row, head, element] sees the keys up to its own, the first one up to `position`."""
    rows = len(q)
    k, v = (each[: position + rows].astype(np.float64) for each in caches)
    scores = np.einsum("ihd,nd->hin", q.astype(np.float64), k) * SCALE
    hidden = np.arange(position + rows) > np.arange(rows)[:, None] + position
    weights = np.exp(np.where(hidden, -np.inf, scores - scores.max(-1, keepdims=True)))
    return np.einsum("hin,nd->ihd", weights / weights.sum(-1, keepdims=True), v)


def test_warpgroups_see_what_comes_before_them() -> None:
    """Values of `cuda.cached_attention_wgmma` on simulated warpgroups; tiles after the last token are NaN."""
    rows, capacity, size, position, random = 5, 200, 64, 60, np.random.default_rng(3)
    q = random.standard_normal((rows, SHARED, size)).astype(np.float16)
    caches = random.standard_normal((2, capacity, size)).astype(np.float16)
    caches[:, 128:] = np.nan
    found = by_warpgroups(q, caches, position)
    np.testing.assert_allclose(found.astype(np.float64), attended(q, caches, position), atol=3e-3)
    # The last token alone: its heads, which share keys, are the queries of one unit, and get the bits of the prompt.
    alone = by_warpgroups(q[-1:], caches, position + rows - 1)
    assert alone.tobytes() == found[-1:].tobytes()


def by_warpgroups(q: Array, caches: Array, position: int) -> Array:
    """What `cuda.cached_attention_wgmma` computes of tokens [row, head, element], in tiles of 64 keys."""
    given = work(len(q), caches.shape[1], q.shape[-1])
    ins = [q, *caches, np.array([position], np.int64)]
    memory = Memory([*(each.nbytes for each in ins), q.nbytes])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    record = WGMMA.record_of(given, TARGET, Spec(groups=1, block_n=64, stages=2, turns=0))
    (launch,) = wgmma_code.emit(launch_of(given, WGMMA.id, record))
    assert launch.grid == (1 if len(q) == 1 else SHARED, 1, 1)
    halves_simulator.run([launch], memory)
    assert memory.written[-1].all()
    return memory.buffers[-1].view(np.float16).reshape(q.shape)


@pytest.mark.parametrize("positions", [(0, 700), (-5, 3), (1 << 40, -(1 << 40))])
def test_units_of_queries_end_at_the_tile_of_their_last_one(positions: tuple[int, int]) -> None:
    """Each unit of both batch elements is done once; a position that is out of range hides all keys, or none."""
    rows, capacity, blocks, block_m, block_n = 300, 1000, 3, 128, 64
    units = 2 * -(-rows // block_m)
    constants: dict[str, Any] = {
        "BATCH": (2,),
        "BEFORE": part(template.before),
        "BEFORE_BATCH": (8,),
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "CAUSAL": True,
        "COUNT": 2,
        "FILLED": True,
        "LAPS": -(-units // blocks),
        "LOAD_BEFORE": Snippet(("at",), (), "positions[at // 8]"),
        "M": rows,
        "N": capacity,
        "OFFSET": part(template.offset),
        "ONE_POSITION": False,
        "PAST": 0,
        "STEP": blocks,
        "TILES_M": -(-rows // block_m),
        "TILES_N": -(-capacity // block_n),
        "UNITS": units,
        "UNIT_OF": part(wgmma.unit_of),
    }
    done: dict[tuple[int, int], int] = {}

    def told(first: int, index: int, tiles: int, past: int) -> None:
        if tiles:
            assert (first, index) not in done
            done[first, index] = tiles

    text = stage(_probe, constants).replace("cuda.blockIdx.x", "block")
    run_cluster(text, blocks, 1, lambda rank, thread: (rank, 0), told=told, positions=positions)
    assert len(done) == units
    for (first, index), tiles in done.items():
        last = min(first + block_m - 1 + max(positions[index], -rows), capacity - 1)
        assert tiles == max(1, last // block_n + 1)


def _probe(block: Any, extra: Any) -> None:
    for lap in range(LAPS):  # noqa: F821 (a constant)
        first, index, tiles, past = splice(UNIT_OF, lap)  # noqa: F821
        told(first, index, tiles, past)  # noqa: F821


def test_machine_code_of_a_prompt_of_llama() -> None:
    """2,048 tokens of Llama 8B on tensor cores, and nothing is spilled."""
    given = work(2048, 4096, 128, "bf16", 8, 4)
    (one,) = wgmma_code.emit(launch_of(given, WGMMA.id, WGMMA.record(given, TARGET)))
    found = instructions(compile_kernels([one.code], "sm_90a")[one.code.symbol])
    assert not starting(found, SPILLS)
    assert any(name.startswith("HGMMA") for name in found)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (work(64, 256, 128), None),
        (work(64, 256, 128, window=20), "no window hides keys"),
        (work(64, 256, 128, softcap=3.0), "no score is capped here"),
        (work(64, 256, 128, mask=True), "a position and a mask are not read together"),
        (work(64, 256, 128, integer="i16"), "the position is i16, not i32 or i64"),
    ],
)
def test_legality_says_what_is_missing(given: Workload, reason: str | None) -> None:
    for kernel in (MMA, WGMMA):
        found = kernel.legal(given, TARGET)
        assert found is None if reason is None else found is not None and reason in found
