"""Properties of the logical passes that hold for every program: identity, determinism, settling, specialisation."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp, NameLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.dialects import logical
from aicf.dialects.logical import ConstantOp, ExpOp, LogicalOp, NegOp, ReshapeOp
from aicf.errors import AicfError, PolicyError
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context, parse_module
from aicf.passes.logical.logical_canonicalize import PATTERNS
from aicf.passes.logical.specialize_shapes import SpecializeShapesPass, parse_dims
from aicf.passes.pipelines.text import parse_pipeline
from aicf.passes.support.greedy import apply_patterns
from aicf.passes.support.identity import IdTable, derived_id, op_id, sources
from aicf.semantics import evaluate_block
from aicf.universe import AICF_UNIVERSE
from tests.support.random_graphs import random_program, run_program

PIPELINE = (
    "assign-ids,logical-canonicalize,fold-constants,logical-cse,logical-dce,specialize-shapes,lower-logical,"
    "fold-transposes,logical-canonicalize,logical-cse,logical-dce"
)


def run_pipeline(module: ModuleOp, pipeline: str = PIPELINE) -> None:
    context = make_context()
    for step in parse_pipeline(pipeline, AICF_UNIVERSE.all_passes):
        step.apply(context, module)


def logical_ops(module: ModuleOp) -> list[LogicalOp]:
    return [op for op in module.walk() if isinstance(op, LogicalOp)]


@pytest.mark.parametrize("seed", range(25))
def test_identity_survives(seed: int) -> None:
    module = parse_module(str(random_program(seed).module), "model.mlir")
    run_pipeline(module, "assign-ids")
    original = {op_id(op) for op in logical_ops(module)}
    run_pipeline(module)
    ids = [op_id(op) for op in logical_ops(module)]
    assert None not in ids and len(set(ids)) == len(ids)
    for op in logical_ops(module):
        assert sources(op) and set(sources(op)) <= original
        assert isinstance(op.location, FileLineColLoc) and op.location.filename.data == "model.mlir"


@pytest.mark.parametrize("seed", range(10))
def test_the_pipeline_is_deterministic(seed: int) -> None:
    texts = set()
    for _ in range(2):
        module = random_program(seed).module
        run_pipeline(module)
        texts.add(str(module))
    assert len(texts) == 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "name", ["assign-ids", "logical-canonicalize", "logical-cse", "logical-dce", "lower-logical"]
)
def test_a_second_run_changes_nothing(name: str, seed: int) -> None:
    module = random_program(seed).module
    run_pipeline(module, name)
    first = str(module)
    run_pipeline(module, name)
    assert str(module) == first


@pytest.mark.parametrize("seed", range(25))
def test_lowered_ir_is_primitive(seed: int) -> None:
    module = random_program(seed).module
    run_pipeline(module)
    assert not [op.name for op in logical_ops(module) if op.has_trait(logical.Composite)]


def test_an_explicit_name_keeps_its_position() -> None:
    module = parse_module(
        "func.func @f(%x : tensor<4xf32>) -> tensor<4xf32> {\n"
        '  %0 = logical.gelu %x : tensor<4xf32> loc("act")\n'
        "  func.return %0 : tensor<4xf32>\n}",
        "model.mlir",
    )
    run_pipeline(module, "assign-ids,lower-logical")
    for op in logical_ops(module):
        assert sources(op) == ("act",)
        assert isinstance(op.location, NameLoc) and isinstance(op.location.location, FileLineColLoc)
        assert op.location.location.line.data == 2


def test_derived_ids() -> None:
    assert derived_id("fc1", "matmul") == "fc1.matmul"
    assert derived_id("fc1@N=1,M=2", "bias.broadcast") == "fc1.bias.broadcast@N=1,M=2"
    module = ModuleOp([])
    ids = IdTable(module)
    assert [ids.fresh("a") for _ in range(3)] == ["a", "a_1", "a_2"]
    assert ids.fresh("a_1") == "a_1_1"


class Flip(RewritePattern):
    """Turns every op of one class into the other: two of them never settle."""

    def __init__(self, wanted: type[ExpOp | NegOp]) -> None:
        self.wanted = wanted

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        rewriter.replace(op, self.wanted(op.operands[0]))


def test_patterns_that_undo_each_other_are_an_error() -> None:
    graph = Graph("g")
    graph.output(graph.exp(graph.input("x", (2,))), "y")
    module = graph.module()
    with pytest.raises(AicfError, match="rewriting did not settle after 16 rewrites, last at logical"):
        apply_patterns(module, {ExpOp: (Flip(NegOp),), NegOp: (Flip(ExpOp),)})


class MergeReshapeOnce(RewritePattern):
    """Leaves the inner reshape without users."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        inner = op.operands[0].owner
        if isinstance(op, ReshapeOp) and isinstance(inner, ReshapeOp):
            rewriter.replace(op, ReshapeOp(inner.operand, op.info.sizes))


