"""Seeds of a program's random numbers in each call: from PyTorch's generator, or from a stream of AICF's own."""

from __future__ import annotations

import threading
import zlib

import torch
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
"""The increment of the seed in each call: 2**64 / golden ratio, odd, so that no seed repeats in 2**64 calls."""


class Seeds:
    """The seed of each call of a graph: an i64 tensor of rank 0 on the graph's device, without synchronization.

    Args:
        seed: Of its own stream; None draws each seed from PyTorch's generator, whose state a checkpoint can save.
        name: Distinguishes the streams of several graphs.
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
            # On the device, so that replays of a captured call advance it too.
            return self._state[device].add_(_STEP).clone()
