"""Programs that read at computed indices, native on this machine, against the semantics."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.codegen.ir_builder import I64, Emitter, ir
from aicf.backends.cpu.target import check_host, level_named
from tests.support.indexing_programs import PROGRAMS, built
from tests.support.random_graphs import run_program


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    assert found.shape == wanted.shape
    scale = max(1.0, float(np.max(np.abs(wanted.astype(np.float64)), initial=0.0)))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_read_by_index(name: str, dtype: str, level: str) -> None:
    """Vectors, tails, guards and every way to make an index; indices out of range as the op says."""
    try:
        check_host(level_named(level))
    except aicf.BackendUnavailable as error:
        pytest.skip(str(error))
    inputs = built(PROGRAMS[name], dtype)
    module = inputs.graph.module()
    exact = run_program(module, inputs.arrays)["y"]
    exe = aicf.compile(module, target=f"cpu:{level}")
    close(np.asarray(exe(inputs.arrays)), exact, 1e-5 if dtype == "f32" else 1e-12)


def test_large_reads_share_threads() -> None:
    """Two threads read a table of rows."""
    random = np.random.default_rng(3)
    graph = aicf.Graph("f")
    table, rows = graph.input("t", [50, 300]), graph.input("i", [400], "i32")
    graph.output(graph.gather(table, rows), "y")
    arrays = {
        "t": random.standard_normal((50, 300)).astype(np.float32),
        "i": random.integers(-50, 50, 400).astype(np.int32),
    }
    exe = aicf.compile(graph.module(), target="cpu", threads=2)
    assert "threads = 2" in exe.ir("emit")
    np.testing.assert_array_equal(exe(arrays), arrays["t"][arrays["i"]])


@pytest.mark.parametrize(("rows", "threads"), [(3, 1), (200, 2)])
def test_topk_of_a_program_with_two_threads(rows: int, threads: int) -> None:
    """Few rows are one thread's, many are shared."""
    x = np.random.default_rng(4).standard_normal((rows, 100)).astype(np.float32)
    graph = aicf.Graph("f")
    graph.output(graph.topk(graph.input("x", x.shape), 5)[1], "y")
    exe = aicf.compile(graph.module(), target="cpu", threads=2)
    assert f"smallest = false, threads = {threads} : i64" in exe.ir("emit")
    np.testing.assert_array_equal(exe(x), np.argsort(-x, 1, kind="stable")[:, :5])


def test_a_constant_of_a_body_is_scaled_as_a_number() -> None:
    """As an index of i64 it is a constant of LLVM that holds text."""
    module = ir.Module()
    em = Emitter(module, level_named("generic"), ir.Function(module, ir.FunctionType(I64, [I64]), "f"))
    assert str(em.scaled(em.const("i64", 1, 12), 10)).endswith("= mul i64 12, 10")
    assert em.scaled(em.index(12), 10).get_reference() == "120"
