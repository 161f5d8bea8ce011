"""The memory of a device: kept and reused pieces, limits, other libraries' allocators, pinned arrays. Without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from aicf import runtime
from aicf.errors import BackendUnavailable, InputMismatch
from aicf.runtime import DevicePool, Executable
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.fake_driver import HOPPER, FakeDriver
from tests.runtime.support import ADD_RELU, add_relu, random

RNG = np.random.default_rng(71)
B = random(RNG, 6)


@pytest.fixture
def pool(gpu: FakeDriver) -> Iterator[DevicePool]:
    """The pool of the fake GPU, without settings at the end."""
    found = runtime.pool()
    yield found
    found.use(None)
    found.keep, found.limit = 0, None


@pytest.fixture
def exe(gpu: FakeDriver) -> Executable:
    return device_executable(gpu, ADD_RELU, {"b": B})


def assert_runs(exe: Executable) -> None:
    x = random(RNG, 4, 6)
    for got, wanted in zip(exe(x), add_relu(x, B), strict=True):
        np.testing.assert_array_equal(got, wanted)


class Counting:
    """An allocator as another library's, on the fake driver; what it gives starts `shift` bytes later."""

    def __init__(self, gpu: FakeDriver, shift: int = 0) -> None:
        self.gpu, self.shift = gpu, shift
        self.live: dict[int, int] = {}

    def allocate(self, nbytes: int, stream: int) -> int:
        assert stream == 0
        address = self.gpu.allocate(nbytes + self.shift) + self.shift
        self.live[address] = nbytes
        return address

    def free(self, address: int, nbytes: int, stream: int) -> None:
        assert stream == 0 and self.live.pop(address) == nbytes
        self.gpu.free(address - self.shift)


def test_nothing_is_kept_by_default(gpu: FakeDriver, exe: Executable, pool: DevicePool) -> None:
    assert_runs(exe)
    assert pool.live_bytes == gpu.live_bytes > 0
    exe.release()
    gc.collect()
    assert (pool.live_bytes, pool.kept_bytes, gpu.live_bytes) == (0, 0, 0)


def test_kept_memory_is_given_again_without_the_driver(
    gpu: FakeDriver, exe: Executable, pool: DevicePool
) -> None:
    pool.keep = 1 << 20
    assert_runs(exe)
    exe.release()
    gc.collect()
    kept = pool.statistics()
    assert kept.live_bytes == 0 and kept.kept_bytes == gpu.live_bytes > 0
    gpu.calls.clear()
    assert_runs(exe)
    assert not gpu.named("allocate") and pool.statistics().reused == kept.requests


def test_a_kept_piece_is_given_once_queued_work_no_longer_uses_it(
    gpu: FakeDriver, exe: Executable, pool: DevicePool
) -> None:
    """The driver waits when it frees memory, so the pool waits before it gives a piece to somebody else: once for all
    pieces that are there then."""
    pool.keep = 1 << 20
    assert_runs(exe)
    pending = list[str]()
    stream = runtime.Stream("cuda")
    gpu.queues[stream.handle].append(lambda: pending.append("done"))
    exe.release()
    gc.collect()
    gpu.calls.clear()
    assert_runs(exe)
    assert pending == ["done"] and len(gpu.named("synchronize_all")) == 1


def test_trimming_gives_memory_back(gpu: FakeDriver, exe: Executable, pool: DevicePool) -> None:
    pool.keep = 1 << 20
    assert_runs(exe)
    exe.release()
    gc.collect()
    kept = pool.kept_bytes
    assert pool.trim() == kept > 0 and gpu.live_bytes == 0
    pool.keep = 256
    assert_runs(exe)
    exe.release()
    gc.collect()
    assert pool.kept_bytes == gpu.live_bytes <= 256


def test_a_shutdown_gives_kept_memory_back_and_keeps_the_settings(
    gpu: FakeDriver, exe: Executable, pool: DevicePool
) -> None:
    pool.keep = 1 << 20
    assert_runs(exe)
    runtime.shutdown()
    gc.collect()
    runtime.shutdown()
    assert gpu.live_bytes == 0 and runtime.pool().keep == 1 << 20
    assert_runs(exe)


