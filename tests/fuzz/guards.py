"""Arrays with a canary on both sides: a write outside of what a caller gave is seen."""

from __future__ import annotations

import numpy as np

_CANARY = 0xA5
_GUARD_BYTES = 4096
_CACHE_LINE = 64


class Guarded:
    """An array of a caller, between bytes that nobody may write.

    Args:
        shape, dtype: Of `array`, whose elements begin as 0xA5 in every byte, at a multiple of `align` bytes.
        align: A power of two.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic] | str, align: int = _CACHE_LINE
    ) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self._bytes = np.full(nbytes + 2 * _GUARD_BYTES + align, _CANARY, np.uint8)
        self._start = _GUARD_BYTES + -(self._bytes.ctypes.data + _GUARD_BYTES) % align
        self._end = self._start + nbytes
        self.array = self._bytes[self._start : self._end].view(dtype).reshape(shape)

    def is_intact(self) -> bool:
        """Whether the bytes on both sides are as they were."""
        outside = (self._bytes[: self._start], self._bytes[self._end :])
        return all(bool((side == _CANARY).all()) for side in outside)
