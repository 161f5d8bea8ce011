"""Steps that are not finite: nothing changes, the first is named, and it stays so until it is set back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from tests.support.meta_programs import (
    START,
    regression_batch,
    regression_program,
    regression_start,
    scalars_program,
)

RNG = np.random.default_rng(47)
WEIGHTS, BATCH = regression_start(RNG), regression_batch(RNG)


@pytest.fixture(scope="module", params=["device", "host"])
def step(request: pytest.FixtureRequest) -> CompiledModel:
    return aicf.compile(regression_program(), WEIGHTS, "cpu", meta=request.param, check_finite=True)


@pytest.fixture(scope="module")
def baseline() -> CompiledModel:
    return aicf.compile(regression_program(), WEIGHTS, "cpu")


def reset(exe: CompiledModel) -> None:
    flag = {"aicf.bad_step": np.array(0)} if "aicf.bad_step" in exe.weights else {}
    exe.set_state({**{name: value for name, value in WEIGHTS.items() if name in exe.state()}, **flag})


def poisoned(name: str, value: float) -> dict[str, Any]:
    batch = {key: array.copy() for key, array in BATCH.items()}
    batch[name][2] = value  # the whole row: dropout drops some of it
    return batch


def test_a_checked_step_is_the_same_step(step: CompiledModel, baseline: CompiledModel) -> None:
    """Bit for bit, over the warm-up and after it."""
    for exe in (step, baseline):
        reset(exe)
    for _ in range(8):
        assert step.run(BATCH)["loss"].tobytes() == baseline.run(BATCH)["loss"].tobytes()
    assert step.bad_step is None and baseline.bad_step is None
    wanted = baseline.state()
    for name, value in step.state().items():
        assert name == "aicf.bad_step" or value.tobytes() == wanted[name].tobytes(), name


@pytest.mark.parametrize("batch", [poisoned("y", np.nan), poisoned("x", np.inf), poisoned("y", -np.inf)])
def test_the_first_bad_step_is_named_and_changes_nothing(step: CompiledModel, batch: dict[str, Any]) -> None:
    reset(step)
    for _ in range(3):
        step.run(BATCH)
    before = step.state()
    assert not np.isfinite(step.run(batch)["loss"])
    step.run(poisoned("y", np.nan))
    after = step.state()
    assert step.bad_step == 4
    assert after.pop("aicf.bad_step") == 4
    for name, value in after.items():
        assert value.tobytes() == before[name].tobytes(), name
    assert np.isfinite(step.run(BATCH)["loss"])
    assert step.bad_step == 4 and step.state("step")["step"] == 3
    step.set_state({"aicf.bad_step": np.array(0)})
    step.run(BATCH)
    assert step.bad_step is None and step.state("step")["step"] == 4
    assert step.state("w")["w"].tobytes() != before["w"].tobytes()


def test_large_gradients_are_finite(step: CompiledModel) -> None:
    """What is tested is each number, not their sum: that of the squares of these is infinite."""
    reset(step)
    step.run({**BATCH, "y": BATCH["y"] * np.float32(1e15)})
    assert step.bad_step is None and np.isfinite(step.state("w")["w"]).all()


def test_a_gradient_alone_is_tested(step: CompiledModel) -> None:
    """The loss overflows nowhere, the gradient does: 2e38 times 1e30 over the size of the batch."""
    reset(step)
    step.set_state({"w": np.zeros((4, 6), np.float32), "b": np.zeros(4, np.float32)})
    loss = step.run({"x": np.full((8, 6), 1e30, np.float32), "y": np.full((8, 4), 1e18, np.float32)})["loss"]
    assert np.isfinite(loss) and step.bad_step == 1
    assert not step.state("w")["w"].any() and step.state("step")["step"] == 0


def test_what_no_optimizer_updates_is_tested() -> None:
    exe = aicf.compile(scalars_program(), START, "reference", check_finite=True)
    exe(np.float32(2))
    exe(np.float32(np.nan))
    assert exe.bad_step == 2
    assert exe.state("total")["total"] == np.float32(2) * np.float32(0.1 / 3)