def test_a_full_device_gives_up_what_is_kept_first(
    gpu: FakeDriver, exe: Executable, pool: DevicePool
) -> None:
    """Memory that nobody holds is no reason to fail."""
    pool.keep = 1 << 20
    assert_runs(exe)
    exe.release()
    gc.collect()
    gpu.device = type(HOPPER)("Fake H100", 90, gpu.live_bytes + 64, 132, 13000)
    address = pool.allocate(300, "a test")
    assert pool.kept_bytes < gpu.live_bytes + 64
    pool.free(address)


def test_what_is_short_of_memory_is_told_who_holds_it(
    gpu: FakeDriver, exe: Executable, pool: DevicePool
) -> None:
    assert_runs(exe)
    held = pool.holders()
    assert list(held) == ["instances of @add_relu", "weights and constants"]
    told = "this process holds, in bytes: " + ", ".join(f"{who} {size:,}" for who, size in held.items())
    with pytest.raises(BackendUnavailable) as error:
        pool.allocate(1 << 40, "a test")
    assert error.value.message.endswith(told)
    with pytest.raises(BackendUnavailable) as error:
        pool.admit(1 << 40, "@big")
    assert f"; {told}; end other processes" in error.value.message


def test_a_limit_holds_for_all_programs(gpu: FakeDriver, exe: Executable, pool: DevicePool) -> None:
    assert_runs(exe)
    pool.limit = pool.live_bytes
    with pytest.raises(BackendUnavailable, match=r"above the pool's limit of [\d,]+; this process holds"):
        exe.instantiate().fill({"x": random(RNG, 4, 6)})
    pool.limit = None
    assert_runs(exe)


def test_an_allocator_of_another_library_takes_the_place_of_the_driver(
    gpu: FakeDriver, exe: Executable, pool: DevicePool
) -> None:
    """What it gave goes back to it, also after another one took its place."""
    theirs = Counting(gpu)
    pool.use(theirs)
    assert_runs(exe)
    assert sum(theirs.live.values()) == pool.live_bytes == gpu.live_bytes
    pool.use(None)
    exe.release()
    gc.collect()
    assert not theirs.live and gpu.live_bytes == 0


def test_what_an_allocator_does_wrong_is_told(gpu: FakeDriver, pool: DevicePool) -> None:
    odd = Counting(gpu, shift=8)
    pool.use(odd)
    with pytest.raises(BackendUnavailable, match="no multiple of 256; use another"):
        pool.allocate(512, "a test")
    assert not odd.live

    class Full(Counting):
        def allocate(self, nbytes: int, stream: int) -> int:
            raise RuntimeError("out of their memory")

    pool.use(Full(gpu))
    with pytest.raises(BackendUnavailable, match="does not give 512 bytes: out of their memory"):
        pool.allocate(512, "a test")


@pytest.mark.parametrize("nbytes", [-1, 1.5, True, "1 GiB"])
def test_settings_are_numbers_of_bytes(pool: DevicePool, nbytes: object) -> None:
    with pytest.raises(InputMismatch, match="keep is a number of bytes"):
        pool.keep = nbytes  # type: ignore[assignment]
    with pytest.raises(InputMismatch, match="limit is a number of bytes"):
        pool.limit = nbytes  # type: ignore[assignment]


@pytest.mark.parametrize(("shape", "dtype"), [((3, 5), "f32"), (7, np.int64), ((2, 0), "f16"), ((), "bf16")])
def test_pinned_arrays(gpu: FakeDriver, shape: tuple[int, ...] | int, dtype: object) -> None:
    """Zeroed, counted, and given back with the last view."""
    array = runtime.pinned(shape, dtype)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape) and not np.any(
        array.astype(np.float64)
    )
    assert sum(block.nbytes for block in gpu.pinned.values()) == array.nbytes
    view = array.reshape(-1)
    del array
    gc.collect()
    assert sum(block.nbytes for block in gpu.pinned.values()) == view.nbytes
    del view
    gc.collect()
    assert not gpu.pinned


def test_what_is_no_shape_or_element_is_refused(gpu: FakeDriver) -> None:
    with pytest.raises(InputMismatch, match="has a size that is no whole number"):
        runtime.pinned((2, -1))
    with pytest.raises(InputMismatch, match="'f33' is no element type; known: .*f32"):
        runtime.pinned(3, "f33")
