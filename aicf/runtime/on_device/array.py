"""Arrays on a device: what callers see of a GraphExec's memory, and how they hand in memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicf.backends.native import DeviceMemory
from aicf.errors import InputMismatch
from aicf.runtime.dlpack import NO_ORDER, DeviceView, capsule_of, device_of, interface_stream, read_view
from aicf.runtime.on_device.memory import Block, Queue
from aicf.runtime.ports import Described, Port, as_array
from aicf.runtime.tensors import Array, address, describe, element_name, strided_view


class DeviceArray:
    """An input or output of a GraphExec, in memory of the device.

    Other libraries take it without a copy, through DLPack or `__cuda_array_interface__`; what they queue then waits for
    the replays that are queued by now. `numpy()` waits and copies.

    Args:
        port: What it is.
        block: The memory, kept alive.
        start: Its address.
        queue: Where the program that writes it runs.
    """

    def __init__(self, port: Port, block: Block, start: int, queue: Queue) -> None:
        self._port = port
        self._block = block
        self._memory: DeviceMemory = block.memory
        self._start = start
        self._queue = queue

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self._port.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type, as NumPy has it."""
        return self._port.dtype

    @property
    def memory(self) -> DeviceMemory:
        """The memory of the device that it lies in."""
        return self._memory

    @property
    def nbytes(self) -> int:
        """Bytes from the first to past the last element."""
        return self._port.bind.nbytes

    @property
    def view(self) -> DeviceView:
        """Its place, as plain data."""
        bind = self._port.bind
        device = self._memory.dlpack_device
        return DeviceView(self._start, bind.shape, bind.strides, bind.dtype, device, False, self._block)

    def numpy(self) -> Array:
        """A copy on the host, after everything that is queued."""
        fresh = self._port.new_buffer()
        if self.nbytes:
            self._memory.download(address(fresh), self._start, self.nbytes, self._queue.handle)
        self._memory.synchronize(self._queue.handle)
        return fresh

    def assign(self, value: object) -> None:
        """Copies a host array, or an array on this device, into it. Raises InputMismatch if it does not fit."""
        view = device_view(value, self._port, self._memory, self._queue)
        if view is not None:
            self._memory.copy(self._start, view.address, self.nbytes, self._queue.handle)
            return
        array = self._port.check(value)
        if not self._port.fits_in_place(array):
            array, given = self._port.new_buffer(), array
            array[...] = given
        if self.nbytes:
            self._memory.upload(self._start, address(array), self.nbytes, self._queue.handle)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a device becomes a NumPy array by a copy")
        return np.asarray(self.numpy(), dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.dlpack_device

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> object:
        if stream is not None and stream != NO_ORDER:
            self._memory.follow(stream, self._queue.handle)
        return capsule_of(self.view)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        steps = tuple(step * self.dtype.itemsize for step in self._port.bind.strides)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._start, False),
            "strides": None if self._port.is_dense else steps,
            "version": 3,
            "stream": self._queue.handle,
        }

    def __repr__(self) -> str:
        what = describe(self.shape, self._port.bind.dtype)
        return f"DeviceArray({self._port.bind.name}: {what} on {self._memory.name})"


def tensor_of(value: object, bind: Described) -> tuple[tuple[int, ...], str]:
    """Shape and element type name of an array, wherever it lies. Raises InputMismatch if it is none."""
    if device_of(value) is not None:
        view = value.view if isinstance(value, DeviceArray) else read_view(value, NO_ORDER)
        return view.shape, view.dtype
    array = as_array(value, bind)
    return array.shape, element_name(array.dtype)


def device_view(value: object, port: Port, memory: DeviceMemory, queue: Queue) -> DeviceView | None:
    """The memory of `value` on this device, which what is queued from now on may use; None if it is on the host.

    Raises InputMismatch: it is on another device, or has another shape, element type or layout than `port`.
    """
    where = device_of(value)
    if where is None:
        return None
    name = f"{port.bind.role} '{port.bind.name}'"
    if where != memory.dlpack_device:
        raise InputMismatch(
            f"{name} is on device {where[1]} of DLPack type {where[0]}, the program is on {memory.name}; move it"
        )
    view = _ordered(value, memory, queue)
    if view.shape != port.shape or view.dtype != port.bind.dtype:
        raise port.mismatch_of(view.shape, view.dtype)
    if any(
        ours != theirs
        for size, ours, theirs in zip(view.shape, port.bind.strides, view.strides, strict=True)
        if size > 1
    ):
        raise InputMismatch(
            f"{name} has strides of {view.strides} elements, the program needs {port.bind.strides}; make it contiguous"
        )
    return view


def _ordered(value: object, memory: DeviceMemory, queue: Queue) -> DeviceView:
    if isinstance(value, DeviceArray):
        if value._queue is not queue:  # pyright: ignore[reportPrivateUsage]
            memory.follow(queue.handle, value._queue.handle)  # pyright: ignore[reportPrivateUsage]
        return value.view
    if (other := interface_stream(value)) is not None:
        memory.follow(queue.handle, other)
    return read_view(value, queue.handle)


def host_view(block: Array, start: int, port: Port) -> Array:
    """The array of `port` on bytes `start ...` of a host block."""
    flat = block[start : start + max(port.bind.nbytes, port.dtype.itemsize)].view(port.dtype)
    return strided_view(flat, port.shape, port.strides)
