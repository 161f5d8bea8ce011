"""Memory of the runtime on a GPU from PyTorch's caching allocator: one pool, one limit and one set of statistics."""

from __future__ import annotations

from typing import Any, cast

import torch

from aicf import runtime

_cuda: Any = torch.cuda


class TorchAllocator:
    """`aicf.runtime.Allocator` on PyTorch's caching allocator.

    Args:
        device: Number of the GPU.
    """

    def __init__(self, device: int) -> None:
        self._device = device

    def allocate(self, nbytes: int, stream: int) -> int:
        """See `Allocator`. Raises `torch.OutOfMemoryError`."""
        return cast(int, _cuda.caching_allocator_alloc(nbytes, self._device, stream))

    def free(self, address: int, nbytes: int, stream: int) -> None:
        """See `Allocator`."""
        _cuda.caching_allocator_delete(address)


def use_torch_memory(device: int = 0) -> None:
    """Lets programs on a GPU take their memory from PyTorch's caching allocator, from now on.

    What they hold counts in `torch.cuda.memory_allocated` then; `aicf.runtime.pool().use(None)` ends it.

    Args:
        device: Number of the GPU.

    Raises:
        BackendUnavailable: there is no such GPU.
    """
    runtime.pool(f"cuda:{device}").use(TorchAllocator(device))
