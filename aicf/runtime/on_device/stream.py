"""Queues and events of a device that callers order work with, and the streams of other libraries."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, cast

from aicf.backends.native import DeviceMemory
from aicf.errors import AicfError, InputMismatch, quoted
from aicf.runtime.on_device.memory import Queue


class DeviceEvent:
    """A point in a queue of a device. Times are those of the device's clock.

    Args:
        memory: The device.
        handle: An event that is recorded; it is given back when nobody refers to this.
    """

    def __init__(self, memory: DeviceMemory, handle: int) -> None:
        self._memory, self.handle = memory, handle
        weakref.finalize(self, memory.close_event, handle).atexit = False

    @property
    def is_done(self) -> bool:
        """Whether the device has reached it, or work before it failed."""
        try:
            return self._memory.is_over(self.handle)
        except AicfError:
            return True

    def synchronize(self) -> None:
        """Waits until the device has reached it. Raises AicfError if work before it failed."""
        self._memory.synchronize_event(self.handle)

    def microseconds_since(self, start: DeviceEvent) -> float:
        """From `start` to this event, which waits for both. Raises AicfError if they are not of one device."""
        start.synchronize()
        self.synchronize()
        return 1e3 * self._memory.milliseconds(start.handle, self.handle)


class DeviceQueue:
    """A queue of a device that belongs to a caller.

    Args:
        memory: The device.
        priority: One with a lower number is served first.
    """

    def __init__(self, memory: DeviceMemory, priority: int) -> None:
        self._memory = memory
        self._queue = Queue(memory, priority)

    @property
    def handle(self) -> int:
        """The device's handle."""
        return self._queue.handle

    def record(self) -> DeviceEvent:
        """An event at the end of what is queued now."""
        return DeviceEvent(self._memory, self._memory.record_event(self.handle))

    def wait(self, event: DeviceEvent) -> None:
        """Lets what is queued from now on wait for an event of any queue."""
        self._memory.wait_event(self.handle, event.handle)

    def synchronize(self) -> None:
        """Waits for everything queued. Raises AicfError if it failed."""
        self._memory.synchronize(self.handle)


def handle_of(stream: object) -> int:
    """The handle of a stream of the runtime or of another library on the same device.

    Args:
        stream: Anything with `__cuda_stream__` (the runtime's streams, cuda.core, PyTorch), `cuda_stream` (PyTorch) or
            `ptr` (CuPy), or the handle itself.

    Raises:
        InputMismatch: it is none of these.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
        _, handle = cast("Callable[[], tuple[int, int]]", protocol)()
        return int(handle)
    for name in ("cuda_stream", "ptr"):
        if isinstance(handle := cast(Any, getattr(stream, name, None)), int):
            return handle
    raise InputMismatch(
        f"{quoted(stream)} is no stream of a device; give runtime.Stream('cuda'), a stream of PyTorch, CuPy or "
        "cuda.core, or its handle as a number"
    )
