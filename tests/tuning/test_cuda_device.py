"""Timing on a GPU, as far as a fake driver shows it: what runs, on which memory, and what is done between."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from aicf.backends.cuda.runtime import cublaslt
from aicf.backends.cuda.runtime.device_program import (
    Address,
    Dependency,
    DeviceProgram,
    KernelNode,
    LibraryNode,
    Scalar,
    TensorMap,
)
from aicf.backends.cuda.runtime.library import Offer
from aicf.backends.cuda.runtime.storage import read
from aicf.backends.native import NativeCode
from aicf.errors import BackendUnavailable
from aicf.policies.tuning_table import WorkloadKey
from aicf.tuning import cuda_device
from aicf.tuning.cases import Case, Memory, Prepared
from aicf.tuning.cuda_device import LAUNCHES, RUNS, WARM_UP, GpuDevice
from tests.backends.cuda.conftest import gpu
from tests.backends.cuda.device_programs import cuda_code
from tests.backends.cuda.fake_driver import FakeDriver

__all__ = ["gpu"]

FLUSH_BYTES = 1 << 20
"""As much as the fake GPU has room for."""

MEMORY = (Memory(0, "u8"), Memory(1000, "f16"), Memory(512, "f32"))


def kernel(*after: Dependency) -> KernelNode:
    addresses = (Address(1, 0), Address(2, 64))
    sizes = ((1, 1, 1), (32, 1, 1), (1, 1, 1), 0)
    return KernelNode("add", "k", *sizes, addresses, (), (Scalar("i32", 7),), "aas", after)


def case(program: DeviceProgram, early: bool = False) -> Case:
    return Case(
        "add",
        WorkloadKey("add", {}, "", (), ()),
        "cuda.add",
        1,
        {},
        (),
        early,
        "p",
        MEMORY,
        cuda_code([program]),
    )


def prepared(*cases: Case) -> Prepared:
    return Prepared("cuda", "sm_90a", 1, {}, {}, cases)


ONE = DeviceProgram("p", 3, (kernel(),), (), "k")


@pytest.mark.parametrize("fixed", [False, True])
def test_cold_runs_have_weights_of_their_own_after_a_flush(
    fixed: bool, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
):
    """Every run of the cold program reads other weights, or all of another set if there are none; nothing stays
    allocated."""
    monkeypatch.setattr(cuda_device, "FLUSH_BYTES", FLUSH_BYTES)
    monkeypatch.setattr(cuda_device, "PAUSE_S", 0.0)
    monkeypatch.setattr(cuda_device, "LAUNCH_US", 1e9)
    seen: list[tuple[int, ...]] = []
    gpu.kernels["k"] = lambda values: seen.append(tuple(values))
    device = GpuDevice(prepared().setting)
    made = replace(case(ONE), memory=(*MEMORY[:2], replace(MEMORY[2], fixed=fixed)))
    samples = device.time(made, made.native)
    assert len(samples.cold) == len(samples.warm) == LAUNCHES
    launches = WARM_UP + LAUNCHES
    cold, warm = seen[-2 * launches * RUNS : -launches * RUNS], seen[-launches * RUNS :]
    assert len(warm) == launches * RUNS
    data, weights = ({values[index] for values in cold} for index in (0, 1))
    assert len(weights) == RUNS and len(data) == (1 if fixed else RUNS)
    assert len(set(warm)) == 1 and warm[0] in cold
    flushes = [size for size in gpu.named("clear") if size == FLUSH_BYTES]
    assert len(flushes) == launches
    assert gpu.live_bytes == 0


def test_all_sets_of_operands_hold_the_same_random_data(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    """Small floats in every operand, larger than what is made on the host too; what has no data is left alone."""
    monkeypatch.setattr(cuda_device, "FLUSH_BYTES", FLUSH_BYTES)
    monkeypatch.setattr(cuda_device, "PAUSE_S", 0.0)
    monkeypatch.setattr(cuda_device, "_RANDOM_BYTES", 512)
    cuda_device._random.cache_clear()  # pyright: ignore[reportPrivateUsage]
    seen: dict[int, bytes] = {}

    def look(values: Sequence[int]) -> None:
        for address, nbytes in zip(values, (1000, 448), strict=False):
            seen[address] = ctypes.string_at(address, nbytes)

    gpu.kernels["k"] = look
    GpuDevice(prepared().setting).time(case(ONE), case(ONE).native)
    cuda_device._random.cache_clear()  # pyright: ignore[reportPrivateUsage]
    halves = {data for data in seen.values() if len(data) == 1000}
    (found,) = {np.frombuffer(data, np.float16).tobytes() for data in halves}
    values = np.frombuffer(found, np.float16).astype(np.float64)
    assert 0.05 < values.std() < 0.2 and np.isfinite(values).all()
    assert (values[:244] == values[256:500]).all()


def test_between_two_runs_stands_the_neighbour_whose_own_time_does_not_count(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
):
    """A run takes 3 us and the neighbour 1: the case took 3; they alternate, each on operands of its own."""
    monkeypatch.setattr(cuda_device, "FLUSH_BYTES", FLUSH_BYTES)
    monkeypatch.setattr(cuda_device, "PAUSE_S", 0.0)
    ran: list[tuple[str, tuple[int, ...]]] = []
    taken: list[float] = []

    def kernel_of(name: str, us: float) -> Callable[[Sequence[int]], None]:
        def run(values: Sequence[int]) -> None:
            ran.append((name, tuple(values)))
            taken.append(us)

        return run

    def since_last(start: int, end: int) -> float:
        us = sum(taken)
        taken.clear()
        return us / 1e3

    gpu.kernels |= {"k": kernel_of("k", 3.0), "n": kernel_of("n", 1.0)}
    monkeypatch.setattr(gpu, "milliseconds", since_last)
    small = DeviceProgram("p", 3, (replace(kernel(), symbol="n"),), (), "k")
    device = GpuDevice(replace(prepared().setting, neighbour=case(small, early=True)))
    samples = device.time(case(ONE, early=True), case(ONE, early=True).native)
    assert sorted(samples.cold)[LAUNCHES // 2] == sorted(samples.warm)[LAUNCHES // 2] == 3.0
    pairs = ran[:200]
    assert [name for name, _ in pairs] == ["k", "n"] * 100
    operands = {
        name: {address for other, values in pairs if other == name for address in values[:2]} for name in "kn"
    }
    assert not operands["k"] & operands["n"]


def test_a_neighbour_starts_early_only_beside_what_does():
    memory = (Memory(0, "u8"), Memory(8, "f16", True))
    program = DeviceProgram("p", 2, (replace(kernel(), addresses=(Address(1, 0),)),), (), "k")
    module, cubins = read(cuda_code([program]).code)
    for early in (False, True):
        link = cuda_device._Link(program, memory, early, module, cubins)  # pyright: ignore[reportPrivateUsage]
        pair = link.followed(replace(link, early=True))
        assert pair.early == early
        assert [node.after for node in pair.program.nodes()] == [(), (Dependency(0, early),)]
        assert [node.addresses[0].base for node in pair.program.nodes()] == [1, 3]
        assert [region.fixed for region in pair.memory] == [False, True, False, False]
        assert pair.program.table_size == 4


def test_a_gpu_without_room_is_told_before_anything_runs(gpu: FakeDriver):
    huge = replace(case(ONE), memory=(Memory(1 << 50, "f16"),))
    with pytest.raises(BackendUnavailable, match="a case needs 1,125,899,906,842,624 bytes"):
        GpuDevice(prepared().setting).time(huge, huge.native)
    assert not gpu.named("allocate")


def test_runs_follow_each_other_as_instructions_do():
    """Edges inside a run stay; a run waits for the one in front, early where the kernel may start early."""
    two = DeviceProgram("p", 3, (kernel(), kernel(Dependency(0, True))), (), "kk")
    repeated = cuda_device._repeated(two, 3, 2, True)  # pyright: ignore[reportPrivateUsage]
    assert [node.after for node in repeated.nodes()] == [
        (),
        (Dependency(0, True),),
        (Dependency(1, True),),
        (Dependency(2, True),),
        (Dependency(3, True),),
        (Dependency(4, True),),
    ]
    assert [node.addresses[0].base for node in repeated.nodes()] == [1, 1, 4, 4, 1, 1]
    assert repeated.table_size == 6


def test_descriptors_move_with_their_operands():
    map_ = TensorMap(1, 0, "f16", (64, 8), (128,), (64, 8), 128, 256, 0, "zeros")
    node = replace(kernel(), maps=(map_,), order="maas")
    repeated = cuda_device._repeated(  # pyright: ignore[reportPrivateUsage]
        DeviceProgram("p", 3, (node,), (), "k"), 2, 2, False
    )
    assert [node.maps[0].base for node in repeated.kernels] == [1, 4]
    assert repeated.kernels[1].after == (Dependency(0, False),)


CALL = {"algorithm": "", "workspace_bytes": 4096, "operands": ["a", "b", "d"]}


def library_case() -> Case:
    node = LibraryNode("mm", "cublasLt.matmul", "", CALL, tuple(Address(n, 0) for n in range(3)))
    made = case(DeviceProgram("p", 3, (), (node,), "l"))
    return replace(made, device_fields=("algorithm", "library", "workspace_bytes"))


def test_the_library_names_its_algorithms(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    """Each becomes a variant whose code calls that algorithm, and whose fields are what the record lacks."""
    monkeypatch.setattr(cublaslt, "version", lambda: "13.0.2")
    monkeypatch.setattr(cublaslt, "open_handle", lambda: 5)
    monkeypatch.setattr(cublaslt, "close_handle", lambda handle: None)
    offers = [Offer("01" * 64, 0, "one"), Offer("02" * 64, 256, "two")]
    monkeypatch.setattr(cublaslt, "offers", lambda handle, node, count: offers)
    made = library_case()
    device = GpuDevice(prepared(made).setting)
    assert device.libraries == {"cublasLt": "13.0.2"}
    first, second = device.variants(made)
    assert [each.spec for each in (first, second)] == [{"algorithm": "one"}, {"algorithm": "two"}]
    assert second.record == {"algorithm": "02" * 64, "library": "13.0.2", "workspace_bytes": 256}
    assert node_of(second.native).call == {**CALL, "algorithm": "02" * 64, "workspace_bytes": 256}
    assert node_of(second.native).version == "13.0.2"


def node_of(native: NativeCode) -> LibraryNode:
    module, _ = read(native.code)
    return module.programs[0].libraries[0]
