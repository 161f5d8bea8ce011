"""Metas that the executable computes, on a device: every queued replay has its own. On a driver without a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import runtime
from aicf.compilation.compiled import CompiledModel
from aicf.errors import CaptureError
from aicf.runtime import Executable
from aicf.runtime.on_device.memory import PinnedRows
from aicf.runtime.state import StatePart
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.fake_driver import FakeDriver
from tests.support.meta_programs import (
    START,
    regression_batch,
    regression_program,
    regression_start,
    scalars,
    scalars_program,
)

RNG = np.random.default_rng(43)
WEIGHTS, BATCH = regression_start(RNG), regression_batch(RNG)


@pytest.fixture(scope="module")
def counting() -> CompiledModel:
    return aicf.compile(scalars_program(), START, "reference", meta="host")


@pytest.fixture(scope="module")
def checked() -> CompiledModel:
    return aicf.compile(regression_program(), WEIGHTS, "reference", meta="host", check_finite=True)


def on_device(gpu: FakeDriver, model: CompiledModel) -> Executable:
    """The program as cuda code."""
    return device_executable(gpu, model.ir("emit"), dict(model.weights))


def queued(gpu: FakeDriver) -> list[str]:
    """What was called but entering the context, which changes nothing there."""
    return [name for name, _ in gpu.calls if name != "make_current"]


def totals(n: int) -> np.float32:
    """`total` of the program after n steps on 0.25."""
    total = np.float32(0)
    for step in range(1, n + 1):
        total += np.float32(0.25) * np.float32(scalars(step)["cosine"])
    return total


def test_another_state_is_taken_with_its_metas(gpu: FakeDriver, counting: CompiledModel) -> None:
    """Those that only the host has are copied there; runs go on from both."""
    one, other = (on_device(gpu, counting).bind() for _ in range(2))
    for bound, times in ((one, 4), (other, 1)):
        bound.fill({"x": np.float32(0.25)})
        bound.replay(times)
    other.take_state(one, [StatePart("total", 0, 0, 1), StatePart("step", 0, 0, 1)])
    assert (other.state["total"], other.state["step"]) == (totals(4), 4)
    other.replay(3)
    assert (other.state["total"], other.state["step"]) == (totals(7), 7)
    assert (one.state["total"], one.state["step"]) == (totals(4), 4)


def test_queued_replays_have_values_of_their_own(
    gpu: FakeDriver, counting: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver runs them late: a row that was written again too early would show. One wait for each time around."""
    monkeypatch.setattr(PinnedRows, "COUNT", 4)
    exe = on_device(gpu, counting)
    bound = exe.bind()
    bound.fill({"x": np.float32(0.25)})
    bound.replay()
    gpu.calls.clear()
    bound.replay(10)
    copied_and_run = ["upload", "launch"]
    assert queued(gpu) == [
        *copied_and_run * 3,
        "synchronize",
        *copied_and_run * 4,
        "synchronize",
        *copied_and_run * 3,
    ]
    assert exe.state()["total"] == totals(11) and exe.state()["step"] == 11


def test_a_replay_is_a_copy_and_a_launch(gpu: FakeDriver, counting: CompiledModel) -> None:
    """Nothing is allocated and nothing waits; all metas go in one copy."""
    bound = on_device(gpu, counting).bind()
    bound.fill({"x": np.float32(1)})
    bound.replay()
    gpu.calls.clear()
    bound.replay(3)
    metas = sum(bind.is_host_written for bind in counting.plan.programs[0].graph.binds)
    assert queued(gpu) == ["upload", "launch"] * 3
    assert {nbytes for name, nbytes in gpu.calls if name == "upload"} == {8 * metas}


