"""Arrays of callers on a device: used in place by pointer, ordered, refused with what is wrong. Without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicf import runtime
from aicf.errors import InputMismatch
from aicf.inspection.explain import explain_value
from aicf.runtime import dlpack
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.device_tensor import DeviceTensor, InterfaceTensor
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import ADD_RELU, BUCKETS, add_relu, random, scale

RNG = np.random.default_rng(43)
B = random(RNG, 6)


def empty(gpu: FakeDriver) -> DeviceTensor:
    return DeviceTensor(gpu, np.full((4, 6), np.nan, np.float32))


def test_bound_arrays_are_used_in_place(gpu: FakeDriver) -> None:
    """After `bind` a replay is one launch: it reads and writes the caller's memory, without any copy."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    x, y, z = DeviceTensor(gpu, random(RNG, 4, 6)), empty(gpu), empty(gpu)
    bound = exe.bind(x=x, y=y, z=z)
    bound.replay()
    for _ in range(3):
        x.array[...] = random(RNG, 4, 6)
        gpu.calls.clear()
        bound.replay()
        assert [name for name, _ in gpu.calls] == ["launch"]
        bound.synchronize()
        for got, wanted in zip((y, z), add_relu(x.array, B), strict=True):
            np.testing.assert_array_equal(got.array, wanted)


def test_an_array_interface_is_used_in_place_after_its_stream(gpu: FakeDriver) -> None:
    """Without DLPack our stream waits for the one that the interface names."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    x = DeviceTensor(gpu, random(RNG, 4, 6))
    gpu.calls.clear()
    bound = exe.bind(x=InterfaceTensor(x))
    assert gpu.named("record") == [1] and len(gpu.named("wait")) == 1
    bound.replay()
    np.testing.assert_array_equal(np.asarray(bound["y"]), add_relu(x.array, B)[0])


def test_the_owner_orders_its_work_before_ours(gpu: FakeDriver) -> None:
    """DLPack is asked with our stream, so that its producer makes it wait."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    x = DeviceTensor(gpu, random(RNG, 4, 6))
    bound = exe.bind(x=x)
    bound.replay()
    assert x.requested and all(stream in gpu.queues for stream in x.requested)


def test_calls_take_arrays_of_the_device(gpu: FakeDriver) -> None:
    """In place for the call; the next call with host arrays is pointed back at our memory."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    for _ in range(2):
        x = DeviceTensor(gpu, random(RNG, 4, 6))
        np.testing.assert_array_equal(exe(x)[1], add_relu(x.array, B)[1])
        host = random(RNG, 4, 6)
        np.testing.assert_array_equal(exe(host)[1], add_relu(host, B)[1])


@pytest.mark.parametrize("role", ["input", "output"])
def test_an_unaligned_array_of_a_call_is_refused(gpu: FakeDriver, role: str) -> None:
    """The plan says that it is used where it is, and the kernels rely on 16 bytes; nothing is copied instead."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    away = DeviceTensor(gpu, random(RNG, 4, 6), offset=4)
    name, x = ("x", away) if role == "input" else ("y", random(RNG, 4, 6))
    message = f"{role} '{name}' starts at 0x[0-9a-f]+, the plan binds it directly at a multiple of 16 bytes; copy it"
    with pytest.raises(InputMismatch, match=message):
        exe.run({"x": x}, out={"y": away} if role == "output" else {})
    assert not gpu.named("copy") and not gpu.named("launch")


def test_what_the_plan_stages_is_copied_at_each_replay(gpu: FakeDriver) -> None:
    """The graph stays at memory of ours whatever is bound; copies stand around the launch, and nothing waits. At any
    address, for the copies take every one."""
    exe = device_executable(gpu, ADD_RELU, {"b": B}, staged=("x", "z"))
    x, y = DeviceTensor(gpu, random(RNG, 4, 6), offset=4), empty(gpu)
    z = DeviceTensor(gpu, np.full((4, 6), np.nan, np.float32), offset=8)
    bound = exe.bind(x=x, y=y, z=z)
    bound.replay()
    for _ in range(3):
        x.array[...] = random(RNG, 4, 6)
        gpu.calls.clear()
        bound.replay()
        assert [name for name, _ in gpu.calls] == ["make_current", "copy", "launch", "make_current", "copy"]
        bound.synchronize()
        for got, wanted in zip((y, z), add_relu(x.array, B), strict=True):
            np.testing.assert_array_equal(got.array, wanted)


