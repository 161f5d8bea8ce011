"""Another library's arrays on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicf.runtime.dlpack import DeviceView, capsule_of
from aicf.runtime.tensors import dense_strides, element_name
from tests.backends.cuda.fake_driver import FakeDriver


class DeviceTensor:
    """A tensor of a library that speaks DLPack.

    Args:
        gpu: Whose memory it takes.
        values: What it holds.
        offset: Bytes from the start of its memory.
        strides: Elements between neighbours; row-major if None.
        index: Number of the device that it says it is on.
    """

    def __init__(
        self,
        gpu: FakeDriver,
        values: np.ndarray,
        *,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
        index: int = 0,
    ) -> None:
        self.gpu = gpu
        self.block = gpu.allocate(values.nbytes + offset)
        self.strides = dense_strides(values.shape) if strides is None else strides
        self.array: np.ndarray = np.ndarray(
            values.shape, values.dtype, gpu.blocks[self.block], self._start(offset)
        )
        self.array[...] = values
        self.device = (2, index)
        self.requested: list[int | None] = []

    def _start(self, offset: int) -> int:
        return self.block - self.gpu.blocks[self.block].ctypes.data + offset

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.requested.append(stream)
        view = DeviceView(
            self.array.ctypes.data,
            self.array.shape,
            self.strides,
            element_name(self.array.dtype),
            self.device,
            False,
            self,
        )
        return capsule_of(view)


class InterfaceTensor:
    """The same of a library that speaks `__cuda_array_interface__` only, and works on the default stream."""

    def __init__(self, tensor: DeviceTensor, *, read_only: bool = False) -> None:
        array = tensor.array
        self.tensor = tensor
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, read_only),
            "strides": None,
            "version": 3,
            "stream": 1,
        }
