"""Training steps on the GPU: the losses and the state of the reference, the same bits in every run."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.runtime.capture_plan import ARENA
from tests.gpu.artifacts import environment, obtained
from tests.gpu.case_table.case import ROOT, TARGET
from tests.gpu.harness import program
from tests.gpu.programs import Array
from tests.gpu.training import TRAININGS

pytestmark = pytest.mark.gpu

STEPS = 8


def losses_of(model: CompiledModel, name: str) -> list[Array]:
    """What the steps on one batch give."""
    return [np.asarray(model.run(program(name).inputs)["loss"]) for _ in range(STEPS)]


def state_hash(model: CompiledModel) -> str:
    """Over every bit that the steps have changed."""
    state = model.state()
    return hashlib.sha256(b"".join(state[name].tobytes() for name in sorted(state))).hexdigest()


@pytest.mark.parametrize("name", TRAININGS)
def test_losses_and_state_are_those_of_the_reference(name: str) -> None:
    """Every parameter, state and counter, after steps that go down; one instruction updates all parameters."""
    case, training = f"train-{name}", TRAININGS[name]
    made, model = program(case), obtained(case)
    (plan,) = model.plan.programs
    params = {index for index, bind in enumerate(plan.graph.binds, ARENA + 1) if bind.role == "param"}
    (update,) = (launch for launch in plan.launches if any(operand.base in params for operand in launch.outs))
    assert update.kernel == "cuda.multi_tensor"
    reference = aicf.compile(made.module, made.weights, "reference", **training.options)
    ours, theirs = losses_of(model, case), losses_of(reference, case)
    np.testing.assert_allclose(ours, theirs, rtol=training.tolerance)
    assert ours[-1] < ours[0]
    found = model.state()
    for state, wanted in reference.state().items():
        if wanted.dtype.kind == "i":
            np.testing.assert_array_equal(found[state], wanted, err_msg=state)
            continue
        moved = np.abs(wanted - made.weights[state]).max()
        assert np.abs(found[state] - wanted).max() <= 30 * training.tolerance * moved, state


@pytest.mark.parametrize("name", TRAININGS)
def test_every_run_has_the_same_bits(name: str) -> None:
    """From the start again, by calls and by replays that nobody awaits."""
    case = f"train-{name}"
    model, other = obtained(case), obtained(case)
    start = model.state()
    losses_of(model, case)
    first = state_hash(model)
    model.set_state(start)
    losses_of(model, case)
    assert state_hash(model) == first
    graph_exec = other.attach()
    graph_exec.fill(program(case).inputs)
    graph_exec.replay(STEPS)
    graph_exec.synchronize()
    assert state_hash(other) == first


def test_counters_by_the_host_are_those_by_the_device() -> None:
    """Bit for bit, and so is all that follows."""
    device, host = obtained("train-adam"), obtained("train-adam-host")
    assert losses_of(device, "train-adam") == losses_of(host, "train-adam")
    ours, theirs = device.state(), host.state()
    for name in set(ours) & set(theirs):
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    """Nor does any after it; its number is kept."""
    case = "train-adam-checked"
    model, inputs = obtained(case), program(case).inputs
    losses_of(model, case)
    before = model.state()
    model.run({**inputs, "x": np.full_like(inputs["x"], np.nan)})
    model.run(inputs)
    after = model.state()
    assert after.pop("aicf.bad_step") == STEPS + 1
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_the_digits_are_learnt_from_random_numbers(tmp_path: Path) -> None:
    """As a user would: three runs with one hash, and more than 97 of 100 images that the network has not seen."""
    command = [sys.executable, ROOT / "examples" / "digits" / "train.py", "--target", TARGET]
    done = subprocess.run(
        [*command, "--build", tmp_path],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count("held-out images") == 3, said