def test_calls_state_and_shutdown(gpu: FakeDriver, counting: CompiledModel) -> None:
    """Calls and replays count together; the count outlives the device, and can be set."""
    exe = on_device(gpu, counting)
    first = exe(np.float32(0.25))
    np.testing.assert_allclose(float(first[0]), scalars(1)["cosine"], rtol=1e-7)
    bound = exe.bind()
    bound.fill({"x": np.float32(0.25)})
    bound.replay(4)
    aicf.runtime.shutdown()
    assert exe.state()["step"] == 5 and exe.state("total")["total"] == totals(5)
    exe(np.float32(0.25))
    assert exe.state()["total"] == totals(6)
    exe.set_state({"step": np.array(15)})
    np.testing.assert_allclose(float(exe(np.float32(0))[0]), scalars(16)["cosine"], rtol=1e-7)


def test_memory_is_what_was_said(gpu: FakeDriver, counting: CompiledModel) -> None:
    exe = on_device(gpu, counting)
    said = exe.memory()["peak@scalars"]
    exe(np.float32(1))
    assert sum(gpu.named("allocate")) == said


def test_times_of_instructions_have_metas(gpu: FakeDriver, counting: CompiledModel) -> None:
    exe = on_device(gpu, counting)
    bound = exe.bind()
    bound.fill({"x": np.float32(1)})
    gpu.calls.clear()
    assert bound.instruction_times(1)
    assert "upload" in [name for name, _ in gpu.calls]


def test_a_step_that_is_not_finite_changes_nothing(gpu: FakeDriver, checked: CompiledModel) -> None:
    """Though the host counts on with the replays in its queue: once the flag is cleared, all goes on as if nothing had
    happened."""
    exe, good = (on_device(gpu, checked) for _ in range(2))
    bad = {**BATCH, "x": BATCH["x"].copy()}
    bad["x"][5, 2] = np.inf
    run(exe, BATCH, 3)
    run(good, BATCH, 3)
    run(exe, bad, 2)
    run(exe, BATCH, 2)
    assert exe.bad_step == 4 and good.bad_step is None
    assert_same(exe, good, apart={"aicf.bad_step"})
    exe.set_state({"aicf.bad_step": np.array(0)})
    run(exe, BATCH, 3)
    run(good, BATCH, 3)
    assert exe.bad_step is None and exe.state("step")["step"] == 6
    assert_same(exe, good)


def test_clearing_the_flag_unread(gpu: FakeDriver, checked: CompiledModel) -> None:
    """Setting any of the state takes what the device has for the truth."""
    exe, good = (on_device(gpu, checked) for _ in range(2))
    for each in (exe, good):
        run(each, BATCH, 2)
    run(exe, {**BATCH, "y": np.full_like(BATCH["y"], np.nan)}, 3)
    exe.set_state({"aicf.bad_step": np.array(0)})
    for each in (exe, good):
        run(each, BATCH, 2)
    assert_same(exe, good)


def run(exe: Executable, batch: dict[str, Any], n: int) -> None:
    bound = exe.bind()
    bound.fill(batch)
    bound.replay(n)


def assert_same(exe: Executable, other: Executable, apart: set[str] | None = None) -> None:
    one, two = exe.state(), other.state()
    for name in one.keys() - (apart or set()):
        assert np.isfinite(one[name]).all() and one[name].tobytes() == two[name].tobytes(), name


def test_replays_in_a_stream_of_the_caller_have_values_of_their_own(
    gpu: FakeDriver, counting: CompiledModel
) -> None:
    """Each run waits for the stream; a captured graph would repeat one run's values, and is refused."""
    exe, stream = on_device(gpu, counting), runtime.Stream("cuda")
    bound = exe.bind()
    bound.fill({"x": np.float32(0.25)})
    for _ in range(3):
        bound.replay(2, stream=stream)
    assert exe.state()["total"] == totals(6)
    graph = gpu.new_graph()
    with pytest.raises(
        CaptureError, match="the host computes values before each run.*; compile with meta='device'"
    ):
        gpu.capture(graph, stream.handle, (), partial(bound.replay, stream=stream))
    assert exe.state()["step"] == 6
