"""Kernels by instruction from CUPTI's records, on a CUPTI and a driver that run nothing on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aicf.backends.cuda.runtime.activity import recording
from aicf.errors import BackendUnavailable
from tests.backends.cuda.device_programs import device_executable
from tests.backends.cuda.fake_driver import FakeDriver
from tests.runtime.support import ADD_RELU, random

RNG = np.random.default_rng(83)


class Kind(IntEnum):
    CONCURRENT_KERNEL = 10
    EXTERNAL_CORRELATION = 39
    DRIVER = 4
    RUNTIME = 5


class FakeCupti(ModuleType):
    """What `activity` calls of cupti-python: it makes a record of each kernel that the fake driver is given.

    Args:
        gpu: The driver, whose `run` it watches.
        refuses: Whether it keeps users from recording.
    """

    ActivityKind = Kind
    ExternalCorrelationKind = SimpleNamespace(CUSTOM0=5)

    class cuptiError(Exception): ...

    def __init__(self, gpu: FakeDriver, refuses: bool = False) -> None:
        super().__init__("cupti.cupti")
        self.gpu, self.refuses = gpu, refuses
        self.enabled: set[int] = set()
        self.stack: list[int] = []
        self.records: list[Any] = []
        self.completed: Callable[[Sequence[Any]], None] = lambda records: None
        self._run, gpu.run = gpu.run, self._watched  # type: ignore[method-assign]

    def _watched(self, kernel: Any, stream: int) -> None:
        self._run(kernel, stream)
        number = len(self.records)
        if Kind.DRIVER in self.enabled:
            self.records.append(SimpleNamespace(kind=Kind.DRIVER))
        if self.stack and Kind.DRIVER in self.enabled:  # CUPTI puts it before the record of the call
            self.records.append(
                SimpleNamespace(
                    kind=Kind.EXTERNAL_CORRELATION, correlation_id=number, external_id=self.stack[-1]
                )
            )
        name = self.gpu.functions[kernel.function]
        times = {"start": 1000 * number, "end": 1000 * number + 700}
        self.records.append(
            SimpleNamespace(
                kind=Kind.CONCURRENT_KERNEL, correlation_id=number, stream_id=7, name=name, **times
            )
        )

    def activity_register_callbacks(self, buffer: Callable[[], tuple[int, int]], completed: Any) -> None:
        assert buffer() == (8 << 20, 0)
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.refuses:
            raise self.cuptiError("ERROR_INSUFFICIENT_PRIVILEGES")
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        assert kind == 5 and self.enabled
        self.stack.append(number)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self.stack.pop()

    def activity_flush_all(self, flag: int) -> None:
        records, self.records = self.records, []
        self.completed(records[: len(records) // 2])
        self.completed(records[len(records) // 2 :])


def test_spans_are_those_of_the_kernels_of_each_instruction(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels' own times, streams and symbols; what nobody asked for is left out, and nothing stays on."""
    bound = device_executable(gpu, ADD_RELU, {"b": random(RNG, 6)}).instantiate()
    bound.fill({"x": random(RNG, 4, 6)})
    cupti = FakeCupti(gpu)
    monkeypatch.setitem(sys.modules, "cupti.cupti", cupti)
    timeline = bound.timeline(2)
    assert timeline is not None and timeline.method == "records of the device"
    assert [span.launch for span in timeline.spans] == [0, 1, 2] * 2
    assert {(span.track, span.duration_us) for span in timeline.spans} == {("stream 7", 0.7)}
    assert timeline.spans[0].start_us == 0 and len({span.symbol for span in timeline.spans}) == 3
    starts = [span.start_us for span in timeline.spans]
    assert starts == sorted(starts) and len(set(starts)) == 6
    assert not cupti.enabled and not cupti.stack


def test_records_of_others_are_left_out(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti(gpu)
    monkeypatch.setitem(sys.modules, "cupti.cupti", cupti)
    gpu.functions[1], gpu.kernels["other"] = "other", lambda values: None
    kernel = SimpleNamespace(function=1, arguments=())
    with recording() as recorder:
        cupti._watched(kernel, gpu.open_stream())
        with recorder.instruction(3):
            cupti._watched(kernel, gpu.open_stream())
    assert [(time.launch, time.symbol) for time in recorder.found()] == [(3, "other")]


def test_a_system_that_keeps_users_from_it_is_told(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti.cupti", FakeCupti(gpu, refuses=True))
    with (
        pytest.raises(
            BackendUnavailable, match=r"INSUFFICIENT_PRIVILEGES\); let users read performance counters"
        ),
        recording(),
    ):
        pass
