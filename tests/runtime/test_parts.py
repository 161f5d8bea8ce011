"""The parts around an executable: memory, threads, streams, devices, profiles, entries."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf import runtime
from aicf.backends.native import CEntry, CProfileEntry, NativeCode
from aicf.backends.registry import load_native
from aicf.dialects.types import ELEMENTS
from aicf.errors import ArtifactError, CaptureError, PolicyError
from aicf.runtime import Executable, Profiler, Stream
from aicf.runtime import executable as executable_module
from aicf.runtime.memory import allocate, allocate_tensor
from aicf.runtime.profiler import InstructionTime, Profile
from aicf.runtime.state import State
from aicf.runtime.tensors import ELEMENT_NAMES, element_name, numpy_dtype
from aicf.runtime.threads import ThreadTeam
from tests.runtime.support import ADD_RELU, COUNTER, add_relu, executable, random

pytestmark = pytest.mark.usefixtures("few_objects")
RNG = np.random.default_rng(11)


def test_element_types_are_those_of_the_dialect() -> None:
    assert {element.name: element.dtype for element in ELEMENTS} == {n: numpy_dtype(n) for n in ELEMENT_NAMES}
    assert all(element_name(element.dtype) == element.name for element in ELEMENTS)
    with pytest.raises(ArtifactError, match="unknown element type 'f31'; known: f64, f32"):
        numpy_dtype("f31")


@pytest.mark.parametrize("align", [1, 64, 256, 4096])
def test_buffers_are_aligned_zeroed_and_counted(align: int) -> None:
    gc.collect()
    before = runtime.statistics()
    buffer = allocate(1000, align)
    assert buffer.ctypes.data % max(align, 64) == 0
    assert buffer.nbytes == 1000 and not buffer.any()
    during = runtime.statistics()
    assert during.live_bytes - before.live_bytes >= 1000 and during.buffers == before.buffers + 1
    view = buffer[10:20]
    del buffer
    gc.collect()
    assert runtime.statistics().buffers == during.buffers
    del view
    gc.collect()
    assert runtime.statistics().buffers == before.buffers


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages to ask for")
def test_large_buffers_ask_for_huge_pages() -> None:
    buffer = allocate(8 << 20, 128)
    assert buffer.ctypes.data % (2 << 20) == 0
    assert buffer.nbytes == 8 << 20 and buffer.flags.writeable and not buffer.any()
    assert "hg" in _flags_of_mapping(buffer.ctypes.data)
    before = runtime.statistics()
    del buffer
    gc.collect()
    assert runtime.statistics().live_bytes <= before.live_bytes - (8 << 20)


def _flags_of_mapping(address: int) -> list[str]:
    """What the kernel knows about the memory at an address, from /proc/self/smaps."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError("the address is not mapped")


def test_strided_tensors() -> None:
    tensor = allocate_tensor((2, 3), (1, 2), "f32", 24)
    tensor[...] = values = random(RNG, 2, 3)
    assert tensor.strides == (4, 8)
    np.testing.assert_array_equal(tensor, values)


# Threads


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (7, 1, 33)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "i64", "i1"])
def test_states_start_as_copies(dtype: str, shape: tuple[int, ...]) -> None:
    """Zeros are not copied, but are memory of the state's own; the sign of a zero is kept."""
    drawn = np.asarray(RNG.integers(0, 2, shape)).astype(numpy_dtype(dtype))
    starts = {"drawn": drawn, "zeros": np.zeros(shape, drawn.dtype), "negative": -np.zeros(shape, np.float32)}
    state = State(starts)
    for name, start in starts.items():
        found = state.arrays[name]
        assert found.tobytes() == start.tobytes() and (found.shape, found.dtype) == (shape, start.dtype)
        assert found.flags.writeable and not np.shares_memory(found, start)
        assert not found.size or found.ctypes.data % 64 == 0


def test_a_team_runs_all_calls_at_once() -> None:
    team = ThreadTeam(3)
    meeting = threading.Barrier(3)
    seen: list[int] = []

    def call(number: int) -> None:
        meeting.wait(10)
        seen.append(number)

    for _ in range(5):
        team.run([lambda number=number: call(number) for number in range(3)])
    assert sorted(seen) == sorted([0, 1, 2] * 5)
    team.release()
    team.run([lambda number=number: call(number) for number in range(3)])
    team.release()


