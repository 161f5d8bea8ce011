"""Fused kinds on the CPU: products side by side, gates, rows before products, and attention, against float64.

First the emitters for any decision a spec may hold, then whole programs: with every fusion forced, and as priced.
"""

from __future__ import annotations

import json
from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import aicf
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.attention.schedule import AttentionProblem, AttentionSpec, Matrix, padded_row
from aicf.backends.cpu.families.attention.template import AttentionPointers, emit_attention
from aicf.backends.cpu.families.gemm.kernel import GemmKernel
from aicf.backends.cpu.families.gemm.schedule import GemmProblem, GemmSpec, check
from aicf.backends.cpu.families.gemm.template import Epilogue, GemmPointers, PointerTable, Tile, emit_gemm
from aicf.backends.cpu.target import ACCUMULATORS, check_host, host_level, level_named
from aicf.backends.reference.interpreter import run_module
from aicf.frontends.builder import Graph
from aicf.frontends.text import parse_module
from aicf.passes.fusion import forming as fusion
from tests.backends.cpu.harness import NUMPY, Function, Poisoned
from tests.backends.cpu.test_gemm import V4_OR_BEST, pack, random, storing
from tests.backends.cpu.test_random_programs import TOLERANCE, roles
from tests.passes.test_fused_products import kinds_of
from tests.support.fused_graphs import FAMILIES, FusedProgram, fused_program

Array = NDArray[Any]
PRODUCT_KINDS = ("gemm_multi", "gemm_gated", "norm_gemm", "norm_gated")


def forced(variant: str) -> str:
    """A policy that asks for the kernels of a variant wherever a fused kind could be, whatever that costs."""
    kernels = {kind: f"cpu.gemm_{variant}" for kind in PRODUCT_KINDS}
    own = {"attention": f"cpu.attention_{variant}", "gemm_norm": f"cpu.gemm_norm_{variant}"}
    return json.dumps({"kernels": {**kernels, **own}})


# Emitters


def check_sums(found: Array, exact: Array, scale: Array, k: int) -> None:
    """Every element within the error of a sum of `k` products and two more roundings."""
    assert (np.abs(found - exact) <= (k + 4) * np.finfo(found.dtype).eps * scale).all()


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 20),
    n=st.integers(1, 70),
    k=st.integers(1, 40),
    mr=st.integers(1, 5),
    nv=st.integers(1, 3),
    split=st.sampled_from([1, 2, 4]),
    blocks=st.integers(0, 3),
    source=st.sampled_from(["packed", "direct", "workspace"]),
    threads=st.integers(1, 3),
    partition=st.sampled_from(["rows", "columns"]),
    joined=st.booleans(),
    makes_rows=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_products_and_decision(
    m: int,
    n: int,
    k: int,
    mr: int,
    nv: int,
    split: int,
    blocks: int,
    source: Any,
    threads: int,
    partition: Any,
    joined: bool,
    makes_rows: bool,
    seed: int,
) -> None:
    """Three products, each stored or their sum; rows of A read, or made (doubled) in workspace."""
    rng = np.random.default_rng(seed)
    a = random((m, k), "f32", rng)
    bs = [random((k, n), "f32", rng) for _ in range(3)]
    sizes = ("f32", m, n, k, (k, 1), (n, 1))
    problem = GemmProblem(*sizes, products=3, joined=joined, makes_rows=makes_rows)
    spec = GemmSpec(
        problem,
        V4_OR_BEST.lanes("f32"),
        mr,
        nv,
        k_split=split,
        b_source=source,
        mc=blocks * mr,
        partition="none" if threads == 1 else "columns" if source == "workspace" else partition,
        threads=threads,
        tile_buffer=seed % 2 == 0,
    )
    assert check(spec) is None
    outs = Poisoned((1 if joined else 3, m, n), "f32")
    workspace = Poisoned((spec.workspace_bytes,), "i1", margin=256)

    def emit(em: Emitter, a: Value, b0: Value, b1: Value, b2: Value, c: Value, w: Value, *ids: Value) -> None:
        results = PointerTable(em, [em.address(c, i * m * n, "f32") for i in range(1 if joined else 3)])

        def epilogue_of(number: Value | None) -> Epilogue:
            return adding(results.at(number), problem) if joined else storing(results.at(number), problem)

        pointers = GemmPointers(None if makes_rows else a, (b0, b1, b2), w, *ids)
        emit_gemm(em, spec, pointers, epilogue_of, doubling(a, k) if makes_rows else None)

    function = Function(V4_OR_BEST, 6, emit)
    rights = [pack(b, spec.nr) if source == "packed" else b for b in bs]
    for tid in range(threads):
        function(a, *rights, outs.array, workspace.array, tid=tid, nthreads=threads)
    outs.check()
    workspace.check()
    left = a.astype(np.float64) * (2 if makes_rows else 1)
    exact = np.stack([left @ b.astype(np.float64) for b in bs])
    scale = np.stack([np.abs(left) @ np.abs(b).astype(np.float64) for b in bs])
    if joined:
        exact, scale = exact.sum(0, keepdims=True), scale.sum(0, keepdims=True)
    check_sums(outs.array, exact, scale, k)