def test_what_the_plan_stages_is_copied_by_a_call(gpu: FakeDriver) -> None:
    """Arrays of the device, as inputs and as `out`; the parameters of no kernel change."""
    exe = device_executable(gpu, ADD_RELU, {"b": B}, staged=("x", "y", "z"))
    x, y = DeviceTensor(gpu, random(RNG, 4, 6), offset=4), empty(gpu)
    results = exe.run({"x": x}, out={"y": y})
    np.testing.assert_array_equal(y.array, add_relu(x.array, B)[0])
    np.testing.assert_array_equal(results["z"], add_relu(x.array, B)[1])
    assert gpu.named("copy") == [96, 96] and not gpu.named("set_kernel")


def test_staging_is_in_the_prediction_and_in_the_explanation(gpu: FakeDriver) -> None:
    """Every input and output has a place of ours, so that the plan's choice moves no byte of the predicted peak."""
    direct = device_executable(gpu, ADD_RELU, {"b": B})
    staged = device_executable(gpu, ADD_RELU, {"b": B}, staged=("x",))
    assert staged.memory() == direct.memory() and staged.memory()["io@add_relu"] == 3 * 256
    said = [str(explain_value(exe.plan, (), "x")) for exe in (direct, staged)]
    assert "bound direct at a multiple of 16 bytes, read by" in said[0]
    assert "bound staged: copied through 96 bytes of ours, read by" in said[1]


def test_out_takes_arrays_of_the_device_and_of_the_host(gpu: FakeDriver) -> None:
    """Both are written; the next call gives fresh ones."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    x, y, z = random(RNG, 4, 6), empty(gpu), np.full((4, 6), np.nan, np.float32)
    results = exe.run({"x": x}, out={"y": y, "z": z})
    wanted = add_relu(x, B)
    np.testing.assert_array_equal(y.array, wanted[0])
    np.testing.assert_array_equal(z, wanted[1])
    assert results["z"] is z and list(results) == ["y", "z"]
    y.array[...] = 7
    np.testing.assert_array_equal(exe(x)[0], wanted[0])
    assert (y.array == 7).all()


def test_bound_host_arrays_are_copied_at_each_replay(gpu: FakeDriver) -> None:
    """As on the host: the arrays are read and written by every replay, which waits."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    x, y = random(RNG, 4, 6), np.full((4, 6), np.nan, np.float32)
    bound = exe.bind(x=x, y=y)
    for _ in range(2):
        x[...] = random(RNG, 4, 6)
        bound.replay()
        np.testing.assert_array_equal(y, add_relu(x, B)[0])


def test_a_bucket_is_chosen_by_arrays_of_the_device(gpu: FakeDriver) -> None:
    w = random(RNG, 2)
    exe = device_executable(gpu, BUCKETS, {"w": w})
    x, m = (DeviceTensor(gpu, random(RNG, 5, 2)) for _ in range(2))
    np.testing.assert_array_equal(exe(x, m), scale(x.array, m.array, w))
    with pytest.raises(InputMismatch, match="no program for N=3; compiled for N=1 | N=5"):
        exe(*(DeviceTensor(gpu, random(RNG, 3, 2)) for _ in range(2)))


