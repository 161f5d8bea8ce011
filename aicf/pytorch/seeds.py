"""Where the random numbers of a program start in each call: at PyTorch's generator, or in a stream of AICF's own."""

from __future__ import annotations

import threading
import zlib

import torch
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
"""From one call to the next: 2**64 divided by the golden ratio, odd, so that no seed comes twice in 2**64 calls."""


class Seeds:
    """The seed of each call of a graph, a tensor of rank 0 and i64 on the graph's device that nothing waits for.

    Args:
        seed: Of a stream of its own; None draws each one from PyTorch's generator, whose state says how far a run is.
        name: What tells the streams of several graphs apart.
    """

    def __init__(self, seed: int | None = None, name: str = "") -> None:
        self._seed, self._name = seed, name
        self._state: dict[torch.device, Tensor] = {}
        self._lock = threading.Lock()

    def draw(self, device: torch.device) -> Tensor:
        """The seed of the next call."""
        if self._seed is None:
            return torch.empty((), dtype=torch.int64, device=device).random_()
        with self._lock:
            if device not in self._state:
                first = (self._seed + zlib.crc32(self._name.encode()) * _STEP) % (1 << 63)
                self._state[device] = torch.full((), first, dtype=torch.int64, device=device)
            # On the device, so that a captured call goes on too.
            return self._state[device].add_(_STEP).clone()
