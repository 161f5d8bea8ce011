"""The caller's passes at extension points: they run where they should, are checked, and are recorded."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

import aicf
from aicf.compilation.extensions import POINTS
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, ProgramOp
from aicf.dialects.onnx import GraphOp

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def network() -> aicf.Graph:
    graph = aicf.Graph("network")
    x = graph.input("x", ("n", 8))
    graph.output(graph.relu(graph.linear(x, graph.param("w", (8, 8)), name="fc"), name="act"), "y")
    return graph


WEIGHTS = {"w": np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)}
PRODUCT = X.astype(np.float64) @ WEIGHTS["w"].astype(np.float64).T


@dataclass(frozen=True)
class Seen(ModulePass):
    """Writes down which ops there are, and changes nothing."""

    name = "test-seen"

    log: list[set[str]] = field(default_factory=list[set[str]], init=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.log.append({inner.name for inner in op.walk()})


@dataclass(frozen=True)
class Smooth(ModulePass):
    """Puts an activation for `relu`, `scale` times over."""

    name = "test-smooth"

    times: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(op.walk()):
            if isinstance(inner, logical.ReluOp):
                ops = [logical.TanhOp(inner.operands[0])]
                while len(ops) < self.times:
                    ops.append(logical.TanhOp(ops[-1].results[0]))
                Rewriter.replace_op(inner, ops)


@dataclass(frozen=True)
class Broken(ModulePass):
    """Breaks the program in one of several ways."""

    name = "test-broken"

    how: str = "types"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.how == "raises":
            raise KeyError("nothing there")
        for inner in list(op.walk()):
            if isinstance(inner, logical.ReluOp) and self.how == "types":
                smaller = logical.ReduceSumOp(inner.operands[0], [1])
                Rewriter.replace_op(inner, smaller)
            elif isinstance(inner, logical.ReluOp):
                inner.attributes["kernel"] = StringAttr("mine")
            elif isinstance(inner, ProgramOp) and self.how == "undecided":
                inner.attributes.clear()
                next(iter(inner.instructions)).properties.pop("kernel")


def onnx_network() -> bytes:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="act"), helper.make_node("Neg", ["a"], ["y"])]
    graph = helper.make_graph(
        nodes, "net", [info("x", TensorProto.FLOAT, ["n", 8])], [info("y", TensorProto.FLOAT, ["n", 8])]
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("kind", ["graph", "onnx", "training"])
def test_a_pass_that_changes_nothing_changes_nothing(kind: str, target: str) -> None:
    """At every point it runs once, sees the program of that stage, and the program is the same to the last byte."""
    seen = {point: Seen() for point in POINTS}
    passes = [aicf.at(point, each) for point, each in seen.items()]
    if kind == "training":
        options: dict[str, Any] = {"weights": WEIGHTS, "target": target, "dims": "n=3"}
        baseline = aicf.train_step(network(), "mse", aicf.optimizers.AdamW(0.1), **options).executable
        ours = aicf.train_step(
            network(), "mse", aicf.optimizers.AdamW(0.1), passes=passes, **options
        ).executable
    else:
        model = network() if kind == "graph" else onnx_network()
        weights = WEIGHTS if kind == "graph" else None
        baseline, ours = (
            aicf.compile(model, weights, target, dims="n=2,3", passes=given) for given in ((), passes)
        )
        np.testing.assert_array_equal(ours(X), baseline(X))
    assert ours.ir("emit") == baseline.ir("emit") and ours.decisions == baseline.decisions
    assert all(len(each.log) == 1 for each in seen.values())
    ops = {point: each.log[0] for point, each in seen.items()}
    assert (GraphOp.name in ops["model"]) == (kind == "onnx")
    assert (GraphOp.name not in ops["static"] and "logical.dispatch" in ops["static"]) or kind == "training"
    assert ("logical.linear" in ops["static"]) == (kind != "onnx")
    assert "logical.linear" not in ops["lowered"] and GroupOp.name not in ops["lowered"]
    assert GroupOp.name in ops["grouped"] and ProgramOp.name not in ops["grouped"]
    assert ProgramOp.name in ops["emit"] and ProgramOp.name in ops["final"]


@pytest.mark.parametrize("point", ["model", "static", "lowered"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_pass_changes_the_program(point: str, target: str) -> None:
    exe = aicf.compile(network(), WEIGHTS, target, dims="n=3", passes=[aicf.at(point, Smooth(times=2))])
    np.testing.assert_allclose(exe(X), np.tanh(np.tanh(PRODUCT)), rtol=1e-5, atol=1e-6)
    assert exe.ir("test-smooth").count("logical.tanh") == 2
    assert "logical.relu" not in exe.ir("lowered") and "logical.relu" in exe.ir("logical")


def test_passes_run_in_their_order() -> None:
    first, second = Seen(), Seen()
    passes = [
        aicf.at("lowered", first, Smooth()),
        aicf.at("lowered", second),
        aicf.at("final", "verify-emit"),
    ]
    exe = aicf.compile(network(), WEIGHTS, "reference", dims="n=3", passes=passes)
    assert "logical.relu" in first.log[0] and "logical.tanh" in second.log[0]
    np.testing.assert_allclose(exe(X), np.tanh(PRODUCT), rtol=1e-5, atol=1e-6)


def test_passes_by_name_and_options() -> None:
    """Options are read as in a pipeline, and every form is recorded in one way."""
    by_name = aicf.at("model", "fold-constants,logical-cse", 'set-target{target="reference:typed"}')
    assert [each.text for each in by_name] == [
        "model=fold-constants",
        "model=logical-cse",
        'model=set-target{target="reference:typed"}',
    ]
    exe = aicf.compile(network(), WEIGHTS, "reference", dims="n=3", passes=[by_name])
    assert exe.record.options.passes == tuple(each.text for each in by_name)
    assert [each.text for each in aicf.at("emit", Smooth(3))] == ["emit=test-smooth{times=3}"]


@pytest.mark.parametrize(
    ("point", "how", "message"),
    [
        (
            "lowered",
            "types",
            "after pass 'test-broken' at extension point 'lowered': .*returns tensor",
        ),
        ("static", "words", "after pass 'test-broken' at extension point 'static': .*kernel"),
        ("emit", "undecided", "after pass 'test-broken' at extension point 'emit': "),
        ("final", "undecided", "after pass 'test-broken' at extension point 'final': "),
        ("model", "raises", "pass 'test-broken' failed: KeyError: 'nothing there'"),
    ],
)
def test_a_pass_that_breaks_the_program(point: str, how: str, message: str) -> None:
    with pytest.raises(aicf.AicfError, match=message) as caught:
        aicf.compile(network(), WEIGHTS, "cpu", dims="n=3", passes=[aicf.at(point, Broken(how))])
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Unwritable(ModulePass):
    """Has an option that no text can say."""

    name = "test-unwritable"

    table: dict[str, int] = field(default_factory=lambda: {"a": 1})

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: aicf.at("lower", Seen()),
            "no extension point 'lower'; did you mean 'lowered'.*",
        ),
        (
            lambda: aicf.at("nowhere", Seen()),
            "no extension point 'nowhere'; .*legal: emit, final",
        ),
        (lambda: aicf.at("lowered", Seen), "the class Seen is no pass; give an object"),  # type: ignore[arg-type]
        (lambda: aicf.at("lowered", 3), "a int is no pass"),  # type: ignore[arg-type]
        (lambda: aicf.at("lowered", "logical-cs"), "unknown pass 'logical-cs'; did you mean 'logical-cse'"),
        (lambda: aicf.at("lowered", "fold-constants{nope=1}"), "pass 'fold-constants' has no option"),
        (
            lambda: aicf.at("lowered", Unwritable({"b": 2})),
            "text cannot say what Unwritable is; a pass is a dataclass",
        ),
        (lambda: aicf.at("lowered", Broken('a "word"')), "text cannot say what Broken is"),
    ],
)
def test_what_is_no_pass_at_a_point(make: Any, message: str) -> None:
    with pytest.raises(aicf.PolicyError, match=message):
        make()


@pytest.mark.parametrize("passes", ["lowered", [Seen()], ["lowered=logical-cse"], 3])
def test_what_names_no_point(passes: Any) -> None:
    for make in (aicf.compile, aicf.InferenceSession):
        with pytest.raises(
            aicf.PolicyError, match="names no extension point; write passes=.* model, static, low"
        ):
            make(network(), WEIGHTS, passes=passes)


def test_points_that_a_program_is_past(tmp_path: Path) -> None:
    exe = aicf.compile(network(), WEIGHTS, "reference", dims="n=3")
    emit = exe.ir("emit")
    message = "test-seen: this program is past extension point 'lowered'; it comes by emit, final"
    with pytest.raises(aicf.PolicyError, match=message):
        aicf.compile(emit, WEIGHTS, passes=[aicf.at("lowered", Seen())])
    seen = Seen()
    again = aicf.compile(emit, WEIGHTS, passes=[aicf.at("final", seen)])
    assert len(seen.log) == 1 and again.ir("emit") == emit
    exe.save(tmp_path / "model.aicf")
    with pytest.raises(aicf.PolicyError, match="passes= has no effect on a compiled model"):
        aicf.InferenceSession(tmp_path / "model.aicf", passes=[aicf.at("lowered", Seen())])


def test_an_artifact_records_passes(tmp_path: Path) -> None:
    """What it does not need them for works without; its stages need them."""
    exe = aicf.compile(network(), WEIGHTS, "cpu", dims="n=3", passes=[aicf.at("lowered", Smooth(2))])
    exe.save(tmp_path / "model.aicf")
    for native in ("use", "rebuild"):
        loaded = aicf.load(tmp_path / "model.aicf", native)
        assert loaded.record.options.passes == ("lowered=test-smooth{times=2}",)
        np.testing.assert_array_equal(loaded(X), exe(X))
        with pytest.raises(aicf.PolicyError, match="unknown pass 'test-smooth'"):
            loaded.ir("lowered")
    own = aicf.compile(network(), WEIGHTS, "cpu", dims="n=3", passes=[aicf.at("model", "logical-cse")])
    own.save(tmp_path / "own.aicf")
    assert aicf.load(tmp_path / "own.aicf").ir("lowered") == own.ir("lowered")


PASS_FILE = """
from dataclasses import dataclass
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from aicf.dialects import logical

