"""One GPU as the runtime sees it: `DeviceMemory` on the driver. Every call works from every thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import local

from aicf.backends.cuda.runtime.driver import (
    RELAXED,
    DeviceFacts,
    Driver,
    DriverError,
    facts_of,
    open_driver,
)
from aicf.backends.native import DeviceMemory

_DLPACK_CUDA = 2


@contextmanager
def _unless_broken() -> Generator[None]:
    """For giving back: what a broken context held is gone with it, and to say so again helps nobody."""
    try:
        yield
    except DriverError as error:
        if not error.is_sticky:
            raise


def _release(driver: Driver, ordinal: int) -> None:
    with _unless_broken():
        driver.release(ordinal)


class CudaDevice(DeviceMemory):
    """One GPU of this machine (`CUDA_VISIBLE_DEVICES` orders them), in its primary context.

    Args:
        ordinal: Its number, from 0.

    Raises BackendUnavailable if there is none.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.driver: Driver = open_driver()
        self.ordinal = ordinal
        self.facts: DeviceFacts = facts_of(self.driver, ordinal)
        self._context = self.driver.retain(ordinal)
        self._capture = local()
        weakref.finalize(self, _release, self.driver, ordinal).atexit = False

    def enter(self) -> Driver:
        """The driver, with this GPU's context current in the calling thread."""
        self.driver.make_current(self._context)
        return self.driver

    def close(self, action: Callable[[int], None], handle: int) -> None:
        """Gives `handle` back; what a broken context held is gone with it."""
        with _unless_broken():
            self.enter()
            action(handle)

    def in_each_thread(self, launch: Callable[[], None]) -> Callable[[], None]:
        """`launch`, which first makes this GPU's context current in a thread that calls it for the first time; this
        thread is in it.

        Kept by thread, not by its number: the number of a thread that has ended is given to another.
        """
        known, context, make_current = local(), self._context, self.enter().make_current
        known.entered = True

        def run() -> None:
            if not hasattr(known, "entered"):
                make_current(context)
                known.entered = True
            launch()

        return run

    # Memory

    @property
    def name(self) -> str:
        return f"GPU {self.ordinal} ({self.facts.name})"

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CUDA, self.ordinal

    def allocate(self, nbytes: int) -> int:
        return self.enter().allocate(nbytes)

    def free(self, address: int) -> None:
        self.close(self.driver.free, address)

    def allocate_pinned(self, nbytes: int) -> int:
        return self.enter().allocate_pinned(nbytes)

    def free_pinned(self, address: int) -> None:
        self.close(self.driver.free_pinned, address)

    def available(self) -> tuple[int, int]:
        return self.enter().available()

    def open_stream(self, priority: int = 0) -> int:
        return self.enter().open_stream(priority)

    def close_stream(self, stream: int) -> None:
        self.close(self.driver.close_stream, stream)

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.enter().upload(target, source, nbytes, stream)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.enter().download(target, source, nbytes, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.enter().copy(target, source, nbytes, stream)

    def clear(self, target: int, nbytes: int, stream: int) -> None:
        self.enter().clear(target, nbytes, stream)

    def follow(self, stream: int, other: int) -> None:
        with self.event() as event:
            self.driver.record(event, other)
            self.driver.wait(stream, event)

    def synchronize(self, stream: int) -> None:
        self.enter().synchronize(stream)

    def settle(self) -> bool:
        if getattr(self._capture, "depth", 0):
            return False
        self.enter().synchronize_all()
        return True

    def is_capturing(self, stream: int) -> bool:
        return self.enter().is_capturing(stream)

    def record_event(self, stream: int) -> int:
        driver = self.enter()
        event = driver.open_event()
        driver.record(event, stream)
        return event

    def wait_event(self, stream: int, event: int) -> None:
        self.enter().wait(stream, event)

    def is_over(self, event: int) -> bool:
        return self.enter().is_over(event)

    def synchronize_event(self, event: int) -> None:
        self.enter().wait_for(event)

    def milliseconds(self, start: int, end: int) -> float:
        return self.enter().milliseconds(start, end)

    def close_event(self, event: int) -> None:
        self.close(self.driver.close_event, event)

    @contextmanager
    def beside_capture(self) -> Generator[None]:
        """See `DeviceMemory`."""
        driver = self.enter()
        before = driver.exchange_capture_mode(RELAXED)
        self._capture.depth = getattr(self._capture, "depth", 0) + 1
        try:
            yield
        finally:
            self._capture.depth -= 1
            driver.exchange_capture_mode(before)

    @contextmanager
    def event(self) -> Generator[int]:
        """An event that is closed at the end; what waits for it then still does."""
        driver = self.enter()
        event = driver.open_event()
        try:
            yield event
        finally:
            driver.close_event(event)


def open_device(ordinal: int) -> CudaDevice:
    """GPU number `ordinal`, as streams, pinned memory and pools use it. Raises BackendUnavailable if there is none."""
    return CudaDevice(ordinal)
