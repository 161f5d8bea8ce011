"""Executables on a device: what a replay calls, results, memory, bindings, state. On a driver without a GPU."""

from __future__ import annotations

import gc
from threading import Thread

import numpy as np
import pytest

from aicf import runtime
from aicf.errors import AicfError
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import ADD_RELU, BUCKETS, COUNTER, add_relu, random, scale

RNG = np.random.default_rng(41)


def test_calls_with_numpy_arrays(gpu: FakeDriver) -> None:
    """Fresh arrays with the right values, whatever order the edges leave to the driver."""
    b = random(RNG, 6)
    exe = device_executable(gpu, ADD_RELU, {"b": b})
    for _ in range(10):
        x = random(RNG, 4, 6)
        for got, wanted in zip(exe(x), add_relu(x, b), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_two_replays_are_two_graph_launches(gpu: FakeDriver) -> None:
    """A replay allocates nothing, synchronises nothing and branches on nothing: the driver sees one launch each."""
    b = random(RNG, 6)
    bound = device_executable(gpu, ADD_RELU, {"b": b}).instantiate()
    x = random(RNG, 4, 6)
    bound.fill({"x": x})
    bound.replay()
    gpu.calls.clear()
    bound.replay()
    bound.replay()
    assert [name for name, _ in gpu.calls] == ["launch", "launch"]
    assert len({executable for _, executable in gpu.calls}) == 1
    np.testing.assert_array_equal(bound["y"].numpy(), add_relu(x, b)[0])


def test_every_thread_enters_the_context_once(gpu: FakeDriver) -> None:
    """Also one that gets the number of a thread that has ended, which is what short-lived threads get."""
    bound = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).instantiate()
    bound.fill({"x": random(RNG, 4, 6)})
    bound.replay()
    gpu.calls.clear()
    for _ in range(3):
        thread = Thread(target=bound.replay, args=(2,))
        thread.start()
        thread.join()
    assert [name for name, _ in gpu.calls] == ["make_current", "launch", "launch"] * 3


def test_buckets_and_prepared_weights(gpu: FakeDriver) -> None:
    """`@prepare` runs on the device, once; weights that only it reads do not stay there."""
    w = random(RNG, 2)
    exe = device_executable(gpu, BUCKETS, {"w": w})
    for rows in (1, 5, 1):
        x, m = random(RNG, rows, 2), random(RNG, rows, 2)
        np.testing.assert_array_equal(exe(x, m), scale(x, m, w))
    assert gpu.named("add_kernel").count(gpu.named("add_kernel")[0]) == 1
    assert exe.memory()["weights"] == 0
    halves = exe.prepared()["w.half"].view(np.float32)
    np.testing.assert_array_equal(halves[:2], w / 2)


def test_state_stays_on_the_device_and_survives_shutdown(gpu: FakeDriver) -> None:
    """Calls update it there; it is brought back when the device is given back."""
    w = random(RNG, 3)
    exe = device_executable(gpu, COUNTER, {"w": w})
    x, total = random(RNG, 3), w.copy()
    for _ in range(3):
        exe(x)
        total += x
    np.testing.assert_array_equal(exe.state()["w"], total)
    runtime.shutdown()
    assert gpu.live_bytes == 0
    exe(x)
    np.testing.assert_array_equal(exe.state()["w"], total + x)
    exe.set_state({"w": w})
    exe(x)
    np.testing.assert_array_equal(exe.state()["w"], w + x)


def test_shutdown_gives_everything_back_and_the_next_call_works(gpu: FakeDriver) -> None:
    """Memory, pinned memory, streams, graphs, modules and the context."""
    b = random(RNG, 6)
    exe = device_executable(gpu, ADD_RELU, {"b": b})
    x = random(RNG, 4, 6)
    bound = exe.bind(x=x)
    exe(x)
    bound.replay()
    runtime.shutdown()
    gc.collect()
    held = (gpu.sizes, gpu.pinned, gpu.graphs, gpu.executables, gpu.modules)
    assert [len(kind) for kind in held] == [0] * 5
    assert list(gpu.queues) == [1] and gpu.contexts == 0
    for _ in range(2):
        np.testing.assert_array_equal(exe(x)[0], add_relu(x, b)[0])
    bound.replay()
    np.testing.assert_array_equal(bound["y"].numpy(), add_relu(x, b)[0])


def test_the_predicted_peak_is_what_is_requested(gpu: FakeDriver) -> None:
    """`memory()` tells the bytes requested from the driver before the first of them is."""
    for text, weights, shapes in (
        (ADD_RELU, {"b": random(RNG, 6)}, [(4, 6)]),
        (BUCKETS, {"w": random(RNG, 2)}, [(5, 2), (5, 2)]),
        (COUNTER, {"w": random(RNG, 3)}, [(3,)]),
    ):
        exe = device_executable(gpu, text, weights)
        sizes = exe.memory()
        name = exe.plan.rows[-1].program
        assert gpu.live_bytes == 0
        runtime.reset_peak("device")
        exe(*[random(RNG, *shape) for shape in shapes])
        assert runtime.statistics("device").peak_bytes == sizes[f"peak@{name}"]
        assert runtime.statistics("device").live_bytes == gpu.live_bytes
        del exe
        gc.collect()
        assert runtime.statistics("device").live_bytes == 0 == gpu.live_bytes


def test_shutdown_of_a_broken_device_gives_everything_back(gpu: FakeDriver) -> None:
    """Nothing is raised for programs that keep nothing; after that the device, if it works again, is used again."""
    b = random(RNG, 6)
    executables = [device_executable(gpu, ADD_RELU, {"b": b}) for _ in range(2)]
    x = random(RNG, 4, 6)
    for exe in executables:
        exe(x)
    bound = executables[0].instantiate()
    bound.fill({"x": x})
    bound.replay()
    gpu.broken = 700
    runtime.shutdown()
    gc.collect()  # the errors on the way held what they passed through
    assert runtime.statistics("device").live_bytes == 0
    gpu.broken = 0
    for exe in executables:
        np.testing.assert_array_equal(exe(x)[0], add_relu(x, b)[0])


def test_lost_state_is_told_and_keeps_no_other_executable(gpu: FakeDriver) -> None:
    """What a broken device kept cannot be brought back; the rest is released nevertheless."""
    b, w = random(RNG, 6), random(RNG, 3)
    counter, other = device_executable(gpu, COUNTER, {"w": w}), device_executable(gpu, ADD_RELU, {"b": b})
    counter(random(RNG, 3))
    other(random(RNG, 4, 6))
    gpu.broken = 700
    with pytest.raises(AicfError, match="fake error 700"):
        runtime.shutdown()
    gpu.broken = 0
    gc.collect()  # the errors on the way held what they passed through
    assert runtime.statistics("device").live_bytes == 0


def test_spans_are_the_times_between_events_in_a_row(gpu: FakeDriver) -> None:
    """The fake device takes 4 us from an event to the next."""
    bound = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).instantiate()
    bound.fill({"x": random(RNG, 4, 6)})
    timeline = bound.timeline(2)
    assert timeline is not None and timeline.method.startswith(
        "events between instructions: CUPTI does not import"
    )
    spans = timeline.spans
    assert [span.launch for span in spans] == [0, 1, 2] * 2
    assert [span.start_us for span in spans] == [4.0 * number for number in range(6)]
    assert {(span.duration_us, span.track) for span in spans} == {(4.0, "GPU 0 (Fake H100)")}
