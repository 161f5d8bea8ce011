"""The reference backend as an executor, through the same runtime as every other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aicf.backends.reference.backend import BodyKernel, ReferenceBackend
from aicf.backends.registry import get_backend, get_kernels, resolve_target
from aicf.dialects.kinds import KINDS
from aicf.errors import PolicyError
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime import Executable
from aicf.runtime.plan_from_ir import code_units, read_module, target_of
from aicf.support.dataclass_json import to_json_value
from tests.runtime.support import random, read_plan

RNG = np.random.default_rng(3)

MLP = """
func.func @mlp(%x: tensor<?x8xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"},
               %w: tensor<6x8xf32> {logical.name = "w", logical.role = "param"},
               %b: tensor<6xf32> {logical.name = "b", logical.role = "param"})
    -> (tensor<?x6xf32, #logical.dims<["N", ""]>> {logical.name = "y"}) {
  %h = logical.linear %x, %w, %b
      : (tensor<?x8xf32, #logical.dims<["N", ""]>>, tensor<6x8xf32>, tensor<6xf32>)
      -> tensor<?x6xf32, #logical.dims<["N", ""]>>
  %y = logical.softmax %h {axis = 1} : tensor<?x6xf32, #logical.dims<["N", ""]>>
  func.return %y : tensor<?x6xf32, #logical.dims<["N", ""]>>
}
"""


def compiled(weights: dict[str, np.ndarray], text: str = MLP, dims: str = "N=2,7") -> Executable:
    module = parse_module(text, "model.mlir")
    AicfInferencePass(target="reference:typed", dims=dims).apply(make_context(), module)
    native = ReferenceBackend().build(module, code_units(module), target_of(module))
    plan = read_plan(json.loads(json.dumps(to_json_value(read_module(module)))))
    return Executable(plan, native, weights)


def test_a_model_runs_end_to_end() -> None:
    w, b = random(RNG, 6, 8), random(RNG, 6)
    exe = compiled({"w": w, "b": b})
    assert [str(spec) for spec in (*exe.inputs, *exe.outputs)] == ["f32[N, 8]", "f32[N, 6]"]
    for rows in (2, 7):
        x = random(RNG, rows, 8)
        logits = x.astype(np.float64) @ w.T.astype(np.float64) + b
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        np.testing.assert_allclose(exe(x), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_a_training_step_updates_its_state() -> None:
    text = (Path(__file__).parents[3] / "examples" / "sgd" / "step.mlir").read_text()
    w, b, x, y = random(RNG, 4, 8), random(RNG, 4), random(RNG, 64, 8), random(RNG, 64, 4)
    exe = compiled({"w": w, "b": b, "lr": np.asarray(0.1, np.float32)}, text, dims="")
    w, b = w.astype(np.float64), b.astype(np.float64)
    for rate in (0.1, 0.1, 0.05):
        exe.set_state({"lr": np.float32(rate)})
        error = x @ w.T + b - y
        loss = exe(x, y)
        np.testing.assert_allclose(loss, np.mean(error**2), rtol=1e-5)
        w, b = w - rate * 2 / 256 * error.T @ x, b - rate * 2 / 256 * error.sum(axis=0)
    np.testing.assert_allclose(exe.state()["w"], w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exe.state()["b"], b, rtol=1e-4, atol=1e-5)
    assert loss.shape == ()


def test_building_twice_gives_the_same_bytes() -> None:
    weights = {"w": random(RNG, 6, 8), "b": random(RNG, 6)}
    assert compiled(weights).native == compiled(weights).native


def test_the_one_kernel() -> None:
    assert list(get_kernels("reference")) == ["reference.body"]
    kernel = BodyKernel()
    assert kernel.kinds == set(KINDS) and kernel.determinism == "bitwise"


def test_targets() -> None:
    assert isinstance(get_backend("reference"), ReferenceBackend)
    target = resolve_target("reference", threads=2)
    assert str(target) == '#emit.target<"reference", "typed", {threads = 2 : i64}>'
    with pytest.raises(PolicyError, match="backend 'reference' has no level 'fast'; legal: typed"):
        resolve_target("reference:fast")
