"""Buffers between guard zones: what a kernel writes outside of them shows. On the host, and on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicf.backends.native import DeviceMemory
from aicf.dialects.types import TensorInfo
from aicf.runtime.dlpack import DeviceView, capsule_of
from aicf.runtime.tensors import Array, dense_strides

GUARD_BYTES = 4096
"""Of the zone before a buffer, and of that after it: a multiple of every alignment."""
_RNG = np.random.default_rng(0)
"""Of what guard zones hold: other bytes around each buffer, so that a copy from one to another shows."""


@dataclass(frozen=True)
class Damage:
    """What was written outside of a buffer.

    Args:
        count: Bytes that changed.
        first: The first of them, counted from the start of the buffer: negative before it.
        size: Bytes of the buffer.
    """

    count: int
    first: int
    size: int

    def __str__(self) -> str:
        if self.first < 0:
            return f"{self.count} bytes outside, the first {-self.first} bytes before its start"
        return f"{self.count} bytes outside, the first {self.first - self.size} bytes past its end"


class GuardedBuffer(ABC):
    """Memory of one tensor between two guard zones."""

    def __init__(self, info: TensorInfo) -> None:
        self.info = info
        self.nbytes = int(np.prod(info.shape)) * info.element.bytes
        self._inner = slice(GUARD_BYTES, GUARD_BYTES + self.nbytes)
        self._guards = _RNG.integers(0, 256, self.nbytes + 2 * GUARD_BYTES, np.uint8)

    @property
    @abstractmethod
    def argument(self) -> object:
        """The tensor, as a program takes it."""

    @abstractmethod
    def write(self, content: Array | int) -> None:
        """Fills the guard zones, and the tensor with elements or with one byte."""

    @abstractmethod
    def _bytes(self) -> Array:
        """All bytes, guard zones included."""

    def array(self) -> Array:
        """A copy of the elements."""
        return self._bytes()[self._inner].copy().view(self.info.element.dtype).reshape(self.info.shape)

    def damage(self) -> Damage | None:
        """What was written outside since the last `write`; None if nothing was."""
        is_changed = self._bytes() != self._guards
        is_changed[self._inner] = False
        found = np.flatnonzero(is_changed)
        if not len(found):
            return None
        return Damage(len(found), int(found[0]) - GUARD_BYTES, self.nbytes)

    def _filled(self, content: Array | int) -> Array:
        whole = self._guards.copy()
        whole[self._inner] = (
            content if isinstance(content, int) else np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        )
        return whole


class HostBuffer(GuardedBuffer):
    """On the host, at an address that is a multiple of the guard zone."""

    def __init__(self, info: TensorInfo) -> None:
        super().__init__(info)
        block = np.empty(self.nbytes + 3 * GUARD_BYTES, np.uint8)
        start = -block.ctypes.data % GUARD_BYTES
        self._block = block[start : start + self.nbytes + 2 * GUARD_BYTES]

    @property
    def argument(self) -> Array:
        return self._block[self._inner].view(self.info.element.dtype).reshape(self.info.shape)

    def write(self, content: Array | int) -> None:
        self._block[...] = self._filled(content)

    def _bytes(self) -> Array:
        return self._block.copy()


class DeviceBuffer(GuardedBuffer):
    """On a device; other libraries and programs take it through DLPack."""

    def __init__(self, info: TensorInfo, memory: DeviceMemory) -> None:
        super().__init__(info)
        self._memory = memory
        self._size = self.nbytes + 2 * GUARD_BYTES
        self._start = memory.allocate(self._size)
        self._stream = memory.open_stream()

    @property
    def argument(self) -> DeviceBuffer:
        return self

    def write(self, content: Array | int) -> None:
        whole = self._filled(content)
        self._memory.upload(self._start, whole.ctypes.data, self._size, self._stream)
        self._memory.synchronize(self._stream)

    def _bytes(self) -> Array:
        whole = np.empty(self._size, np.uint8)
        self._memory.download(whole.ctypes.data, self._start, self._size, self._stream)
        self._memory.synchronize(self._stream)
        return whole

    def close(self) -> None:
        """Gives the memory back."""
        self._memory.close_stream(self._stream)
        self._memory.free(self._start)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.dlpack_device

    def __dlpack__(self, **_: Any) -> object:
        shape = self.info.shape
        place, device = self._start + GUARD_BYTES, self._memory.dlpack_device
        return capsule_of(
            DeviceView(place, shape, dense_strides(shape), self.info.element.name, device, False, self)
        )