def adding(target: Value, problem: GemmProblem) -> Epilogue:
    """Stores the sum of all joined products."""

    def epilogue(em: Emitter, tile: Tile) -> None:
        def total(row: int, vector: int) -> Value:
            first, *rest = tile.sums(em, row, vector)
            for value in rest:
                first = em.b.fadd(first, value)
            return first

        acc = [[total(r, j) for j in range(len(tile.active))] for r in range(len(tile.acc))]
        single = Tile(tile.batch, tile.row, tile.col, tile.lanes, tile.active, acc, tile.dtype)
        storing(target, problem)(em, single)

    return epilogue


def doubling(source: Value, k: int):
    """A row program that makes twice a row."""

    def rows(em: Emitter, block: Value, first: Value, end: Value, target: Value) -> None:
        def body(i: Value, _: list[Value]) -> list[Value]:
            read = em.moved(source, em.b.add(block, i), k, "f32")
            made = em.moved(target, i, k, "f32")

            def element(j: Value, _: list[Value]) -> list[Value]:
                value = em.load(em.address(read, j, "f32"), "f32", 1)
                em.store(em.b.fadd(value, value), em.address(made, j, "f32"), "f32", 1)
                return []

            em.loop(0, k, 1, [], element)
            return []

        em.loop(first, end, 1, [], body)

    return rows