def test_outputs_are_handed_out_without_a_copy(gpu: FakeDriver) -> None:
    """One GraphExec's output is another's input, by address; memory lives as long as somebody holds it."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    first = exe.instantiate()
    x = random(RNG, 4, 6)
    first.fill({"x": x})
    first.replay()
    second = exe.bind(x=first["y"])
    second.replay()
    y = add_relu(x, B)[0]
    np.testing.assert_array_equal(second["z"].numpy(), add_relu(y, B)[1])
    output = first["y"]
    assert output.__cuda_array_interface__["typestr"] == "<f4" and output.shape == (4, 6)
    view = dlpack.read_view(output, 1)
    assert view.address == output.__cuda_array_interface__["data"][0] and view.dtype == "f32"
    del first, second, exe, output
    gc.collect()
    np.testing.assert_array_equal(_on_host(gpu, view), y)
    del view
    gc.collect()
    assert gpu.live_bytes == 0


def _on_host(gpu: FakeDriver, view: dlpack.DeviceView) -> np.ndarray:
    raw = next(raw for start, raw in gpu.blocks.items() if start <= view.address < start + raw.nbytes)
    start = view.address - raw.ctypes.data
    return raw[start : start + view.nbytes].view(np.float32).reshape(view.shape).copy()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda gpu: {"x": DeviceTensor(gpu, np.ones((4, 5), np.float32))},
            r"input 'x': expected f32\[4, 6\], got f32\[4, 5\]; the shape was fixed",
        ),
        (
            lambda gpu: {"x": DeviceTensor(gpu, np.ones((4, 6), np.float64))},
            r"input 'x': expected f32\[4, 6\], got f64\[4, 6\]; convert it",
        ),
        (
            lambda gpu: {"x": DeviceTensor(gpu, np.ones((4, 6), np.float32), strides=(1, 4))},
            r"input 'x' has strides of \(1, 4\) elements, the program needs \(6, 1\); make it contiguous",
        ),
        (
            lambda gpu: {"x": DeviceTensor(gpu, np.ones((4, 6), np.float32), index=1)},
            "input 'x' is on device 1 of DLPack type 2, the program is on GPU 0 .Fake H100.; move it",
        ),
        (
            lambda gpu: {"x": DeviceTensor(gpu, np.ones((4, 6), np.float32), offset=4)},
            "input 'x' starts at 0x[0-9a-f]+, the plan binds it directly at a multiple of 16",
        ),
        (
            lambda gpu: {"y": InterfaceTensor(empty(gpu), read_only=True)},
            "output 'y' is a read-only array",
        ),
        (
            lambda gpu: {"y": (t := empty(gpu)), "z": t},
            "output 'y' overlaps 'z' in memory",
        ),
        (lambda gpu: {"b": empty(gpu)}, "'b' is a param, not an input"),
        (lambda gpu: {"x": [1, 2]}, "input 'x': expected an array f32.4, 6., got list"),
    ],
)
def test_wrong_bindings_say_what_is_wrong(
    gpu: FakeDriver, make: Callable[[FakeDriver], dict[str, Any]], message: str
) -> None:
    """Nothing is bound then, and the executable still works."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    with pytest.raises(InputMismatch, match=message):
        exe.bind(make(gpu))
    x = random(RNG, 4, 6)
    np.testing.assert_array_equal(exe(x)[0], add_relu(x, B)[0])


def test_an_output_may_not_meet_the_arena_or_a_weight(gpu: FakeDriver) -> None:
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    bound = exe.bind(x=random(RNG, 4, 6))
    taken = empty(gpu)
    arena = bound._taken.block[0]  # pyright: ignore[reportAttributeAccessIssue]
    taken.array = np.ndarray((4, 6), np.float32, gpu.blocks[min(gpu.blocks)])
    view = InterfaceTensor(taken)
    view.__cuda_array_interface__["data"] = (arena, False)
    with pytest.raises(InputMismatch, match="output 'y' overlaps 'the arena' in memory"):
        bound.bind({"y": view})


def test_unbound_inputs_are_named(gpu: FakeDriver) -> None:
    bound = device_executable(gpu, ADD_RELU, {"b": B}).instantiate()
    with pytest.raises(InputMismatch, match="input 'x' is not bound; bind"):
        bound.replay()


def test_memory_of_ours_is_gone_after_shutdown(gpu: FakeDriver) -> None:
    """Inputs that were filled must be filled again; bound ones of the caller stay bound."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    ours, theirs = exe.instantiate(), exe.instantiate()
    x = DeviceTensor(gpu, random(RNG, 4, 6))
    ours.fill({"x": x.array})
    theirs.bind({"x": x})
    for bound in (ours, theirs):
        bound.replay()
    runtime.shutdown()
    with pytest.raises(InputMismatch, match="input 'x' is not bound"):
        ours.replay()
    theirs.replay()
    np.testing.assert_array_equal(theirs["y"].numpy(), add_relu(x.array, B)[0])


def test_a_stream_waits_for_the_device(gpu: FakeDriver) -> None:
    """An event of submitted replays is over when their results are there."""
    exe = device_executable(gpu, ADD_RELU, {"b": B})
    x, y = DeviceTensor(gpu, random(RNG, 4, 6)), empty(gpu)
    bound = exe.bind(x=x, y=y)
    runtime.Stream().submit(bound, 3).synchronize()
    np.testing.assert_array_equal(y.array, add_relu(x.array, B)[0])
