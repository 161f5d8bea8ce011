"""Rows with gaps: the meaning stays, the kernels that need them run, and decisions can be taken out and asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.reference.interpreter import run_module
from aicf.dialects.emit import ProgramOp, ResolvedOp, ViewOp, buffer_of, find_ledger
from aicf.errors import PolicyError
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from tests.gpu.programs import random_arrays
from tests.passes.test_pipeline_prefixes import assert_close
from tests.passes.test_raise_emit import stripped

TARGET = "cuda:sm_90a"


def head(rows: int = 4096, words: int = 50257, width: int = 768, dtype: str = "bf16") -> Graph:
    """Scores of words, which no row has a multiple of 16 bytes of, and a product with what follows from them."""
    g = Graph("head")
    table = g.param("table", (words, width), dtype)
    scores = g.matmul(g.input("x", (rows, width), dtype), table, transpose_b=True, name="scores")
    g.output(g.matmul(g.softmax(scores, name="likely"), table, name="back"), "y")
    return g


def compiled(graph: Graph, policy: str = "", target: str = TARGET) -> ModuleOp:
    """The final program."""
    module = graph.module().clone()
    run(AicfInferencePass(target, policy).passes(), make_context(), module)
    return module


def told(module: ModuleOp) -> list[Any]:
    ledger = find_ledger(module)
    assert ledger is not None
    return [decision for decision in ledger.decisions if decision.pass_name.data == "select-pitches"]


def kernels(module: ModuleOp) -> dict[str, str]:
    return {
        op.instruction.data: op.kernel.kernel.data
        for op in module.walk()
        if isinstance(op, ResolvedOp) and op.kernel is not None
    }


def test_a_product_gets_the_kernel_that_needs_them() -> None:
    module = compiled(head())
    assert kernels(module)["back"] == "cuda.gemm_wgmma"
    assert kernels(compiled(head(), "{layouts: {'*': row_major}}"))["back"] == "cuda.gemm_mma"
    (program,) = (op for op in module.walk() if isinstance(op, ProgramOp))
    strides = {
        buffer_of(view.results[0]).get_strides()
        for view in program.walk()
        if isinstance(view, ViewOp) and buffer_of(view.results[0]).get_shape() == (4096, 50257)
    }
    assert strides == {(50264, 1)}


def test_what_may_be_overwritten_has_gaps_too() -> None:
    module = compiled(head())
    assert [decision.subjects.data[0].data for decision in told(module)] == ["scores", "likely"]
    (program,) = (op for op in module.walk() if isinstance(op, ProgramOp))
    assert program.arena_bytes is not None
    assert program.arena_bytes.value.data == 4096 * 50264 * 2


@pytest.mark.parametrize(("rows", "words"), [(64, 101), (65, 1003), (3, 17)])
@pytest.mark.parametrize("name", ["likely", "'*'"])
def test_the_meaning_stays(rows: int, words: int, name: str) -> None:
    graph = head(rows, words, 64, "f16")
    policy = f"{{layouts: {{{name}: pitched}}, fusion: {{attention: false, norm: false, prologue: false}}}}"
    feeds = random_arrays(graph.module(), f"pitches {rows} {words}")
    module = compiled(graph, policy)
    assert told(module)
    expected = run_module(graph.module(), feeds, "exact")
    assert_close(expected, run_module(module, feeds, "exact"), 10.0, policy)


def test_nothing_happens_where_rows_fit_or_it_does_not_pay() -> None:
    assert not told(compiled(head(words=50264)))
    assert not told(compiled(head(rows=16, words=33, width=64)))
    assert not told(compiled(head(rows=64, words=101, width=64, dtype="f32"), target="cpu:x86-64-v3"))


def test_decisions_can_be_taken_out() -> None:
    module = compiled(head())
    policy = decisions_of(module)
    assert policy.kernel.layouts == {"*": "row_major", "likely": "pitched", "scores": "pitched"}
    assert stripped(compiled(head(), policy.to_line())) == stripped(module)


def test_a_raised_program_has_them_again() -> None:
    module = compiled(head())
    first = stripped(module)
    RaiseEmitPass().apply(make_context(), module)
    run(AicfInferencePass(start="lowered").passes(), make_context(), module)
    assert stripped(module) == first


def test_a_policy_for_what_is_no_candidate() -> None:
    with pytest.raises(
        PolicyError,
        match=r"layouts\.back: no group of that name has results whose rows may be pitched.*likely",
    ):
        compiled(head(), "{layouts: {back: pitched}}")


def reshaped(batch: int, words: int) -> Graph:
    """Scores of the words of a batch of rows, which what follows reads as one matrix."""
    g = Graph("reshaped")
    table = g.param("table", (words, 768), "bf16")
    scores = g.matmul(g.input("x", (batch, 512, 768), "bf16"), table, transpose_b=True, name="scores")
    flat = g.reshape(scores, (batch * 512, words))
    g.output(g.softmax(flat, name="likely"), "y")
    return g


def test_reshapes_of_whole_rows_are_no_obstacle() -> None:
    """A product that scores 50,257 words stores 16 bytes at once if its rows allow that."""
    assert [decision.subjects.data[0].data for decision in told(compiled(reshaped(8, 50257)))] == ["scores"]
    graph, policy = reshaped(2, 101), "{layouts: {scores: pitched}, fusion: {norm: false}}"
    feeds = random_arrays(graph.module(), "reshaped pitches")
    module = compiled(graph, policy)
    assert told(module)
    assert_close(run_module(graph.module(), feeds, "exact"), run_module(module, feeds, "exact"), 10.0, policy)


def test_several_dimensions() -> None:
    """A batch of products: rows of every matrix have gaps."""
    g = Graph("batch")
    x, y = g.input("x", (4, 512, 64), "f16"), g.input("y", (4, 64, 1001), "f16")
    scores = g.softmax(g.matmul(x, y, name="scores"), name="likely")
    g.output(g.matmul(scores, g.input("z", (4, 1001, 256), "f16"), name="back"), "out")
    policy = "{layouts: {likely: pitched}, fusion: {attention: false}}"
    module = compiled(g, policy)
    feeds = random_arrays(g.module(), "batch of pitches")
    assert np.prod([4, 512, 1008]) in {
        buffer_of(op.results[0]).element_count
        for op in module.walk()
        if isinstance(op, ViewOp)
        for op in [op.operands[0].owner]
    }
    assert_close(run_module(g.module(), feeds, "exact"), run_module(module, feeds, "exact"), 10.0, "batch")
