"""Streams and events of a device, those of other libraries, and replays inside a caller's graph. Without a GPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from aicf import runtime
from aicf.errors import BackendUnavailable, CaptureError, InputMismatch
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.device_tensor import DeviceTensor
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import ADD_RELU, COUNTER, add_relu, executable, random

RNG = np.random.default_rng(67)
B = random(RNG, 6)


class Torch:
    """A stream as PyTorch's."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class Cupy:
    """A stream as CuPy's."""

    def __init__(self, handle: int) -> None:
        self.ptr = handle


class Core:
    """A stream as cuda.core's."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def on_device(gpu: FakeDriver) -> dict[str, DeviceTensor]:
    shapes = dict.fromkeys("xyz", (4, 6))
    return {name: DeviceTensor(gpu, random(RNG, *shape)) for name, shape in shapes.items()}


def assert_added(tensors: dict[str, DeviceTensor], x: np.ndarray) -> None:
    for name, wanted in zip("yz", add_relu(x, B), strict=True):
        np.testing.assert_array_equal(tensors[name].array, wanted)


@pytest.mark.parametrize("wrapped", [int, Torch, Cupy, Core])
def test_a_replay_takes_its_place_in_a_stream_of_another_library(gpu: FakeDriver, wrapped: type) -> None:
    """It reads what the stream wrote before, and what the stream is given later reads its results. The first replay of
    a GraphExec, which goes instruction by instruction, does too."""
    tensors, theirs = on_device(gpu), gpu.open_stream()
    bound = device_executable(gpu, ADD_RELU, {"b": B}).bind(**tensors)
    for _ in range(3):
        fresh, seen = random(RNG, 4, 6), np.zeros((4, 6), np.float32)
        gpu.queues[theirs].append(partial(tensors["x"].array.__setitem__, ..., fresh))
        bound.replay(stream=wrapped(theirs))
        gpu.queues[theirs].append(partial(np.copyto, seen, tensors["z"].array))
        gpu.synchronize(theirs)
        assert_added(tensors, fresh)
        np.testing.assert_array_equal(seen, add_relu(fresh, B)[1])


def test_a_replay_in_a_stream_of_ours(gpu: FakeDriver) -> None:
    tensors, stream = on_device(gpu), runtime.Stream("cuda", priority=-2)
    assert gpu.named("open_stream")[-1] == -2
    bound = device_executable(gpu, ADD_RELU, {"b": B}).bind(**tensors)
    event = stream.submit(bound, 2)
    event.synchronize()
    assert event.is_done
    assert_added(tensors, tensors["x"].array)


def test_programs_that_update_state_stay_in_order_across_streams(gpu: FakeDriver) -> None:
    w, streams = random(RNG, 3), [runtime.Stream("cuda"), runtime.Stream("cuda")]
    exe = device_executable(gpu, COUNTER, {"w": w})
    x = DeviceTensor(gpu, random(RNG, 3))
    bound, wanted = exe.bind(x=x), w.copy()
    for number in range(6):
        bound.replay(stream=streams[number % 2])
        wanted += x.array
    np.testing.assert_array_equal(exe.state()["w"], wanted)


def test_a_stream_waits_for_an_event_of_another(gpu: FakeDriver) -> None:
    first, second, seen = runtime.Stream("cuda"), runtime.Stream("cuda"), list[str]()
    gpu.queues[first.handle].append(lambda: seen.append("first"))
    second.wait(first.record())
    gpu.queues[second.handle].append(lambda: seen.append("second"))
    second.synchronize()
    assert seen == ["first", "second"]


def test_events_tell_whether_the_device_reached_them(gpu: FakeDriver) -> None:
    stream = runtime.Stream("cuda")
    before = stream.record()
    gpu.queues[stream.handle].append(lambda: None)
    after = stream.record()
    assert isinstance(before, runtime.DeviceEvent) and isinstance(after, runtime.DeviceEvent)
    assert before.is_done and not after.is_done
    assert after.microseconds_since(before) == 4.0
    assert after.is_done


def test_a_thread_and_a_device_wait_for_each_other(gpu: FakeDriver) -> None:
    host, device, seen = runtime.Stream(), runtime.Stream("cuda"), list[str]()
    gpu.queues[device.handle].append(lambda: seen.append("device"))
    host.wait(device.record())
    device.wait(host.submit(lambda: seen.append("host")))
    assert seen == ["device", "host"]
    host.release()


def test_a_captured_stream_takes_the_instructions_into_its_graph(gpu: FakeDriver) -> None:
    """Nothing runs while it is captured, not even the first replay of a GraphExec; each launch of the caller's graph
    reads what is there then."""
    tensors, theirs = on_device(gpu), gpu.open_stream()
    bound = device_executable(gpu, ADD_RELU, {"b": B}).bind(**tensors)
    before, graph = tensors["y"].array.copy(), gpu.new_graph()
    gpu.capture(graph, theirs, (), partial(bound.replay, 2, stream=theirs))
    np.testing.assert_array_equal(tensors["y"].array, before)
    assert len(gpu.graphs[graph]) == 2 * 3
    launch = gpu.launcher(gpu.instantiate(graph, theirs), theirs)
    for _ in range(2):
        tensors["x"].array[...] = random(RNG, 4, 6)
        launch()
        gpu.synchronize(theirs)
        assert_added(tensors, tensors["x"].array)


def test_what_the_host_does_around_a_run_cannot_be_captured(gpu: FakeDriver) -> None:
    theirs, graph = gpu.open_stream(), gpu.new_graph()
    on_host = device_executable(gpu, ADD_RELU, {"b": B}).bind(x=random(RNG, 4, 6))
    with pytest.raises(
        CaptureError, match="'x' is bound to an array of the host, .*; bind memory of the device"
    ):
        gpu.capture(graph, theirs, (), partial(on_host.replay, stream=theirs))


@pytest.mark.parametrize("stream", ["cuda:0", True, object(), 1.5])
def test_what_is_no_stream_is_refused(gpu: FakeDriver, stream: object) -> None:
    bound = device_executable(gpu, ADD_RELU, {"b": B}).bind(**on_device(gpu))
    with pytest.raises(InputMismatch, match="is no stream of a device; give"):
        bound.replay(stream=stream)


def test_a_program_on_the_processor_has_no_stream_of_a_device(gpu: FakeDriver) -> None:
    bound = executable(ADD_RELU, {"b": B}).bind(x=random(RNG, 4, 6))
    with pytest.raises(InputMismatch, match=r"@add_relu runs on the processor, .*Stream\(\).submit"):
        bound.replay(stream=runtime.Stream("cuda"))


def test_streams_of_devices_take_no_functions_and_streams_of_threads_have_no_handle(gpu: FakeDriver) -> None:
    with pytest.raises(InputMismatch, match="takes GraphExecs"):
        runtime.Stream("cuda").submit(lambda: None)
    with pytest.raises(InputMismatch, match="has no handle"):
        _ = runtime.Stream().handle
    with pytest.raises(InputMismatch, match="has no priority"):
        runtime.Stream(priority=1)


def test_a_device_that_is_not_there_is_named(gpu: FakeDriver) -> None:
    with pytest.raises(BackendUnavailable, match="there is no device cuda:3; this machine has cuda:0"):
        runtime.Stream("cuda:3")
    with pytest.raises(BackendUnavailable, match="device cpu:0 has no streams and no memory of its own"):
        runtime.Stream("cpu")


def test_programs_run_on_the_device_that_they_are_moved_to(gpu: FakeDriver) -> None:
    """Its streams, its memory and its arrays are that device's, by DLPack too."""
    gpu.gpus = 2
    exe = device_executable(gpu, ADD_RELU, {"b": B}, ordinal=1)
    bound, x = exe.instantiate(), random(RNG, 4, 6)
    bound.fill({"x": x})
    bound.replay(stream=runtime.Stream("cuda:1"))
    np.testing.assert_array_equal(bound["y"].numpy(), add_relu(x, B)[0])
    assert bound["y"].__dlpack_device__() == (2, 1)
    assert set(gpu.named("retain")) == {1}
