"""Casts of parameters by one instruction: a step in bf16 is what it was, on every target, and raised again the same."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf import Graph
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from tests.passes.test_raise_emit import stripped

RATE = 0.25
SHAPES = {"a.weight": (12, 16), "a.bias": (12,), "b.weight": (5, 12)}


def network() -> Graph:
    """Two layers in bf16 of parameters in f32."""
    graph = Graph("casts")
    x = graph.input("x", (8, 16), "bf16")
    low = {
        name: graph.cast(graph.param(name, shape), "bf16", name=f"{name}.low")
        for name, shape in SHAPES.items()
    }
    h = graph.relu(graph.linear(x, low["a.weight"], low["a.bias"], name="a"), name="h")
    graph.output(graph.cast(graph.linear(h, low["b.weight"], name="b"), "f32"), "y")
    return graph


def values() -> dict[str, NDArray[np.float32]]:
    """Parameters drawn."""
    random = np.random.default_rng(1)
    return {name: random.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}


def trained(start: dict[str, NDArray[np.float32]], x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """One step of gradient descent on the mean square, in float64, in place."""
    low = {name: value.astype(ml_dtypes.bfloat16).astype(np.float64) for name, value in start.items()}
    h = x @ low["a.weight"].T + low["a.bias"]
    active = np.maximum(h, 0)
    out = active @ low["b.weight"].T
    d_out = 2 * (out - y) / out.size
    d_h = (d_out @ low["b.weight"]) * (h > 0)
    gradients = {"b.weight": d_out.T @ active, "a.weight": d_h.T @ x, "a.bias": d_h.sum(0)}
    for name, gradient in gradients.items():
        start[name] = (start[name] - RATE * gradient).astype(np.float32)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_step_with_its_casts_in_one_instruction(target: str) -> None:
    """Parameters against float64, within what bf16 rounds; the ledger says what became one."""
    start = values()
    step = aicf.train_step(network(), "mse", aicf.optimizers.SGD(RATE), weights=start, target=target)
    casts = next(d for d in step.executable.decisions if d.made_by == "fuse-casts")
    assert {f"{name}.low" for name in SHAPES} >= set(casts.subjects) and len(casts.subjects) > 1
    random = np.random.default_rng(2)
    x = random.standard_normal((8, 16)).astype(ml_dtypes.bfloat16)
    y = random.standard_normal((8, 5)).astype(np.float32)
    step(x, y)
    wanted = dict(start)
    trained(wanted, x.astype(np.float64), y.astype(np.float64))
    found = step.state_dict()
    for name, value in wanted.items():
        change = np.abs(value - start[name]).max()
        np.testing.assert_allclose(found[name], value, atol=0.03 * change, rtol=0, err_msg=name)


TEXT = """
func.func @f(
    %x : tensor<8x16xbf16> {logical.name = "x", logical.role = "input"},
    %a : tensor<16x16xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<16x12xf32> {logical.name = "b", logical.role = "param"})
    -> (tensor<8x12xbf16> {logical.name = "y"}, tensor<16x16xf32> {logical.updates = "a"},
        tensor<16x12xf32> {logical.updates = "b"}) {
  %a.low = logical.cast %a : tensor<16x16xf32> -> tensor<16x16xbf16>
  %h = logical.matmul %x, %a.low : (tensor<8x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %b.low = logical.cast %b : tensor<16x12xf32> -> tensor<16x12xbf16>
  %y = logical.matmul %h, %b.low : (tensor<8x16xbf16>, tensor<16x12xbf16>) -> tensor<8x12xbf16>
  %a.new = logical.neg %a : tensor<16x16xf32>
  %b.new = logical.neg %b : tensor<16x12xf32>
  func.return %y, %a.new, %b.new : tensor<8x12xbf16>, tensor<16x16xf32>, tensor<16x12xf32>
}
"""


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90a"])
def test_a_raised_step_is_the_same_again(target: str) -> None:
    """The policy lists both casts as one group, wherever it is cut again."""
    module = parse_module(TEXT)
    AicfTrainingPass(target).apply(make_context(), module)
    first = stripped(module)
    assert first.count('emit.resolved "update"') == 2
    RaiseEmitPass().apply(make_context(), module)
    AicfInferencePass(start="lowered").apply(make_context(), module)
    assert stripped(module) == first
