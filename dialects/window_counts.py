"""How many elements the windows along one dimension find, of the operand or of it and its padding.

By a formula, not window by window where all find the same: there may be as many as a dimension has elements.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FEW = 4096
"""Windows that are counted one by one to see whether all find the same."""


class Windows(Protocol):
    """The windows along one dimension of ``whole`` elements."""

    @property
    def whole(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def dilation(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    @property
    def count(self) -> int: ...


def found_span(windows: Windows, padding: bool) -> tuple[int, int]:
    """The first place that windows find, and the one after the last."""
    return (-windows.low, windows.whole + windows.high) if padding else (0, windows.whole)


def elements_found(windows: Windows, *, padding: bool) -> NDArray[Any]:
    """How many elements each window finds, in i64.

    Args:
        padding: Whether those of the padding count.
    """
    first, last = found_span(windows, padding)
    farthest = windows.count * windows.stride + windows.low + windows.high + windows.whole
    starts = np.arange(windows.count, dtype=np.int64 if farthest < 1 << 62 else object)
    starts = starts * windows.stride - windows.low

    def steps_before(bound: int) -> NDArray[Any]:
        """The steps of each window that lie before a position: the distance by the dilation, rounded up."""
        return np.clip(-((starts - bound) // windows.dilation), 0, windows.size)

    return (steps_before(last) - steps_before(first)).astype(np.int64)


def found_by_all(windows: Windows, *, padding: bool) -> int | None:
    """The number of elements that all windows find; None if it is not one number, or is not known to be."""
    first, last = found_span(windows, padding)
    end = (windows.count - 1) * windows.stride + (windows.size - 1) * windows.dilation - windows.low
    if first <= -windows.low and end < last:
        return windows.size
    if windows.count > FEW:
        return None
    found = set(elements_found(windows, padding=padding).tolist())
    return found.pop() if len(found) == 1 else None
