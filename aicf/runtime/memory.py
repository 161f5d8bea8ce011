"""Host memory of the runtime: aligned buffers; and statistics of all its memory, with the peak.

Sizes and offsets inside an arena are decided by `plan-memory`; here an arena is one block of bytes.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicf.errors import BackendUnavailable, InputMismatch
from aicf.runtime.tensors import Array, address, numpy_dtype, strided_view

CACHE_LINE = 64
"""Bytes; alignment of every buffer of ours."""
HUGE_PAGE = 2 << 20
"""Bytes of a huge page of x86-64 and of aarch64 with small pages of 4 KiB."""
HUGE_FROM = HUGE_PAGE
"""Bytes of a buffer that asks for huge pages. Streaming weights is bound by page walks, more so in a virtual
machine: with huge pages one row times a weight of 2.3 MB that is in no cache of the core took 22 % less time."""
_HUGE_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""None where the system knows no such advice."""


@dataclass(frozen=True)
class MemoryStatistics:
    """Bytes of buffers that the runtime made: alive now, at most alive at once, and how many are alive."""

    live_bytes: int
    peak_bytes: int
    buffers: int


class _Buffer(weakref.ref[Any]):
    """A buffer that is counted; each one is different, whatever it refers to."""

    __slots__ = ("nbytes",)
    nbytes: int


class Ledger:
    """Counts buffers of one kind of memory, as long as they are alive.

    The end of a buffer is noted by C code, which neither a signal nor the interpreter's state can keep from it, and
    subtracted when the ledger is used next. An interruption in the midst of that makes the next use count anew.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # another buffer can be made by what runs when one is collected
        self._alive: dict[int, _Buffer] = {}
        self._gone: deque[_Buffer] = deque()
        self._live = 0
        self._peak = 0
        self._is_exact = True

    def add(self, owner: object, nbytes: int) -> None:
        """Counts `nbytes` until `owner` is gone."""
        with self._lock:
            self._settle()
            self._is_exact = False
            buffer = _Buffer(owner, self._gone.append)
            buffer.nbytes = nbytes
            self._alive[id(buffer)] = buffer
            self._live += nbytes
            self._peak = max(self._peak, self._live)
            self._is_exact = True

    def read(self) -> MemoryStatistics:
        """The bytes and buffers that are alive, and the peak."""
        with self._lock:
            self._settle()
            return MemoryStatistics(self._live, self._peak, len(self._alive))

    def reset_peak(self) -> None:
        """Starts the peak again from what is alive now."""
        with self._lock:
            self._settle()
            self._peak = self._live

    def _settle(self) -> None:
        """Subtracts the buffers that are gone."""
        if not (self._gone or not self._is_exact):
            return
        was_exact, self._is_exact = self._is_exact, False
        while self._gone:
            buffer = self._gone.popleft()
            if self._alive.pop(id(buffer), None) is not None:
                self._live -= buffer.nbytes
        if not was_exact:
            self._alive = {key: buffer for key, buffer in self._alive.items() if buffer() is not None}
            self._live = sum(buffer.nbytes for buffer in self._alive.values())
            self._peak = max(self._peak, self._live)
        self._is_exact = True


LEDGERS = {"host": Ledger(), "device": Ledger(), "pinned": Ledger()}
"""By kind of memory: of the host, of devices, and of the host for copies to devices."""

_counting: ContextVar[tuple[tuple[str, Ledger], ...]] = ContextVar("counting", default=())
"""Kind of memory and ledger of those who count what this thread requests."""


def count_buffer(owner: object, memory: str, nbytes: int) -> None:
    """Counts a buffer of `nbytes` until `owner` is gone."""
    LEDGERS[memory].add(owner, nbytes)
    for kind, ledger in _counting.get():
        if kind == memory:
            ledger.add(owner, nbytes)


@contextlib.contextmanager
def counting(memory: str, ledger: Ledger) -> Generator[None]:
    """Counts in `ledger` what this thread requests of one kind of memory meanwhile; it sees those buffers go later."""
    token = _counting.set((*_counting.get(), (memory, ledger)))
    try:
        yield
    finally:
        _counting.reset(token)


def statistics(memory: str = "host") -> MemoryStatistics:
    """Memory of this process's runtime: `host`, `device` (bytes requested from drivers; contexts and code apart) or
    `pinned` (host memory that devices copy from and to)."""
    return _ledger(memory).read()


def reset_peak(memory: str = "host") -> None:
    """Starts the peak again from what is alive now."""
    _ledger(memory).reset_peak()


def _ledger(memory: str) -> Ledger:
    if memory not in LEDGERS:
        raise InputMismatch(f"there is no memory '{memory}'; it is one of {', '.join(LEDGERS)}")
    return LEDGERS[memory]


def allocate(nbytes: int, align: int = CACHE_LINE) -> Array:
    """A zeroed u8 array of `nbytes` bytes whose address is a multiple of `align`.

    Raises BackendUnavailable if there is not so much memory.
    """
    total, huge = requested(nbytes, align), _is_huge(nbytes)
    align = total - nbytes
    try:
        block = _huge_block(total) if huge else np.zeros(total, np.uint8)
    except (MemoryError, ValueError, OSError):
        raise BackendUnavailable(
            f"this machine cannot give {nbytes:,} bytes at once; use smaller dims, or a machine with more memory"
        ) from None
    count_buffer(block, "host", block.nbytes)
    start = -address(block) % align
    return block[start : start + nbytes]


def requested(nbytes: int, align: int = CACHE_LINE) -> int:
    """Bytes that `allocate` asks the system for: with what it takes to begin at a multiple of `align`."""
    return nbytes + max(align, HUGE_PAGE if _is_huge(nbytes) else CACHE_LINE)


def _is_huge(nbytes: int) -> bool:
    return nbytes >= HUGE_FROM and _HUGE_ADVICE is not None


def _huge_block(nbytes: int) -> Array:
    """Zeroed memory that the kernel may back with huge pages: private, because it never does so for shared memory."""
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert _HUGE_ADVICE is not None
    with contextlib.suppress(
        OSError
    ):  # a kernel built without huge pages: it is advice, small pages do as well
        pages.madvise(_HUGE_ADVICE)
    return np.frombuffer(pages, np.uint8)


def allocate_tensor(
    shape: Sequence[int], strides: Sequence[int], dtype: str, nbytes: int, align: int = CACHE_LINE
) -> Array:
    """A zeroed array over `nbytes` of our own memory, which begins at a multiple of `align` bytes; `strides` are in
    elements."""
    flat = allocate(nbytes, align).view(numpy_dtype(dtype)) if nbytes else np.zeros(1, numpy_dtype(dtype))
    return strided_view(flat, shape, [step * flat.itemsize for step in strides])


def copy_of(array: Array) -> Array:
    """A row-major copy in our own aligned memory."""
    fresh = allocate(array.nbytes).view(array.dtype)[: array.size].reshape(array.shape)
    fresh[...] = array
    return fresh
