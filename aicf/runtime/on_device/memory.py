"""Memory of a device: one allocation for many parts, pinned host memory, streams; counted, and given back unasked."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from aicf.backends.native import DeviceMemory
from aicf.errors import AicfError
from aicf.runtime.memory import count_buffer
from aicf.runtime.on_device.pool import ALIGN, pool_of
from aicf.runtime.tensors import Array, address


def padded(nbytes: int) -> int:
    """`nbytes` with what keeps its successor aligned; at least one unit, so that every address is a different one."""
    return max(-(-nbytes // ALIGN), 1) * ALIGN


class Block:
    """One allocation on a device that holds several parts; given back when nobody refers to it.

    Args:
        memory: The device.
        parts: Bytes by key.
        holder: What it is for, for messages about memory that is short.
    """

    def __init__(self, memory: DeviceMemory, parts: Mapping[Any, int], holder: str) -> None:
        self.memory = memory
        self.offsets: dict[Any, int] = {}
        total = 0
        for key, nbytes in parts.items():
            self.offsets[key] = total
            total += padded(nbytes)
        self.nbytes = total
        self.address = 0
        if total:
            pool = pool_of(memory)
            self.address = pool.allocate(total, holder)
            weakref.finalize(self, pool.free, self.address).atexit = False
            count_buffer(self, "device", total)

    def __getitem__(self, key: object) -> int:
        """Address of a part."""
        return self.address + self.offsets[key]

    def upload(self, key: object, array: Array, queue: Queue) -> None:
        """Queues the copy of a host array into a part."""
        if array.nbytes:
            self.memory.upload(self[key], address(array), array.nbytes, queue.handle)


class PinnedBlock:
    """Page-locked host memory, given back when nobody refers to it; `array` is it as u8[nbytes]."""

    def __init__(self, memory: DeviceMemory, nbytes: int) -> None:
        self.address = memory.allocate_pinned(nbytes)
        self.array: Array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(self.address))
        weakref.finalize(self, memory.free_pinned, self.address).atexit = False
        count_buffer(self, "pinned", nbytes)


class Queue:
    """A stream of a device, ended when nobody refers to it; one with a lower priority number is served first."""

    def __init__(self, memory: DeviceMemory, priority: int = 0) -> None:
        self.handle = memory.open_stream(priority)
        weakref.finalize(self, memory.close_stream, self.handle).atexit = False


class PinnedRows:
    """Equal rows of page-locked memory, taken in turn: what a queued copy reads stays as it is until the copy is over,
    also when nobody refers to the rows any more.

    Args:
        memory: The device.
        nbytes: Bytes of a row.
        queue: Where the copies are queued.
    """

    COUNT = 1024
    """Rows; whoever has taken them all waits once for the stream."""

    def __init__(self, memory: DeviceMemory, nbytes: int, queue: Queue) -> None:
        self._memory, self._nbytes, self._stream = memory, nbytes, queue.handle
        self._block = PinnedBlock(memory, nbytes * self.COUNT)
        self._taken = 0
        self.view = self._block.array.data
        weakref.finalize(self, _wait, memory, queue).atexit = False

    def take(self) -> int:
        """Byte offset in `view` of a row that nothing in flight reads."""
        if self._taken == self.COUNT:
            self._memory.synchronize(self._stream)
            self._taken = 0
        self._taken += 1
        return (self._taken - 1) * self._nbytes

    def upload(self, row: int, target: int) -> None:
        """Queues the copy of a row to the device."""
        self._memory.upload(target, self._block.address + row, self._nbytes, self._stream)


def _wait(memory: DeviceMemory, queue: Queue) -> None:
    with suppress(AicfError):  # a broken device has nothing in flight, and says so at the next use
        memory.synchronize(queue.handle)