@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from([(), (3,), (2, 3)]),
    m=st.integers(1, 20),
    n=st.integers(1, 70),
    d=st.integers(1, 20),
    dv=st.integers(1, 40),
    block=st.integers(1, 20),
    dtype=st.sampled_from(["f32", "f64", "f16", "bf16"]),
    source=st.sampled_from(["packed", "direct"]),
    threads=st.integers(1, 3),
    share=st.sampled_from(["batches", "rows"]),
    mask_shape=st.sampled_from([None, "all", "row", "column"]),
    seed=st.integers(0, 1000),
)
def test_any_attention_and_decision(
    batch: tuple[int, ...],
    m: int,
    n: int,
    d: int,
    dv: int,
    block: int,
    dtype: str,
    source: Any,
    threads: int,
    share: Any,
    mask_shape: str | None,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    q, k, v = (random((*batch, *shape), dtype, rng) for shape in ((m, d), (n, d), (n, dv)))
    mask = {"all": (m, n), "row": (1, n), "column": (m, 1), None: (1, 1)}[mask_shape]
    added = random((*batch, *mask), dtype, rng)
    wide = np.broadcast_to(added, (*batch, m, n))
    out = Poisoned((*batch, m, dv), dtype)
    given = [_matrix(array) for array in (q, k, v, out.array)]
    operands_of = (*given, None if mask_shape is None else _matrix(wide))
    types = {"operand_type": dtype, "mask_type": dtype}
    problem = AttentionProblem(ACCUMULATORS[dtype], batch, m, n, d, dv, *operands_of, **types)
    lanes = V4_OR_BEST.lanes(dtype)
    rows = min(block, m)
    scores = GemmSpec(problem.scores(rows), lanes, mr=3, nv=2)
    output = GemmSpec(problem.output(rows, padded_row(n, lanes)), lanes, mr=2, nv=2, b_source=source)
    spec = AttentionSpec(problem, rows, scores, output, share if threads > 1 else "none", threads)
    workspace = Poisoned((spec.workspace_bytes,), "i1", margin=256)

    def emit(em: Emitter, q: Value, k: Value, v: Value, x: Value, y: Value, w: Value, *ids: Value) -> None:
        pointers = AttentionPointers(q, k, v, None if problem.mask is None else x, y, w, *ids)
        emit_attention(em, spec, 0.375, pointers)

    function = Function(V4_OR_BEST, 6, emit)
    for tid in range(threads):
        function(q, k, v, added, out.array, workspace.array, tid=tid, nthreads=threads)
    out.check()
    workspace.check()
    exact = [array.astype(np.float64) for array in (q, k, v, wide)]
    logits = exact[0] @ exact[1].swapaxes(-1, -2) * 0.375 + (0.0 if mask_shape is None else exact[3])
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    tolerance = (d + n + 40) * np.finfo(NUMPY[problem.dtype]).eps * (1 + np.abs(logits).max())
    tolerance += float(ml_dtypes.finfo(NUMPY[dtype]).eps)
    assert (
        np.abs(out.array.astype(np.float64) - weights @ exact[2]).max() <= tolerance * np.abs(exact[2]).max()
    )


def _matrix(array: Array) -> Matrix:
    *batch, row, column = (step // array.itemsize for step in array.strides)
    return Matrix(tuple(batch), row, column)


# Whole programs


def run_native(program: FusedProgram, target: str, threads: int, policy: str | None, dtype: str) -> set[str]:
    """Runs a program twice and compares with the reference; gives the kinds of its instructions."""
    expected = run_module(program.module, program.inputs, "exact").outputs
    role_of = roles(program)
    weights = {name: array for name, array in program.inputs.items() if role_of[name] == "param"}
    inputs = {name: array for name, array in program.inputs.items() if role_of[name] == "input"}
    exe = aicf.compile(program.module, weights=weights, target=target, threads=threads, policy=policy)
    found, again = (_named(exe(inputs), expected) for _ in range(2))
    for name, wanted in expected.items():
        assert found[name].tobytes() == again[name].tobytes()
        scale = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(found[name].astype(np.float64) - wanted).max() <= TOLERANCE[dtype] * scale, name
    return kinds_of(parse_module(exe.ir("emit"), "compiled"))


def _named(found: Any, expected: dict[str, Array]) -> dict[str, Array]:
    if isinstance(found, dict):
        return found
    return dict(zip(expected, found if isinstance(found, tuple) else (found,), strict=True))


ON_CPU = {"attention_step": "attention"}
"""Kinds that cpu has no kernel for, to what it has: there instructions of their own write the rows."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_fusion_that_is_asked_for_forms(family: str) -> None:
    """Random layouts, odd sizes, every float type, on one and on several threads."""
    level = host_level().name.partition("+")[0]
    variant = {"x86-64-v4": "avx512", "x86-64-v3": "avx2"}.get(level, "portable")
    for seed, dtype in enumerate(("f64", "f32", "f16", "bf16", "f32", "f16")):
        program = fused_program(family, seed, dtype)
        kinds = run_native(program, "cpu", 1 + seed % 2, forced(variant), dtype)
        assert {ON_CPU.get(kind, kind) for kind in program.kinds} <= kinds, f"{family} seed {seed}"


@pytest.mark.parametrize(("level", "variant"), [("x86-64-v2", "portable"), ("x86-64-v3", "avx2")])
def test_lower_levels(level: str, variant: str) -> None:
    try:
        check_host(level_named(level))
    except aicf.BackendUnavailable as error:
        pytest.skip(str(error))
    for number, family in enumerate(FAMILIES):
        dtype = ("f32", "f16", "bf16")[number % 3]
        run_native(fused_program(family, 50 + number, dtype), f"cpu:{level}", 1, forced(variant), dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_as_priced(family: str) -> None:
    """Whatever the prices say, the answers are right."""
    for seed in range(3):
        run_native(fused_program(family, 70 + seed), "cpu", 1 + seed % 2, None, "f32")


def test_threads_give_the_same_bits() -> None:
    """Rows, gates and heads are divided among threads and never combined across them."""
    results: list[bytes] = []
    graph = Graph("block")
    x = graph.input("x", (48, 64), "f32")
    normal = graph.layer_norm(x, graph.param("s", (64,), "f32"), graph.param("t", (64,), "f32"))
    gate, up = (graph.matmul(normal, graph.param(name, (64, 96), "f32")) for name in ("g", "u"))
    hidden = graph.silu(gate) * up
    scores = graph.matmul(hidden, hidden, transpose_b=True) * 0.1
    graph.output(graph.matmul(graph.softmax(scores), hidden), "y")
    rng = np.random.default_rng(0)
    weights = {name: random(shape, "f32", rng) for name, shape in _SHAPES.items()}
    data = random((48, 64), "f32", rng)
    for threads in (1, 2, 3):
        policy = forced("portable")
        exe = aicf.compile(graph.module(), weights=weights, target="cpu", threads=threads, policy=policy)
        assert {"norm_gated", "attention"} <= kinds_of(parse_module(exe.ir("emit"), "compiled"))
        results += [np.asarray(exe(data)).tobytes() for _ in range(3)]
    assert len(set(results)) == 1


_SHAPES = {"s": (64,), "t": (64,), "g": (64, 96), "u": (64, 96)}


# Prices


def _gate(rows: int) -> FusedProgram:
    graph = Graph("gate")
    x = graph.input("x", (rows, 64), "f32")
    gate, up = (graph.matmul(x, graph.param(name, (64, 64), "f32")) for name in ("g", "u"))
    graph.output(graph.silu(gate) * up, "y")
    rng = np.random.default_rng(1)
    arrays = {"x": random((rows, 64), "f32", rng)}
    arrays |= {name: random((64, 64), "f32", rng) for name in ("g", "u")}
    return FusedProgram(graph.module(), arrays, {"gemm_gated"})


def test_a_fusion_that_costs_more_is_not_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger says both predicted times; a policy that asks for the kernel gets it all the same."""
    assert "gemm_gated" in run_native(_gate(8), "cpu:generic", 1, None, "f32")
    monkeypatch.setattr(
        GemmKernel, "unfused_us", lambda _, work, target: 1e-3 if work.kind == "gemm_gated" else inf
    )
    program = _gate(8)
    exe = aicf.compile(
        program.module, weights={n: program.inputs[n] for n in ("g", "u")}, target="cpu:generic"
    )
    text = exe.ir("emit")
    assert "us fused and 0.001 us unfused" in text
    assert "gemm_gated" not in kinds_of(parse_module(text, "compiled"))
    assert "gemm_gated" in run_native(_gate(8), "cpu:generic", 1, forced("portable"), "f32")


def test_a_target_without_such_kernels_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {
        name: kernel
        for name, kernel in fusion.get_kernels("cpu").items()
        if not {"gemm_gated", "norm_gated", "matmul_blocks_fused"} & kernel.kinds
    }
    monkeypatch.setattr(fusion, "get_kernels", lambda _: kernels)
    program = _gate(8)
    exe = aicf.compile(
        program.module, weights={n: program.inputs[n] for n in ("g", "u")}, target="cpu:generic"
    )
    assert "target cpu has no kernel of kind gemm_gated or norm_gated or matmul_blocks_fused" in exe.ir(
        "emit"
    )