def test_the_driver_removes_nothing_on_its_own() -> None:
    graph = Graph("g")
    x = graph.input("x", (2, 3))
    graph.output(graph.reshape(graph.reshape(x, (6,)), (3, 2)), "y")
    module = graph.module()
    assert apply_patterns(module, {ReshapeOp: (MergeReshapeOnce(),)}) == 1
    assert len(logical_ops(module)) == 2


def test_the_number_of_rewrites_grows_with_the_program() -> None:
    def rewrites(length: int) -> int:
        graph = Graph("g")
        value = graph.input("x", (2, 3))
        for _ in range(length):
            value = graph.neg(graph.neg(graph.reshape(graph.reshape(value, (6,)), (2, 3))))
        graph.output(value, "y")
        module = graph.module()
        return apply_patterns(module, PATTERNS)

    assert rewrites(200) <= 2 * rewrites(100) + 10


def symbolic_program() -> ModuleOp:
    graph = Graph("f")
    x = graph.input("x", ("N", 4))
    w = graph.param("w", (3, 4))
    hidden = graph.softmax(graph.linear(x, w))
    doubled = graph.concat([hidden, hidden], 0)
    graph.output(graph.reduce_mean(doubled, [1]), "y")
    graph.output(graph.reshape(x, ("4*N",)), "flat")
    return graph.module()


def test_specialised_programs_compute_what_the_symbolic_one_means() -> None:
    module = symbolic_program()
    run_pipeline(module, "assign-ids")
    SpecializeShapesPass("N=1,5").apply(Context(), module)
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    assert list(functions) == ["f@N=1", "f@N=5"]
    random = np.random.default_rng(0)
    w = random.normal(size=(3, 4))
    for size in (1, 5):
        x = random.normal(size=(size, 4))
        scores = np.exp(x @ w.T)
        hidden = scores / scores.sum(axis=1, keepdims=True)
        y, flat = evaluate_block(functions[f"f@N={size}"].body.block, [x, w], "exact")
        np.testing.assert_allclose(y, np.concatenate([hidden, hidden]).mean(axis=1), rtol=1e-12)
        np.testing.assert_array_equal(flat, x.ravel())


def test_dims_are_read_strictly() -> None:
    assert parse_dims("") == {}
    assert parse_dims(" N = 1, 32 ; M=4 ") == {"N": (1, 32), "M": (4,)}
    for text in (
        "N",
        "N=",
        "=1",
        "N=a",
        "N=-1",
        "N=1,",
        "N=1 2",
        "N=1,2=1",
        "2=1",
        "N=1;3",
        "N=,M=1",
        "N==1",
    ):
        with pytest.raises(PolicyError, match="dims: cannot read"):
            parse_dims(text)


def test_a_comma_may_end_the_sizes_of_a_dimension() -> None:
    assert parse_dims("batch=1,3,seq=17") == {"batch": (1, 3), "seq": (17,)}
    assert parse_dims("a=1 , b=2,3 ; c=4,d=5") == {"a": (1,), "b": (2, 3), "c": (4,), "d": (5,)}
    with pytest.raises(PolicyError, match="dims: 'N=3' repeats a name"):
        parse_dims("N=1,M=2,N=3")


def test_folding_is_invisible_at_any_precision() -> None:
    """0.1 + 0.2 of f32 is not folded, for rounding to f32 shows; 0.5 + 0.25 is."""
    graph = Graph("g")
    tenths = graph.add(graph.constant(0.1, (2,)), graph.constant(0.2, (2,)))
    exact = graph.add(graph.constant(0.5, (2,)), graph.constant(0.25, (2,)))
    graph.output(tenths, "tenths")
    graph.output(exact, "exact")
    module = graph.module()
    before = run_program(module, {})
    run_pipeline(module, "fold-constants,logical-dce")
    after = run_program(module, {})
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert sum(isinstance(op, ConstantOp) for op in logical_ops(module)) == 3
    assert len(logical_ops(module)) == 4
