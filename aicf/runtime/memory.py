"""Host memory of the runtime: aligned buffers; and statistics of all its memory, with the peak.

Sizes and offsets inside an arena are decided by `plan-memory`; here an arena is one block of bytes.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from aicf.errors import BackendUnavailable, InputMismatch
from aicf.runtime.tensors import Array, address, numpy_dtype

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


class Ledger:
    """Counts buffers of one kind of memory; they sign off when the last user of them goes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a buffer can be collected, and sign off, while this thread holds it
        self._live = 0
        self._peak = 0
        self._buffers = 0

    def add(self, nbytes: int, count: int) -> None:
        with self._lock:
            self._live += nbytes
            self._buffers += count
            self._peak = max(self._peak, self._live)

    def read(self) -> MemoryStatistics:
        with self._lock:
            return MemoryStatistics(self._live, self._peak, self._buffers)

    def reset_peak(self) -> None:
        with self._lock:
            self._peak = self._live


LEDGERS = {"host": Ledger(), "device": Ledger(), "pinned": Ledger()}
"""By kind of memory: of the host, of devices, and of the host for copies to devices."""

_counting: ContextVar[tuple[tuple[str, Ledger], ...]] = ContextVar("counting", default=())
"""Kind of memory and ledger of those who count what this thread requests."""


def sign_on(memory: str, nbytes: int) -> Callable[[], None]:
    """Counts a buffer of `nbytes`; gives what signs it off, in whichever thread."""
    ledgers = [LEDGERS[memory], *(ledger for kind, ledger in _counting.get() if kind == memory)]
    for ledger in ledgers:
        ledger.add(nbytes, 1)
    return partial(_sign_off, ledgers, nbytes)


def _sign_off(ledgers: Sequence[Ledger], nbytes: int) -> None:
    for ledger in ledgers:
        ledger.add(-nbytes, -1)


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
    weakref.finalize(block, sign_on("host", block.nbytes)).atexit = False
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


def allocate_tensor(shape: Sequence[int], strides: Sequence[int], dtype: str, nbytes: int) -> Array:
    """A zeroed array of our own memory; `strides` in elements, `nbytes` of memory behind it."""
    flat = allocate(nbytes).view(numpy_dtype(dtype)) if nbytes else np.zeros(1, numpy_dtype(dtype))
    return as_strided(flat, tuple(shape), [step * flat.itemsize for step in strides])


def copy_of(array: Array) -> Array:
    """A row-major copy in our own aligned memory."""
    fresh = allocate(array.nbytes).view(array.dtype)[: array.size].reshape(array.shape)
    fresh[...] = array
    return fresh
