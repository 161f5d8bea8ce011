"""Queues of work: a stream runs what it is given in order, beside the caller.

Opaque on purpose: no backend's type appears here. The streams of a *plan* are decided by `schedule` and live
inside the native program; these are for callers who want to go on while a program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from aicf.errors import InputMismatch
from aicf.runtime.device import memory_of
from aicf.runtime.graph_exec import GraphExec, check_runs
from aicf.runtime.lifecycle import register
from aicf.runtime.on_device.stream import DeviceEvent, DeviceQueue


class Event(Protocol):
    """The end of one piece of submitted work."""

    @property
    def is_done(self) -> bool:
        """Whether the work has ended, well or not."""
        ...

    def synchronize(self) -> None:
        """Waits for the end; raises what the work raised."""
        ...


class HostEvent(Event):
    """See `Event`: of work in a thread of this process."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def synchronize(self) -> None:
        self._future.result()


class Stream:
    """A first-in first-out queue: with a thread of its own, or of a device.

    Args:
        device: `cuda` or `cuda:1` for a queue of that device, which takes GraphExecs and needs no thread; None for one
            with a thread, which takes functions as well.
        priority: Of a device's queue: one with a lower number is served first; numbers beyond the device's range are
            its limits.

    Raises:
        PolicyError: there is no such backend.
        BackendUnavailable: there is no such device here.
    """

    def __init__(self, device: str | None = None, *, priority: int = 0) -> None:
        if device is None and priority:
            raise InputMismatch("a stream with a thread has no priority; name a device")
        self._device = None if device is None else DeviceQueue(memory_of(device), priority)
        self._worker: ThreadPoolExecutor | None = None
        self._pending: list[Event] = []

    @property
    def handle(self) -> int:
        """The device's own handle of the queue, a `CUstream` on CUDA. Raises InputMismatch if it has a thread."""
        if self._device is None:
            raise InputMismatch(
                "a stream with a thread has no handle of a device; name a device: Stream('cuda')"
            )
        return self._device.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which libraries of CUDA take each other's streams: its version, and the handle."""
        return 0, self.handle

    def submit(self, work: GraphExec | Callable[[], object], n: int = 1) -> Event:
        """Queues `n` replays of a GraphExec, or `n` calls of a function.

        Raises InputMismatch if `n` is no whole number of at least 1, or a device's queue is given a function.
        """
        check_runs(n)
        if self._device is not None:
            if not isinstance(work, GraphExec):
                raise InputMismatch(
                    "a stream of a device takes GraphExecs; functions go to Stream() without a device"
                )
            work.replay(n, stream=self)
            return self._device.record()
        if isinstance(work, GraphExec):
            return self._queue(partial(_replay, work, n))
        return self._queue(partial(_repeat, work, n))

    def wait(self, event: Event) -> None:
        """Makes later work wait for `event`, usually of another stream; an error of it is an error here.

        A device's queue waits for events of devices by itself; for one of a thread, the caller waits.
        """
        if self._device is None:
            self._queue(event.synchronize)
        elif isinstance(event, DeviceEvent):
            self._device.wait(event)
        else:
            event.synchronize()

    def record(self) -> Event:
        """An event at the end of everything queued so far."""
        return self._queue(lambda: None) if self._device is None else self._device.record()

    def synchronize(self) -> None:
        """Waits for everything queued; raises the first error since the last time."""
        if self._device is not None:
            self._device.synchronize()
            return
        pending, self._pending = self._pending, []
        errors = [error for event in pending if (error := _error_of(event)) is not None]
        if errors:
            raise errors[0]

    def release(self) -> None:
        """Waits for everything queued and ends the thread; the next `submit` starts it again."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
            self._worker = None

    def _queue(self, work: Callable[[], None]) -> Event:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "aicf-stream")
            register(self)
        event = HostEvent(self._worker.submit(work))
        self._pending = [
            known for known in self._pending if not known.is_done or _error_of(known) is not None
        ]
        self._pending.append(event)
        return event


def _replay(work: GraphExec, n: int) -> None:
    work.replay(n)
    work.synchronize()


def _repeat(work: Callable[[], object], n: int) -> None:
    for _ in range(n):
        work()


def _error_of(event: Event) -> BaseException | None:
    try:
        event.synchronize()
    except BaseException as error:
        return error
    return None
