"""The memory and the stream that a plan of TensorRT runs on: a thin layer over package `cuda-bindings`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aicf.runtime.tensors import Array


class CudaMemory:
    """Buffers by name on one GPU, with a stream of their own. For one thread at a time.

    Args:
        device: Number of the GPU.
    """

    def __init__(self, device: int) -> None:
        self._cuda: Any = import_module("cuda.bindings.runtime")
        self._device = device
        self._buffers: dict[str, tuple[int, int]] = {}
        self.activate()
        self._stream = self._call("cudaStreamCreate")

    def _call(self, name: str, *arguments: object) -> Any:
        status, *results = getattr(self._cuda, name)(*arguments)
        if int(status):
            raise RuntimeError(f"{name}: {status.name}")
        return results[0] if results else None

    def activate(self) -> None:
        """Makes the GPU this thread's own."""
        self._call("cudaSetDevice", self._device)

    @property
    def stream(self) -> int:
        """The handle of the stream."""
        return int(self._stream)

    def buffer(self, name: str, nbytes: int) -> int:
        """The address of at least `nbytes` bytes, and at least one, which stay until another size is asked for."""
        address, held = self._buffers.get(name, (0, 0))
        if held >= max(nbytes, 1):
            return address
        if held:
            self._call("cudaFree", address)
        address = int(self._call("cudaMalloc", max(nbytes, 1)))
        self._buffers[name] = address, max(nbytes, 1)
        return address

    def upload(self, address: int, array: Array) -> None:
        """Queues a copy from the host."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call("cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, kind, self._stream)

    def download(self, array: Array, address: int) -> None:
        """Queues a copy to the host."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call("cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, kind, self._stream)

    def synchronize(self) -> None:
        """Waits for all that is queued."""
        self._call("cudaStreamSynchronize", self._stream)

    def close(self) -> None:
        """Gives everything back."""
        self.activate()
        for address, _ in self._buffers.values():
            self._call("cudaFree", address)
        self._buffers.clear()
        self._call("cudaStreamDestroy", self._stream)


def gpus() -> list[str]:
    """The GPUs here in words, each with its architecture. Raises RuntimeError if the CUDA runtime fails."""
    cuda: Any = import_module("cuda.bindings.runtime")
    status, count = cuda.cudaGetDeviceCount()
    if int(status):
        raise RuntimeError(status.name)
    found: list[str] = []
    for number in range(count):
        _, about = cuda.cudaGetDeviceProperties(number)
        name = about.name.decode() if isinstance(about.name, bytes) else str(about.name)
        found.append(f"{name.strip(chr(0))}, sm_{about.major}{about.minor}")
    return found


def driver_version() -> str:
    """The CUDA version of the driver, as in `13.0`."""
    cuda: Any = import_module("cuda.bindings.runtime")
    _, version = cuda.cudaDriverGetVersion()
    return f"{version // 1000}.{version % 1000 // 10}"
