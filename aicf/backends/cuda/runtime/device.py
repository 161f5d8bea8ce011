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
    first_device,
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


def _release(driver: Driver) -> None:
    with _unless_broken():
        driver.release(0)


class CudaDevice(DeviceMemory):
    """The first GPU of this machine (`CUDA_VISIBLE_DEVICES` orders them), in its primary context.

    Raises BackendUnavailable if there is none.
    """

    def __init__(self) -> None:
        self.driver: Driver = open_driver()
        self.facts: DeviceFacts = first_device(self.driver)
        self._context = self.driver.retain(0)
        weakref.finalize(self, _release, self.driver).atexit = False

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
        return f"GPU 0 ({self.facts.name})"

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CUDA, 0

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

    def open_stream(self) -> int:
        return self.enter().open_stream()

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

    @contextmanager
    def beside_capture(self) -> Generator[None]:
        """See `DeviceMemory`."""
        driver = self.enter()
        before = driver.exchange_capture_mode(RELAXED)
        try:
            yield
        finally:
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
