"""Weights on a device that several executables read: uploaded and prepared once, and given back with the last of them.

On a driver without a GPU.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

from aicf import runtime
from aicf.errors import CaptureError
from aicf.inference.packing import ModelWeights, common_bytes
from aicf.runtime import Executable
from aicf.runtime.on_device.memory import padded
from aicf.runtime.on_device.weights import DeviceWeights
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import ADD_RELU, BUCKETS, add_relu, random, scale

RNG = np.random.default_rng(83)
B, W = random(RNG, 6), random(RNG, 2)
PACK = "w.half"


def assert_scaled(exe: Executable, w: np.ndarray = W) -> None:
    x, m = random(RNG, 5, 2), random(RNG, 5, 2)
    np.testing.assert_array_equal(exe(x, m), scale(x, m, w))


def assert_added(exe: Executable, b: np.ndarray = B) -> None:
    x = random(RNG, 4, 6)
    for result, wanted in zip(exe(x), add_relu(x, b), strict=True):
        np.testing.assert_array_equal(result, wanted)


def kernels_run(gpu: FakeDriver) -> list[str]:
    """Symbols in the order of their first runs: those of `@prepare`, then those of the program."""
    return [symbol for name, symbol in gpu.calls if name == "run"]


def live() -> int:
    gc.collect()
    return runtime.statistics("device").live_bytes


def test_a_weight_is_uploaded_once(gpu: FakeDriver) -> None:
    """The second executable requests the weight's bytes less, as it says it will."""
    before, common = live(), DeviceWeights()
    first, second = (device_executable(gpu, ADD_RELU, {"b": B}, on_device=common) for _ in range(2))
    assert first.memory()["peak@add_relu"] == second.memory()["peak@add_relu"]
    held: list[int] = []
    for exe in (first, second):
        predicted, start = exe.memory()["peak@add_relu"], live()
        assert_added(exe)
        held.append(live() - start)
        assert predicted == held[-1]
    assert held[1] == held[0] - padded(B.nbytes)
    first.release()
    assert_added(second)
    assert_added(first)
    for exe in (first, second):
        exe.release()
    assert live() == before


def test_what_is_packed_on_the_device_is_packed_once(gpu: FakeDriver) -> None:
    before, shared = live(), ModelWeights()
    first, second = (device_executable(gpu, BUCKETS, {"w": W}, on_device=shared.on_device) for _ in range(2))
    assert_scaled(first)
    ran = kernels_run(gpu)
    start, predicted = live(), second.memory()["peak@scale@N=5"]
    gpu.calls.clear()
    assert_scaled(second)
    assert live() - start == predicted
    assert len(ran) == 3 and kernels_run(gpu) == ran[1:]
    assert common_bytes([first, second]) == common_bytes([second]) == padded(64)
    np.testing.assert_array_equal(first.prepared()[PACK], second.prepared()[PACK])
    first.release()
    assert_scaled(second)
    second.release()
    assert live() == before


@pytest.mark.parametrize("common", [None, DeviceWeights()], ids=["alone", "without keys"])
def test_other_weights_are_others(gpu: FakeDriver, common: DeviceWeights | None) -> None:
    """Of one name and size: neither what was uploaded nor what was packed is taken for that of another array."""
    weights = [random(RNG, 2) for _ in range(2)]
    for w in weights:
        assert_scaled(device_executable(gpu, BUCKETS, {"w": w}, on_device=common), w)
    kept = [device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}, on_device=common) for _ in range(2)]
    for exe in kept:
        assert_added(exe, exe.weights["b"])


def test_one_that_fails_to_prepare_leaves_nothing(gpu: FakeDriver) -> None:
    """The next executable uploads and packs as if the failing one had not been."""
    shared = ModelWeights()
    first = device_executable(gpu, BUCKETS, {"w": W}, on_device=shared.on_device)
    gpu.failures["run"] = 1
    with pytest.raises(CaptureError, match="'w.half' failed: run failed"):
        assert_scaled(first)
    gpu.failures.clear()
    del first
    assert_scaled(device_executable(gpu, BUCKETS, {"w": W}, on_device=shared.on_device))
