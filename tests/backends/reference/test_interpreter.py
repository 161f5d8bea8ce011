"""The interpreter against NumPy, against itself at every stage, and on one arena in many orders."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.backends.reference.interpreter import Results, run_function, run_module, run_program
from aicf.dialects.emit import PHASES, symbols
from aicf.errors import InputMismatch, InvalidIR, PlanError
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import programs_of, read_graph
from tests.runtime.support import ADD_RELU, BUCKETS, COUNTER, add_relu, module_of, random, scale
from tests.support.random_graphs import random_program
from tests.support.topological_orders import is_graph_order, random_graph_order

RNG = np.random.default_rng(5)

FUNCTION = """
func.func @f(%x: tensor<3x4xf32> {logical.name = "x", logical.role = "input"},
             %w: tensor<5x4xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<3x5xf32> {logical.name = "y"}, tensor<5x4xf32> {logical.updates = "w"}) {
  %y = logical.matmul %x, %w {transpose_b} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
  %n = emit.group "n" from ["n"] ins(%a = %w : tensor<5x4xf32>) -> (tensor<5x4xf32>) {
    %r = logical.neg %a : tensor<5x4xf32>
    emit.yield %r : tensor<5x4xf32>
  }
  func.return %y, %n : tensor<3x5xf32>, tensor<5x4xf32>
}
"""


def same(one: Results, other: Results) -> bool:
    """Bitwise, names and order included."""
    pairs = [(one.outputs, other.outputs), (one.updates, other.updates)]
    return all(
        list(a) == list(b) and all(a[name].tobytes() == b[name].tobytes() for name in a) for a, b in pairs
    )


def test_functions_give_outputs_and_updates() -> None:
    x, w = random(RNG, 3, 4), random(RNG, 5, 4)
    results = run_module(module_of(FUNCTION), {"x": x, "w": w}, "exact")
    assert results.outputs["y"].dtype == np.float64
    np.testing.assert_allclose(
        results.outputs["y"], x.astype(np.float64) @ w.astype(np.float64).T, rtol=1e-15
    )
    np.testing.assert_array_equal(results.updates["w"], -w)
    typed = run_module(module_of(FUNCTION), {"x": x, "w": w}, "typed")
    assert typed.outputs["y"].dtype == np.float32
    np.testing.assert_allclose(typed.outputs["y"], x @ w.T, rtol=1e-5, atol=1e-5)


def test_functions_of_other_ops_are_refused() -> None:
    text = FUNCTION.replace("%y = logical", "%c = arith.constant 1 : i64\n  %y = logical")
    with pytest.raises(InvalidIR, match=r"arith.constant has no meaning of its own here"):
        run_module(module_of(text), {"x": random(RNG, 3, 4), "w": random(RNG, 5, 4)}, "exact")


@pytest.mark.parametrize("mode", ["exact", "typed"])
def test_programs_follow_views(mode: str) -> None:
    x, b = random(RNG, 4, 6), random(RNG, 6)
    results = run_module(module_of(ADD_RELU), {"x": x, "b": b}, mode)
    assert list(results.outputs) == ["y", "z"] and not results.updates
    for name, wanted in zip("yz", add_relu(x, b), strict=True):
        np.testing.assert_allclose(results.outputs[name], wanted, rtol=1e-6, atol=1e-7)
    assert results.outputs["y"].dtype == (np.float64 if mode == "exact" else np.float32)


def test_exact_arithmetic_does_not_round() -> None:
    x = np.full((4, 6), 1e-9, np.float32)
    results = run_module(module_of(ADD_RELU), {"x": x, "b": np.ones(6, np.float32)}, "exact")
    np.testing.assert_array_equal(results.outputs["z"], 2 * (1 + x.astype(np.float64)))


def test_in_place_updates() -> None:
    w, x = random(RNG, 3), random(RNG, 3)
    before = w.copy()
    results = run_module(module_of(COUNTER), {"x": x, "w": w}, "typed")
    np.testing.assert_array_equal(results.updates["w"], w + x)
    np.testing.assert_array_equal(w, before)
    assert not results.outputs


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("mode", ["exact", "typed"])
def test_buckets_constants_and_prepared_weights(count: int, mode: str) -> None:
    x, m, w = random(RNG, count, 2), random(RNG, count, 2), random(RNG, 2)
    results = run_module(module_of(BUCKETS), {"x": x, "m": m, "w": w}, mode)
    np.testing.assert_allclose(results.outputs["y"], scale(x, m, w), rtol=1e-6, atol=1e-6)


def test_feeds_that_do_not_fit() -> None:
    module = module_of(BUCKETS)
    with pytest.raises(InputMismatch, match=r"0 of the programs \(scale@N=1, scale@N=5\) take x: \[3, 2\]"):
        run_module(module, {name: random(RNG, 3, 2) for name in ("x", "m")}, "typed")
    with pytest.raises(InputMismatch, match="'b' is not given; given: x"):
        run_module(module_of(ADD_RELU), {"x": random(RNG, 4, 6)}, "typed")
    with pytest.raises(InputMismatch, match=r"'b': expected shape \[6\], got \[5\]"):
        run_module(module_of(ADD_RELU), {"x": random(RNG, 4, 6), "b": random(RNG, 5)}, "typed")


def test_programs_that_cannot_run() -> None:
    feeds = {"x": random(RNG, 4, 6), "b": random(RNG, 6)}
    with pytest.raises(PlanError, match="instruction 'act' has no body to run"):
        run_module(module_of(ADD_RELU.replace("body(@act.body)", "")), feeds, "typed")
    with pytest.raises(PlanError, match="the order given is not a permutation of its instructions"):
        run_module(module_of(ADD_RELU), feeds, "typed", order=["sum", "act"])
    with pytest.raises(PlanError, match="a byte arena needs mode 'typed' and phase 'planned' or later"):
        run_module(module_of(ADD_RELU), feeds, "exact", arena=True)


def test_a_poisoned_arena_shows_a_missing_write() -> None:
    x, b = random(RNG, 4, 6), random(RNG, 6)
    right = run_module(module_of(ADD_RELU), {"x": x, "b": b}, "typed", arena=True)
    np.testing.assert_array_equal(right.outputs["y"], add_relu(x, b)[0])
    wrong = run_module(
        module_of(ADD_RELU), {"x": x, "b": b}, "typed", arena=True, order=["act", "sum", "twice"]
    )
    assert np.isnan(wrong.outputs["y"]).all()
    np.testing.assert_array_equal(wrong.outputs["z"], add_relu(x, b)[1])


def magnitude(results: Results) -> float:
    arrays = [*results.outputs.values(), *results.updates.values()]
    return max([1.0, *(float(np.abs(array).max()) for array in arrays if array.dtype.kind == "f")])


def assert_equal_meaning(got: Results, wanted: Results) -> None:
    """Within 1e-12 of the largest magnitude; integers exactly."""
    for ours, theirs in ((got.outputs, wanted.outputs), (got.updates, wanted.updates)):
        assert sorted(ours) == sorted(theirs)
        for name, array in theirs.items():
            np.testing.assert_allclose(
                ours[name], array, rtol=0, atol=1e-12 * magnitude(wanted), err_msg=name
            )


@pytest.mark.parametrize("seed", range(12))
def test_every_stage_means_the_same(seed: int) -> None:
    """The whole pipeline to the reference backend, run after each pass; then one arena in several orders, bitwise."""
    program = random_program(seed)
    module, feeds = program.module, program.inputs
    wanted = run_module(module, feeds, "exact")
    context = make_context()
    for step in AicfInferencePass(target="reference:typed", policy="{streams: 3}", training=True).passes():
        step.apply(context, module)
        assert_equal_meaning(run_module(module, feeds, "exact"), wanted)
    (final,) = (program for program in programs_of(module) if program.sym_name.data != "prepare")
    assert final.phase.data == PHASES[-1]
    graph = read_graph(final)
    typed = run_program(module, final, feeds, "typed")
    assert same(run_program(module, final, feeds, "typed", arena=True), typed)
    for order_seed in range(5):
        order = random_graph_order(graph, order_seed)
        assert is_graph_order(graph, order)
        assert same(run_program(module, final, feeds, "typed", arena=True, order=order), typed)


def test_functions_can_be_run_by_themselves() -> None:
    module = module_of(FUNCTION)
    function = symbols(module)["f"]
    feeds = {"x": random(RNG, 3, 4), "w": random(RNG, 5, 4)}
    assert same(run_function(function, feeds, "typed"), run_module(module, feeds, "typed"))
