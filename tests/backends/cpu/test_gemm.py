"""The GEMM emitter against float64 NumPy: every way to fetch B, every kind of tail, strides, batches, threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.pack.template import Packer
from aicf.backends.cpu.families.gemm.schedule import GemmProblem, GemmSpec, check, propose
from aicf.backends.cpu.families.gemm.template import GemmPointers, Tile, emit_gemm
from aicf.backends.cpu.target import ACCUMULATORS, LEVELS, CpuLevel
from tests.backends.cpu.harness import NUMPY, Function, Poisoned, runnable_levels, undefined_symbols

Array = NDArray[Any]
V4_OR_BEST = runnable_levels()[-2] if len(runnable_levels()) > 1 else runnable_levels()[0]


def storing(target: Value, problem: GemmProblem):
    """An epilogue that writes the sums to a contiguous [batch..., m, n] array."""

    def epilogue(em: Emitter, tile: Tile) -> None:
        base: Value = em.index(0)
        for index, size in zip(tile.batch, problem.batch, strict=True):
            base = em.b.add(em.b.mul(base, em.index(size)), index)
        base = em.b.mul(base, em.index(problem.m * problem.n))
        for r, values in enumerate(tile.acc):
            row = em.b.mul(em.b.add(tile.row, em.index(r)), em.index(problem.n))
            line = em.address(target, em.b.add(base, em.b.add(row, tile.col)), problem.dtype)
            for j, value in enumerate(values):
                em.store(
                    value,
                    em.address(line, j * tile.lanes, problem.dtype),
                    problem.dtype,
                    tile.lanes,
                    tile.active[j],
                )

    return epilogue


def gemm(spec: GemmSpec, level: CpuLevel) -> Function:
    return Function(level, 4, emitter(spec))


def gemm_code(spec: GemmSpec, level: CpuLevel) -> bytes:
    """The object code alone, for levels that this machine need not run."""
    return Function.compile_only(level, 4, emitter(spec))


def emitter(spec: GemmSpec) -> Callable[..., None]:
    def emit(
        em: Emitter, a: Value, b: Value, c: Value, workspace: Value, tid: Value, nthreads: Value
    ) -> None:
        emit_gemm(
            em, spec, GemmPointers(a, (b,), workspace, tid, nthreads), lambda _: storing(c, spec.problem)
        )

    return emit


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    if dtype[0] in "iu":
        return rng.integers(-1000, 1000, shape).astype(NUMPY[dtype])
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def pack(b: Array, nr: int) -> Array:
    """What `Packer` must give, in NumPy."""
    k, n = b.shape
    panels = -(-n // nr)
    padded = np.zeros((k, panels * nr), b.dtype)
    padded[:, :n] = b
    return np.ascontiguousarray(padded.reshape(k, panels, nr).transpose(1, 0, 2))


def pack_pairs(b: Array, nr: int) -> Array:
    """The same of two rows side by side as one, the second of zeros where there is none."""
    even = np.concatenate([b, np.zeros((len(b) % 2, b.shape[1]), b.dtype)])
    columns = pack(even, nr)
    pairs = columns.reshape(len(columns), -1, 2, columns.shape[2])
    return np.ascontiguousarray(pairs.swapaxes(2, 3))


def check_product(spec: GemmSpec, level: CpuLevel, a: Array, b: Array, b_operand: Array) -> None:
    """Runs `spec` on all its threads, one after the other, and compares with NumPy."""
    p = spec.problem
    out = Poisoned((*p.batch, p.m, p.n), p.dtype)
    workspace = Poisoned((spec.workspace_bytes,), "i1", margin=256)
    function = gemm(spec, level)
    for tid in range(spec.threads):
        function(a, b_operand, out.array, workspace.array, tid=tid, nthreads=spec.threads)
    out.check()
    workspace.check()
    if p.dtype.startswith("i"):
        np.testing.assert_array_equal(
            out.array, np.matmul(a.astype(out.array.dtype), b.astype(out.array.dtype))
        )
        return
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    scale = np.matmul(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64)))
    assert (np.abs(out.array - exact) <= (p.k + 2) * np.finfo(NUMPY[p.dtype]).eps * scale).all()


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "f16", "bf16", "i8", "u8", "i16"])
@pytest.mark.parametrize("source", ["packed", "packed narrow", "direct", "workspace"])
def test_sources_and_types(source: str, dtype: str, level: CpuLevel) -> None:
    """Sums are wider than what is multiplied; panels packed ahead hold either type. Short integers go in pairs."""
    rng = np.random.default_rng(1)
    sums = ACCUMULATORS[dtype]
    lanes = level.lanes(sums)
    m, n, k = 7, 2 * lanes + 3, 13
    a, b = random((m, k), dtype, rng), random((k, n), dtype, rng)
    problem = GemmProblem(sums, m, n, k, (k, 1), (n, 1), a_type=dtype, b_type=dtype)
    how, _, narrow = source.partition(" ")
    b_source: Any = how
    spec = GemmSpec(problem, lanes, 3, 2, b_source=b_source, b_panel_type=dtype if narrow else "")
    if problem.pairs and source == "direct":
        assert check(spec) == "pairs of rows of B are packed, not read in place"
        return
    elements = b if narrow else b.astype(NUMPY[problem.wide_element])
    panels = (pack_pairs if problem.pairs else pack)(elements, spec.nr)
    check_product(spec, level, a, b, panels if how == "packed" else b)


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 20),
    n=st.integers(1, 70),
    k=st.integers(1, 40),
    mr=st.integers(1, 6),
    nv=st.integers(1, 3),
    split=st.sampled_from([1, 2, 3, 4, 8]),
    blocks=st.integers(0, 3),
    group=st.integers(1, 3),
    source=st.sampled_from(["packed", "direct", "workspace"]),
    threads=st.integers(1, 3),
    partition=st.sampled_from(["rows", "columns"]),
    dtype=st.sampled_from(["f32", "f16", "bf16"]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_decision(
    m: int,
    n: int,
    k: int,
    mr: int,
    nv: int,
    split: int,
    blocks: int,
    group: int,
    source: Any,
    threads: int,
    partition: Any,
    dtype: str,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    a, b = random((m, k), dtype, rng), random((k, n), dtype, rng)
    problem = GemmProblem("f32", m, n, k, (k, 1), (n, 1), a_type=dtype, b_type=dtype)
    partition = "none" if threads == 1 else "columns" if source == "workspace" else partition
    lanes = V4_OR_BEST.lanes("f32")
    grouped = source == "workspace" and blocks == 0 and dtype == problem.dtype
    spec = GemmSpec(
        problem,
        lanes,
        mr,
        nv,
        k_split=split,
        b_source=source,
        group=group if grouped else 1,
        mc=blocks * mr,
        partition=partition,
        threads=threads,
        tile_buffer=seed % 2 == 0,
        b_panel_type=dtype if source == "packed" else "",
    )
    assert check(spec) is None
    check_product(spec, V4_OR_BEST, a, b, pack(b, spec.nr) if source == "packed" else b)


@pytest.mark.parametrize("source", ["direct", "workspace"])
def test_strided_operands_and_batches(source: Any) -> None:
    rng = np.random.default_rng(3)
    stored_a = random((2, 3, 11, 9), "f32", rng)
    stored_b = random((3, 11, 37), "f32", rng)
    a, b = stored_a.swapaxes(2, 3), stored_b
    problem = GemmProblem("f32", 9, 37, 11, (1, 9), (37, 1), (2, 3), (3 * 99, 99), (0, 11 * 37))
    spec = GemmSpec(problem, V4_OR_BEST.lanes("f32"), mr=4, nv=2, b_source=source)
    check_product(spec, V4_OR_BEST, a, b, stored_b)


def test_streamed_weight_is_prefetched() -> None:
    """One row of A: B is read once, and fetched ahead of what is read; fetching past its end harms nothing."""
    rng = np.random.default_rng(6)
    level, k, n = V4_OR_BEST, 768, 768
    ((_, spec),) = propose(GemmProblem("f32", 1, n, k, (k, 1), (1, k)), level, "packed", count=1)
    assert spec.prefetch_ahead and spec.prefetch_lines * 64 == spec.k_step * spec.nr * 4
    a, b = random((1, k), "f32", rng), random((k, n), "f32", rng)
    check_product(spec, level, a, b, pack(b, spec.nr))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_transposed_b_is_packed_in_workspace(dtype: str) -> None:
    rng = np.random.default_rng(4)
    lanes = V4_OR_BEST.lanes(dtype)
    for k in (lanes - 1, lanes, 3 * lanes + 5):
        stored = random((41, k), dtype, rng)
        a = random((5, k), dtype, rng)
        spec = GemmSpec(GemmProblem(dtype, 5, 41, k, (k, 1), (1, k)), lanes, mr=5, nv=2, b_source="workspace")
        check_product(spec, V4_OR_BEST, a, stored.T, stored)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("columns,width", [(1, 16), (10, 16), (64, 32), (33, 32), (47, 24)])
def test_pack(columns: int, width: int, transposed: bool) -> None:
    rng = np.random.default_rng(5)
    level, k = V4_OR_BEST, 21
    b = random((columns, k), "f32", rng).T if transposed else random((k, columns), "f32", rng)
    strides = (1, k) if transposed else (columns, 1)
    out = Poisoned((packed_elements(k, columns, width),), "f32")

    def emit(em: Emitter, source: Value, target: Value, *_: Value) -> None:
        packer = Packer(em, "f32", "f32", level.lanes("f32"), k, width, strides)
        packer.matrix(columns, source, target)

    stored = np.ascontiguousarray(b.T) if transposed else b
    Function(level, 2, emit)(stored, out.array)
    out.check()
    np.testing.assert_array_equal(out.array, pack(b, width).ravel())


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize(
    "shape", [(1, 128, 64), (1, 10, 64), (32, 64, 128), (540, 10, 64), (128, 512, 2048), (3, 1, 1)]
)
def test_proposals_are_legal_and_ordered(shape: tuple[int, int, int], level: str) -> None:
    m, n, k = shape
    found = propose(GemmProblem("f32", m, n, k, (k, 1), (n, 1)), LEVELS[level], "packed")
    assert found
    for predicted, spec in found:
        assert check(spec) is None and predicted > 0
        assert spec.mr * spec.nv * spec.k_split < LEVELS[level].registers
    assert [predicted for predicted, _ in found] == sorted(predicted for predicted, _ in found)


def test_long_a_is_fetched_once_for_each_group_of_panels() -> None:
    square = GemmProblem("f32", 1024, 1024, 1024, (1024, 1), (1024, 1))
    ((_, spec),) = propose(square, LEVELS["x86-64-v4"], "workspace", count=1)
    assert spec.group > 1 and spec.workspace_bytes == spec.group * spec.panel_elements * 4 <= 1 << 20
    assert spec.combination_order == "ascending k"
    short = replace(square, m=128)
    assert all(spec.group == 1 for _, spec in propose(short, LEVELS["x86-64-v4"], "workspace"))


@pytest.mark.parametrize(
    "decisions,reason",
    [
        ({"b_source": "direct"}, "rows are not contiguous"),
        ({"b_source": "packed", "group": 2}, "groups of panels"),
    ],
)
def test_contradictory_spec_is_refused(decisions: dict[str, Any], reason: str) -> None:
    problem = GemmProblem("f32", 4, 16, 4, (4, 1), (1, 4))
    spec = GemmSpec(problem, 16, mr=2, nv=1, **decisions)
    with pytest.raises(ValueError, match=reason):
        gemm(spec, LEVELS["x86-64-v4"])


@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_every_level_compiles_without_undefined_symbols(level: CpuLevel) -> None:
    problem = GemmProblem("f32", 9, 37, 11, (11, 1), (37, 1))
    spec = GemmSpec(problem, level.lanes("f32"), mr=4, nv=2, b_source="direct", threads=2, partition="rows")

    def emit(em: Emitter, a: Value, b: Value, c: Value, w: Value, tid: Value, nthreads: Value) -> None:
        emit_gemm(em, spec, GemmPointers(a, (b,), w, tid, nthreads), lambda _: storing(c, problem))

    assert undefined_symbols(Function.compile_only(level, 4, emit)) == []