@pytest.mark.parametrize("failing", [0, 2])
def test_a_team_raises_what_a_call_raised(failing: int) -> None:
    team = ThreadTeam(3)

    def call(number: int) -> None:
        if number == failing:
            raise ValueError(f"from {number}")

    calls: Sequence[Callable[[], None]] = [lambda number=number: call(number) for number in range(3)]
    for _ in range(2):
        with pytest.raises(ValueError, match=f"from {failing}"):
            team.run(calls)
    team.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_teams_start_again_in_a_forked_process() -> None:
    program = (
        "import os\n"
        "from aicf.runtime.threads import team_of\n"
        "seen = []\n"
        "calls = [lambda: seen.append(0), lambda: seen.append(1)]\n"
        "team_of(2).run(calls)\n"
        "child = os.fork()\n"
        "team_of(2).run(calls)\n"
        "assert sorted(seen) == [0, 0, 1, 1]\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


class FakeCode:
    """Adds x and b into y by the pointer table, in as many threads as it is entered by; instruction by instruction."""

    def __init__(self) -> None:
        self.entered: list[tuple[int, int]] = []
        self.meeting = threading.Barrier(2)

    def entry(self, symbol: str) -> Any:
        return self

    def profile_entry(self, symbol: str) -> Any:
        return None

    def function_addresses(self) -> Sequence[int]:
        return (1234,)

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        def run() -> None:
            self.meeting.wait(10)
            self.entered.append((tid, nthreads))
            pointers = (ctypes.c_void_p * 6).from_address(table)
            assert pointers[5] == 1234
            if tid == 0:
                x, y = (
                    np.frombuffer((ctypes.c_float * 24).from_address(p or 0), np.float32)
                    for p in pointers[1:4:2]
                )
                y[:] = x * 2

        return run


def test_plans_with_threads_enter_the_code_together(monkeypatch: pytest.MonkeyPatch) -> None:
    code = FakeCode()
    exe = executable(ADD_RELU.replace("threads = 1", "threads = 2"), {"b": random(RNG, 6)})
    monkeypatch.setattr(executable_module, "load_native", lambda *_: code)
    x = random(RNG, 4, 6)
    for _ in range(3):
        np.testing.assert_array_equal(exe(x)[0], x * 2)
    assert sorted(code.entered) == [(0, 2)] * 3 + [(1, 2)] * 3
    runtime.shutdown()


# Native entries


def test_c_entries_get_their_arguments() -> None:
    seen: list[tuple[int, ...]] = []
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        lambda *given: seen.append(given)
    )
    address = ctypes.cast(run, ctypes.c_void_p).value
    assert address is not None
    call = CEntry(address).bind(1, 2, 4096)
    call()
    call()
    one = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        lambda *given: seen.append(given)
    )
    address = ctypes.cast(one, ctypes.c_void_p).value
    assert address is not None
    CProfileEntry(address).bind(-1, 0, 1, 8192)()
    assert seen == [(1, 2, 4096), (1, 2, 4096), (-1, 0, 1, 8192)]


def test_unknown_native_code() -> None:
    with pytest.raises(PolicyError, match="unknown backend 'tpu'"):
        load_native("tpu", NativeCode(b"", ()))
    with pytest.raises(ArtifactError, match="reference code is no valid program"):
        load_native("reference", NativeCode(b"\xff\x00", ()))
    with pytest.raises(ArtifactError, match="reference code is no valid program"):
        load_native("reference", NativeCode(b"builtin.module {", ()))
    with pytest.raises(ArtifactError, match="reference code has no program for entry 'aicf_x'"):
        load_native("reference", NativeCode(b"builtin.module {\n}", ())).entry("aicf_x")


# GraphExec


def test_a_graph_exec_is_for_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    code = FakeCode()
    exe = executable(ADD_RELU, {"b": random(RNG, 6)})
    monkeypatch.setattr(executable_module, "load_native", lambda *_: code)
    bound = exe.bind(x=random(RNG, 4, 6))
    other = threading.Thread(target=bound.replay)
    other.start()
    while code.meeting.n_waiting == 0:
        time.sleep(0.001)
    with pytest.raises(
        CaptureError, match="this GraphExec is replaying in another thread; make one per thread"
    ):
        bound.replay()
    code.meeting.wait(10)
    other.join()


# Streams


def test_a_stream_keeps_order_and_runs_beside_the_caller() -> None:
    stream, seen, gate = Stream(), [], threading.Event()
    first = stream.submit(lambda: (gate.wait(10), seen.append(1)))
    second = stream.submit(lambda: seen.append(2), 3)
    assert not first.is_done and not second.is_done
    gate.set()
    stream.record().synchronize()
    assert seen == [1, 2, 2, 2] and second.is_done
    stream.release()


