"""Programs on memory of others, on a driver without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread

import numpy as np

from aicf.backends.cuda.runtime.driver import RELAXED
from aicf.runtime.addressed import Addressed
from aicf.runtime.on_device.addressed import MOST_GRAPHS
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.device_tensor import DeviceTensor
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import ADD_RELU, BUCKETS, add_relu, random, scale

RNG = np.random.default_rng(85)


def addresses(program: Addressed, tensors: Mapping[str, DeviceTensor]) -> list[int]:
    return [tensors[name].array.ctypes.data for name in program.names]


def added(gpu: FakeDriver) -> dict[str, DeviceTensor]:
    return {
        name: DeviceTensor(gpu, random(RNG, *shape))
        for name, shape in {"x": (4, 6), "b": (6,), "y": (4, 6), "z": (4, 6)}.items()
    }


def assert_added(tensors: Mapping[str, DeviceTensor]) -> None:
    wanted = add_relu(tensors["x"].array, tensors["b"].array)
    for name, array in zip("yz", wanted, strict=True):
        np.testing.assert_array_equal(tensors[name].array, array)


def test_a_graph_is_kept_for_each_tuple_of_addresses(gpu: FakeDriver) -> None:
    program = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).addressed()
    tensors = [added(gpu) for _ in range(2)]
    stream = gpu.open_stream()
    for each in (tensors[0], tensors[0], tensors[1], tensors[0], tensors[1]):
        each["x"].array[...] = random(RNG, 4, 6)
        program.run(addresses(program, each), stream)
        gpu.synchronize(stream)
        assert_added(each)
    assert len(gpu.executables) == 2


def test_a_run_on_known_addresses_is_one_call_of_the_driver(gpu: FakeDriver) -> None:
    """Also when two tuples of addresses take turns, as when the last result is kept until the next one is there."""
    program = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).addressed()
    known, stream = [addresses(program, added(gpu)) for _ in range(2)], gpu.open_stream()
    for each in known:
        program.run(each, stream)
    for each in (known[1], known[1], known[0], known[1]):
        before = len(gpu.calls)
        program.run(each, stream)
        assert [name for name, _ in gpu.calls[before:]] == ["launch"]


def test_a_thread_makes_the_context_current_once(gpu: FakeDriver) -> None:
    program = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).addressed()
    known, stream = addresses(program, added(gpu)), gpu.open_stream()
    program.run(known, stream)
    before = len(gpu.calls)

    def run_twice() -> None:
        program.run(known, stream)
        program.run(known, stream)

    thread = Thread(target=run_twice)
    thread.start()
    thread.join()
    assert [name for name, _ in gpu.calls[before:]] == ["make_current", "launch", "launch"]


def test_the_least_recently_used_graph_goes(gpu: FakeDriver) -> None:
    program = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).addressed()
    stream = gpu.open_stream()
    for _ in range(MOST_GRAPHS + 3):
        tensors = added(gpu)
        program.run(addresses(program, tensors), stream)
        gpu.synchronize(stream)
        assert_added(tensors)
    assert len(gpu.executables) == MOST_GRAPHS


def test_parameters_are_packed_on_the_stream(gpu: FakeDriver) -> None:
    program = device_executable(gpu, BUCKETS, {"w": np.zeros(2, np.float32)}).addressed(N=5)
    stream = gpu.open_stream()
    tensors = {name: DeviceTensor(gpu, random(RNG, 5, 2)) for name in ("x", "m", "y")}
    for _ in range(2):
        w = DeviceTensor(gpu, random(RNG, 2))
        program.prepare({"w": w.array.ctypes.data}, stream)
        program.run(addresses(program, tensors), stream)
        gpu.synchronize(stream)
        wanted = scale(tensors["x"].array, tensors["m"].array, w.array)
        np.testing.assert_array_equal(tensors["y"].array, wanted)


def test_on_a_captured_stream_instructions_are_queued(gpu: FakeDriver) -> None:
    """Nothing is launched as a graph, and what has to be allocated is allocated beside the capture."""
    program = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).addressed()
    tensors, stream = added(gpu), gpu.open_stream()
    program.queue(addresses(program, tensors), stream)
    gpu.synchronize(stream)
    assert_added(tensors)
    assert gpu.named("exchange_capture_mode") == [RELAXED, 0]
    assert len(gpu.named("run")) == 3
