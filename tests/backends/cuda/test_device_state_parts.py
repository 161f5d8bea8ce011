"""Parts of one executable's state in another's, of other shapes: on the host, and on a driver without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aicf
from aicf.errors import InputMismatch
from aicf.runtime import Executable
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.state import StatePart
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.fake_driver import FakeDriver

RNG = np.random.default_rng(17)
WIDTH = 3


def compiled(rows: int, dtype: str = "f32") -> aicf.CompiledModel:
    """A state of so many rows, to which each run adds 1."""
    graph = aicf.Graph("count")
    state = graph.state("state", (rows, WIDTH), dtype)
    after = graph.add(state, 1)
    graph.update(state, after)
    graph.output(graph.reduce_sum(after, (0, 1)), "sum")
    start = RNG.normal(size=(rows, WIDTH)) if dtype == "f32" else RNG.integers(0, 9, (rows, WIDTH))
    return aicf.compile(
        graph, {"state": start.astype(dtype.replace("f", "float").replace("i", "int"))}, "reference"
    )


SMALL, LARGE, WHOLE = compiled(2), compiled(5), compiled(5, "i64")
HOW: dict[str, Callable[[aicf.CompiledModel, FakeDriver], Executable]] = {
    "host": lambda model, _: model,
    "device": lambda model, gpu: device_executable(gpu, model.ir("emit"), dict(model.weights)),
}


@pytest.mark.parametrize("how", HOW)
def test_a_larger_state_takes_rows(how: str, gpu: FakeDriver) -> None:
    """After the runs that are queued before, and before those that come after; on a device without the host."""
    small, large = (HOW[how](model, gpu) for model in (SMALL, LARGE))
    before = small.state()["state"], large.state()["state"]
    source, target = small.attach(), large.attach()
    source.replay(3)
    target.replay()
    gpu.calls.clear()
    target.take_state(source, [StatePart("state", 0, 2 * WIDTH, 2 * WIDTH), StatePart("state", 4, 1, 1)])
    assert len(gpu.named("copy")) == 2 * (how == "device") and not gpu.named("synchronize")
    source.replay(4)
    target.replay(2)
    expected = before[1] + np.float32(1)
    expected[2:4] = before[0] + np.float32(3)
    expected[0, 1] = (before[0] + np.float32(3))[1, 1]
    np.testing.assert_allclose(large.state()["state"], expected + np.float32(2), rtol=1e-6)
    np.testing.assert_allclose(small.state()["state"], before[0] + np.float32(7), rtol=1e-6)


def test_between_host_and_device(gpu: FakeDriver) -> None:
    host, device = LARGE, HOW["device"](LARGE, gpu)
    device.attach().replay()
    values = device.state()["state"]
    device.attach().take_state(host.attach(), [StatePart("state", 0, 3, 3)])
    values[1] = host.state()["state"][0]
    np.testing.assert_array_equal(device.state()["state"], values)
    taken = host.instantiate()
    taken.take_state(device.attach(), [StatePart("state", 0, 0, 15)])
    np.testing.assert_array_equal(taken.state["state"], values)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (StatePart("stat", 0, 0, 1), "state 'stat'|stat"),
        (StatePart("state", 0, 0, 7), "state 'state': elements 0 to 7 of 6; name those it has"),
        (StatePart("state", 0, 10, 6), "state 'state': elements 10 to 16 of 15; name those it has"),
        (StatePart("state", -1, 0, 1), "state 'state': elements -1 to 0 of 6; name those it has"),
    ],
)
def test_what_is_not_there_is_told(part: StatePart, message: str) -> None:
    """And nothing is taken."""
    target, before = LARGE.instantiate(), LARGE.weights["state"]
    with pytest.raises(InputMismatch, match=message) as caught:
        target.take_state(SMALL.attach(), [StatePart("state", 0, 0, 2), part])
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(target.state["state"], before)


def test_other_types_and_programs_without_a_state_are_told() -> None:
    part = StatePart("state", 0, 0, 1)
    with pytest.raises(InputMismatch, match="state 'state': expected int64, got float32"):
        WHOLE.attach().take_state(LARGE.attach(), [part])
    graph = aicf.Graph("none")
    graph.output(graph.neg(graph.input("x", (1,))), "y")
    none: GraphExec = aicf.compile(graph, {}, "reference").attach()
    for one, other in ((none, LARGE.attach()), (LARGE.attach(), none)):
        with pytest.raises(InputMismatch, match="@none updates nothing, so it has no state to copy"):
            one.take_state(other, [part])