def test_streams_wait_for_events() -> None:
    one, other, seen, gate = Stream(), Stream(), [], threading.Event()
    done = one.submit(lambda: (gate.wait(10), seen.append("one")))
    other.wait(done)
    other.submit(lambda: seen.append("other"))
    gate.set()
    other.synchronize()
    assert seen == ["one", "other"]
    runtime.shutdown()
    other.submit(lambda: seen.append("again")).synchronize()
    assert seen[-1] == "again"
    runtime.shutdown()


def test_replays_on_a_stream() -> None:
    w, x = random(RNG, 3), random(RNG, 3)
    exe, stream = executable(COUNTER, {"w": w}), Stream()
    stream.submit(exe.bind(x=x), 3)
    stream.synchronize()
    np.testing.assert_array_equal(exe.state()["w"], w + x + x + x)
    stream.release()


def test_errors_come_out_of_a_stream() -> None:
    stream = Stream()

    def fail() -> None:
        raise ValueError("in the stream")

    event = stream.submit(fail)
    with pytest.raises(ValueError, match="in the stream"):
        event.synchronize()
    with pytest.raises(ValueError, match="in the stream"):
        stream.synchronize()
    stream.synchronize()
    stream.release()


# Devices and profiles


def test_devices_of_a_backend() -> None:
    (device,) = runtime.devices("reference")
    assert (device.backend, device.arch) == ("reference", "typed") and device.name
    assert device in runtime.devices()
    with pytest.raises(PolicyError, match="unknown backend 'tpu'"):
        runtime.devices("tpu")


def test_profiles_join_times_to_sources() -> None:
    exe = executable(ADD_RELU, {"b": random(RNG, 6)})
    profile = Profiler(exe).measure(random(RNG, 4, 6), repeats=5)
    assert [row.name for row in profile.instructions] == ["sum", "act", "twice"]
    assert profile.instructions[1].src == ("act", "relu")
    assert all(0 <= row.best_us <= row.median_us for row in profile.instructions) and profile.replay_us > 0
    by_source = profile.by_source()
    assert set(by_source) == {"sum", "act", "relu", "twice"}
    assert sum(by_source.values()) == pytest.approx(profile.total_us, rel=1e-12)


def test_the_time_of_a_fused_instruction_is_shared_by_the_work_of_its_ops() -> None:
    rows = (
        InstructionTime("a", "gemm", ("fc", "act"), "cpu.gemm", 8.0, 7.0),
        InstructionTime("b", "generated", ("act", "sum"), "cpu.generated", 6.0, 5.0),
        InstructionTime("c", "copy", (), "cpu.copy", 1.0, 1.0),
    )
    known = {"a": {"fc": 300.0, "act": 100.0}}
    profile = Profile("p", rows, 20.0, lambda: known)
    assert profile.by_source() == {"fc": 6.0, "act": 2.0 + 3.0, "sum": 3.0, "c": 1.0}
    assert sum(profile.by_source().values()) == profile.total_us == 15.0
    lines = str(profile).splitlines()
    assert lines[0] == "@p: replay 20.00 us, instructions 15.00 us"
    assert lines[2] == "      8.000      7.000  53.3%  a gemm by cpu.gemm for fc, act"
    assert lines[4].endswith("c copy by cpu.copy") and len(lines) == 5
    assert repr(profile) == "<Profile of @p: 3 instructions, replay 20.00 us; print() shows them>"
    assert Profile("p", (), 1.0).by_source() == {} and "instructions 0.00 us" in str(Profile("p", (), 1.0))


def test_profiling_leaves_the_state_alone() -> None:
    w = random(RNG, 3)
    exe = executable(COUNTER, {"w": w})
    Profiler(exe).measure(random(RNG, 3), repeats=3)
    np.testing.assert_array_equal(exe.state()["w"], w)


def test_code_without_profile_entry_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    exe: Executable = executable(ADD_RELU, {"b": random(RNG, 6)})
    monkeypatch.setattr(executable_module, "load_native", lambda *_: FakeCode())
    with pytest.raises(
        CaptureError, match="code of backend 'reference' runs whole programs only; time replay"
    ):
        Profiler(exe).measure(random(RNG, 4, 6))


def test_a_thousand_replays_give_the_same_bits() -> None:
    x, b = random(RNG, 4, 6), random(RNG, 6)
    exe = executable(ADD_RELU, {"b": b})
    bound = exe.bind(x=x)
    hashes: set[bytes] = set()
    for _ in range(1000):
        bound.replay()
        hashes.add(bound["y"].tobytes())
    assert hashes == {add_relu(x, b)[0].tobytes()}