@dataclass(frozen=True)
class Other(ModulePass):
    name = "test-other"
    unused: int = 0

    def apply(self, ctx, op):
        for inner in list(op.walk()):
            if isinstance(inner, logical.ReluOp):
                Rewriter.replace_op(inner, logical.OPOp(inner.operands[0]))
"""


def other_pass(path: Path, name: str, op: str) -> Any:
    """A pass in a file of its own."""
    path.write_text(PASS_FILE.replace("OP", op, 1))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.Other


def test_a_session_and_its_cache(tmp_path: Path) -> None:
    """An entry is found by names, options and files of passes."""
    cache = tmp_path / "cache"

    def made(*passes: Any) -> tuple[str, Any]:
        with aicf.InferenceSession(network(), WEIGHTS, cache_dir=cache, passes=passes) as session:
            y = session.run([X])["y"]
            (event,) = session.report.of("compiled", "loaded")
            return event.what, y

    tanh = other_pass(tmp_path / "other.py", "other_one", "Tanh")
    for wanted in ("compiled", "loaded"):
        what, y = made(aicf.at("lowered", tanh()))
        assert what == wanted
        np.testing.assert_allclose(y, np.tanh(PRODUCT), rtol=1e-5, atol=1e-6)
    assert made(aicf.at("lowered", tanh(unused=1)))[0] == "compiled"
    assert made(aicf.at("static", tanh()))[0] == "compiled"
    assert made()[0] == "compiled"
    changed = other_pass(tmp_path / "other.py", "other_two", "Sigmoid")
    what, y = made(aicf.at("lowered", changed()))
    assert what == "compiled"
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-PRODUCT)), rtol=1e-5, atol=1e-6)


def test_a_pass_in_no_file_cannot_be_cached(tmp_path: Path) -> None:
    path = tmp_path / "gone.py"
    gone = other_pass(path, "other_gone", "Tanh")
    path.unlink()
    passes = [aicf.at("lowered", gone())]
    with aicf.InferenceSession(network(), WEIGHTS, passes=passes) as session:
        np.testing.assert_allclose(session.run([X])["y"], np.tanh(PRODUCT), rtol=1e-5, atol=1e-6)
    with pytest.raises(aicf.PolicyError, match="Other is defined in no file.* leave cache_dir= out"):
        aicf.InferenceSession(network(), WEIGHTS, passes=passes, cache_dir=tmp_path)
