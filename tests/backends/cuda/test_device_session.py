"""Sessions whose programs run on a device: values, memory, bindings. On a driver without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aicf import InferenceSession, runtime
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.record import Options, Record
from aicf.errors import InputMismatch, PolicyError
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.device_tensor import DeviceTensor, InterfaceTensor
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import BUCKETS, random, scale

RNG = np.random.default_rng(47)
W = random(RNG, 2)


@pytest.fixture
def artifact(gpu: FakeDriver, tmp_path: Path) -> Path:
    """y = x * m + [1, 2] + w / 2, for one row and for five; w / 2 is prepared on the device."""
    exe = device_executable(gpu, BUCKETS, {"w": W})
    record = Record("scale", Options("", "", "", 1), None, BUCKETS, (), {})
    path = tmp_path / "scale.aicf"
    CompiledModel(record, exe.plan, exe.native, exe.weights).save(path)
    return path


@pytest.fixture
def session(artifact: Path) -> Iterator[InferenceSession]:
    with InferenceSession(artifact, device="cuda") as session:
        yield session


def test_arrays_of_the_host_and_of_the_device(gpu: FakeDriver, session: InferenceSession) -> None:
    """An array that tells its shape by its interface alone finds its program too."""
    assert session.target == "cuda:sm_90a"
    for rows in (5, 1, 5):
        x, m = random(RNG, rows, 2), random(RNG, rows, 2)
        wanted = scale(x, m, W)
        np.testing.assert_array_equal(session.run({"x": x, "m": m})["y"], wanted)
        there = DeviceTensor(gpu, x), InterfaceTensor(DeviceTensor(gpu, m))
        np.testing.assert_array_equal(session.run(there)["y"], wanted)
    with pytest.raises(InputMismatch, match=r"no program for N=2; compiled for N=1 \| N=5"):
        session.run([DeviceTensor(gpu, random(RNG, 2, 2)), random(RNG, 2, 2)])


def test_memory_is_what_was_predicted(session: InferenceSession) -> None:
    """What both programs share goes with the first that runs."""
    for rows in (5, 1):
        session.run([random(RNG, rows, 2), random(RNG, rows, 2)])
    assert [row.program for row in session.memory.programs] == ["N=1", "N=5"]
    for row in session.memory.programs:
        assert row.requested == row.predicted > 0
    assert session.memory.requested == runtime.statistics("device").live_bytes


def test_bound_tensors_are_used_in_place(gpu: FakeDriver, session: InferenceSession) -> None:
    """A run is one launch; other shapes are another program."""
    x, m = (DeviceTensor(gpu, random(RNG, 5, 2)) for _ in range(2))
    y = DeviceTensor(gpu, np.full((5, 2), np.nan, np.float32))
    binding = session.bind(x=x, m=InterfaceTensor(m), y=y)
    binding.run()
    x.array[...] = random(RNG, 5, 2)
    gpu.calls.clear()
    binding.start()
    assert [name for name, _ in gpu.calls] == ["launch"]
    binding.wait()
    np.testing.assert_array_equal(y.array, scale(x.array, m.array, W))
    one = random(RNG, 1, 2)
    with pytest.raises(InputMismatch):
        binding.bind(x=one)
    other = session.bind(x=one, m=one)
    other.run()
    np.testing.assert_array_equal(other["y"].numpy(), scale(one, one, W))


def test_closing_gives_the_device_back(gpu: FakeDriver, artifact: Path) -> None:
    session = InferenceSession(artifact)
    session.warm_up()
    assert gpu.live_bytes > 0
    session.close()
    gc.collect()
    assert gpu.live_bytes == 0


def test_the_device_that_is_asked_for_is_the_one_that_runs(artifact: Path) -> None:
    with pytest.raises(
        PolicyError, match="device: 'cpu' is asked for, the program is compiled for cuda:sm_90a"
    ):
        InferenceSession(artifact, device="cpu")


def test_a_session_runs_on_the_device_of_its_number(gpu: FakeDriver, artifact: Path) -> None:
    """Nothing of it is on the first one."""
    gpu.gpus = 2
    x, m = random(RNG, 5, 2), random(RNG, 5, 2)
    with InferenceSession(artifact, device="cuda:1") as session:
        np.testing.assert_array_equal(session.run({"x": x, "m": m})["y"], scale(x, m, W))
    assert set(gpu.named("retain")) == {1}
