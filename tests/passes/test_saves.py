"""What a training step keeps of its forward part: whatever is chosen, it means the same; memory is as planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.backends.reference.interpreter import Results, run_module
from aicf.dialects import logical
from aicf.dialects.emit import ProgramOp
from aicf.errors import PlanError, PolicyError
from aicf.frontends.text import make_context
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.pipelines.aicf_inference import run
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.training.eliminate_saves import EliminateSavesPass
from tests.passes.test_pipeline_prefixes import PLACED, TARGETS, assert_close, check_orders
from tests.passes.test_raise_emit import stripped
from tests.support.module_state import state_of
from tests.support.training_graphs import Program, attention, encoder, mlp

Array = NDArray[Any]

CPU = TARGETS[0]
PROGRAMS: Mapping[str, Callable[[], Program]] = {
    "mlp": mlp,
    "encoder layer": lambda: encoder(layers=1),
    "dropout": lambda: encoder(layers=1, dropout=0.25, tokens=5),
    "attention": attention,
    "attention of merged linears": lambda: attention(compute="bf16"),
}
EVERYTHING = 1 << 30
"""Bytes to free that make all be computed again that may help."""


@pytest.mark.parametrize("less", [0, EVERYTHING])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_prefix_of_the_pipeline_means_the_same(name: str, less: int) -> None:
    module, feeds = PROGRAMS[name]()
    context, orders = make_context(), np.random.default_rng(0)
    expected: Results | None = None
    state = None
    for step in AicfTrainingPass(TARGETS[less > 0]).passes():
        if isinstance(step, EliminateSavesPass):
            step = replace(step, less=less)
        step.apply(context, module)
        where = f"{name} after {step.name}"
        if step.name == "lower-optimizers":
            expected = run_module(module, feeds, "exact")
        before, state = state, state_of(module)
        if expected is not None and state != before and not step.name.startswith("verify-"):
            assert_close(expected, run_module(module, feeds, "exact"), 10.0, where)
        if step.name in PLACED:
            check_orders(module, feeds, orders, where)
    assert not any(isinstance(op, logical.SaveOp) for op in module.walk())


def finished(module: ModuleOp, **options: Any) -> ModuleOp:
    """The final program of a copy of the module."""
    copy = module.clone()
    run(AicfTrainingPass(CPU, **options).passes(), make_context(), copy)
    return copy


def arena(module: ModuleOp) -> int:
    """Bytes of the arena of the step."""
    (size,) = (
        op.arena_bytes.value.data
        for op in module.walk()
        if isinstance(op, ProgramOp) and op.arena_bytes is not None and op.sym_name.data != "prepare"
    )
    return size


def test_an_encoder_fits_into_three_fifths_of_its_memory() -> None:
    """It gives the numbers of the step that keeps all, from an arena of just the size that was planned."""
    module, feeds = encoder(batch=4, tokens=32)
    inputs = {name: feeds[name] for name in ("x", "labels")}
    weights = {name: array for name, array in feeds.items() if name not in inputs}
    whole = aicf.compile(module, weights, CPU)
    budget = 3 * whole.memory()["arena@encoder"] // 5
    again = aicf.compile(module, weights, CPU, memory_budget=budget)
    assert again.memory()["arena@encoder"] == again.plan.programs[0].arena_bytes <= budget
    np.testing.assert_allclose(again(inputs), whole(inputs), rtol=1e-5)
    for name, array in whole.state().items():
        np.testing.assert_allclose(again.state()[name], array, rtol=2e-4, atol=2e-5, err_msg=name)


def test_what_is_taken_out_gives_the_same_program() -> None:
    """Without the budget, too: the choices are in the policy."""
    module, _ = mlp(batch=512, layers=4)
    first = finished(module, memory_budget=4 * arena(finished(module)) // 5)
    policy = decisions_of(first)
    again = finished(module, policy=policy.to_line())
    assert "recompute" in policy.execution.saves.values() and "keep" in policy.execution.saves.values()
    assert stripped(again) == stripped(first)
    assert decisions_of(again) == policy


def test_budgets_that_cannot_be_met_are_errors() -> None:
    module, _ = mlp()
    with pytest.raises(
        PlanError, match=r"memory budget of 64 bytes: @mlp takes \d+ bytes with all computed again"
    ):
        finished(module, memory_budget=64)
    with pytest.raises(PolicyError, match="memory-budget: must be at least 0 bytes, got -1"):
        finished(module, memory_budget=-1)
    baseline = aicf.Graph("plain")
    baseline.output(baseline.exp(baseline.input("x", (4,))), "y")
    with pytest.raises(PolicyError, match="memory_budget: the program saves nothing for gradients"):
        aicf.compile(baseline, target=CPU, memory_budget=64)
    for wrong in (2.5, "64", True, -1):
        with pytest.raises(PolicyError, match=f"memory_budget: {wrong!r} is no number of bytes"):
            aicf.compile(module, target=CPU, memory_budget=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PolicyError, match=r"saves.a.save: no save has that id; it has: none"):
        aicf.compile(baseline, target=CPU, policy={"saves": {"a.save": "keep"}})
