"""Memory of one device for the whole process: who holds it, what is kept for the next request, and its limits.

By default nothing is kept: what nobody refers to goes back to the driver at once. `keep` lets a process whose programs
come and go, as those of a session with many sizes do, take memory again without asking the driver. An allocator of
another library takes the driver's place with `use`.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from aicf.backends.native import DeviceMemory
from aicf.errors import BackendUnavailable, InputMismatch
from aicf.runtime.lifecycle import register
from aicf.support.whole_numbers import is_whole

ALIGN = 256
"""Bytes: alignment of an allocation."""

_SLACK = 1.125
"""A kept piece serves a request of at least its size over this."""

_DEFAULT_STREAM = 0
"""Memory of other allocators is ordered with the device's default stream, as the streams of the runtime are."""


class Allocator(Protocol):
    """What gives memory of a device in place of the driver: PyTorch's or RMM's pool, say."""

    def allocate(self, nbytes: int, stream: int) -> int:
        """Address of `nbytes` bytes, a multiple of 256, that work on `stream` may use."""
        ...

    def free(self, address: int, nbytes: int, stream: int) -> None:
        """Takes an allocation back; work on `stream` that is queued before may still use it."""
        ...


@dataclass(frozen=True)
class PoolStatistics:
    """Memory of one device.

    Args:
        live_bytes: Held by programs, weights, states and arrays.
        kept_bytes: Held by nobody, kept for the next request.
        peak_bytes: The most that was live at once.
        requests: How often memory was asked for.
        reused: How often of these a kept piece was given.
    """

    live_bytes: int
    kept_bytes: int
    peak_bytes: int
    requests: int
    reused: int


@dataclass(frozen=True)
class _Piece:
    """An allocation that nobody holds, kept for the next request."""

    nbytes: int
    address: int


@dataclass(frozen=True)
class _Held:
    """An allocation that somebody holds; `allocator` gave it, the driver if None."""

    nbytes: int
    holder: str
    allocator: Allocator | None


class DevicePool:
    """See the module. Get it from `pool(device)`.

    What is given back may come from the garbage collector, at any time and in any thread: `free` only uses operations
    that nothing interrupts.

    Args:
        memory: The device.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._lock = threading.RLock()
        self._held: dict[int, _Held] = {}
        self._pieces: deque[_Piece] = deque()
        self._settled: frozenset[int] = frozenset()
        self._allocator: Allocator | None = None
        self._keep = 0
        self._limit: int | None = None
        self._peak = self._requests = self._reused = 0

    # What a user sets

    @property
    def keep(self) -> int:
        """Bytes that the pool may keep for later requests; 0 by default."""
        return self._keep

    @keep.setter
    def keep(self, nbytes: int) -> None:
        self._keep = _checked("keep", nbytes)
        self.trim(nbytes)
        self._remember()

    @property
    def limit(self) -> int | None:
        """Bytes that may be live at once; None for all of the device."""
        return self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        self._limit = None if nbytes is None else _checked("limit", nbytes)
        self._remember()

    def use(self, allocator: Allocator | None) -> None:
        """Lets `allocator` give memory from now on, or the driver again if None. What is held stays where it is."""
        self.trim()
        self._allocator = allocator
        self._remember()

    def _remember(self) -> None:
        """Keeps the pool while it has settings of the user; any other goes with the last memory of it."""
        if self._keep or self._limit is not None or self._allocator is not None:
            _configured[self._memory.dlpack_device] = self
        else:
            _configured.pop(self._memory.dlpack_device, None)

    def trim(self, keep: int = 0) -> int:
        """Gives kept memory back to the driver until at most `keep` bytes are kept; how many bytes that were."""
        given = 0
        with self._lock:
            while self._pieces and self.kept_bytes > keep:
                piece = self._pieces.popleft()
                self._memory.free(piece.address)
                given += piece.nbytes
        return given

    # What there is

    @property
    def kept_bytes(self) -> int:
        """Bytes that nobody holds, kept for later requests."""
        return sum(piece.nbytes for piece in tuple(self._pieces))

    @property
    def live_bytes(self) -> int:
        """Bytes that somebody holds."""
        return sum(held.nbytes for held in tuple(self._held.values()))

    @property
    def is_foreign(self) -> bool:
        """Whether an allocator of another library gives the memory."""
        return self._allocator is not None

    def statistics(self) -> PoolStatistics:
        """Bytes and requests so far."""
        return PoolStatistics(self.live_bytes, self.kept_bytes, self._peak, self._requests, self._reused)

    def holders(self) -> dict[str, int]:
        """Live bytes by what holds them, most first."""
        totals = Counter[str]()
        for held in tuple(self._held.values()):
            totals[held.holder] += held.nbytes
        return dict(totals.most_common())

    # Requests

    def allocate(self, nbytes: int, holder: str) -> int:
        """Address of `nbytes` bytes, a multiple of 256, until `free`.

        Raises BackendUnavailable: the device is full, or the limit is reached; the message says what holds how much.
        """
        if self._keep:
            register(self)
        with self._lock:
            self._requests += 1
            self._check_limit(nbytes)
            address, size = self._kept_piece(nbytes) or (self._fresh(nbytes), nbytes)
            self._held[address] = _Held(size, holder, self._allocator)
            self._peak = max(self._peak, self.live_bytes)
            return address

    def admit(self, nbytes: int, who: str) -> None:
        """Raises BackendUnavailable if `who` needs more than there is; an allocator of others says so itself."""
        if self._allocator is not None:
            return
        free, total = self._memory.available()
        free += self.kept_bytes
        if nbytes > free:
            raise BackendUnavailable(
                f"{who} needs {nbytes:,} bytes of memory on {self._memory.name}, {free:,} of {total:,} are free"
                f"{self._told()}; end other processes on it, or use smaller dims"
            )

    def free(self, address: int) -> None:
        """Takes an allocation back: keeps it, or gives it to whoever gave it."""
        held = self._held.pop(address)
        if held.allocator is not None:
            held.allocator.free(address, held.nbytes, _DEFAULT_STREAM)
        elif self.kept_bytes + held.nbytes <= self._keep:
            self._pieces.append(_Piece(held.nbytes, address))
        else:
            self._memory.free(address)

    def release(self) -> None:
        """Gives kept memory back; part of `runtime.shutdown`."""
        self.trim()

    def _check_limit(self, nbytes: int) -> None:
        live = self.live_bytes
        if self._limit is not None and live + nbytes > self._limit:
            raise BackendUnavailable(
                f"{nbytes:,} bytes on {self._memory.name} are above the pool's limit of {self._limit:,}{self._told()}; "
                "raise the limit, or release what is not needed"
            )

    def _fresh(self, nbytes: int) -> int:
        if self._allocator is not None:
            return self._foreign(self._allocator, nbytes)
        try:
            return self._memory.allocate(nbytes)
        except BackendUnavailable as error:
            if self.trim():
                return self._fresh(nbytes)
            raise BackendUnavailable(f"{error.message}{self._told()}") from error

    def _foreign(self, allocator: Allocator, nbytes: int) -> int:
        try:
            address = int(allocator.allocate(nbytes, _DEFAULT_STREAM))
        except Exception as error:  # that of any library; its own word for a device that is full is not known
            raise BackendUnavailable(
                f"the allocator of {self._memory.name} does not give {nbytes:,} bytes: {error}{self._told()}"
            ) from error
        if address % ALIGN:
            allocator.free(address, nbytes, _DEFAULT_STREAM)
            raise BackendUnavailable(
                f"the allocator of {self._memory.name} gave memory at {address:#x}, no multiple of {ALIGN}; use another"
            )
        return address

    def _kept_piece(self, nbytes: int) -> tuple[int, int] | None:
        """Address and size of the smallest kept piece that fits and that no queued work uses any more."""
        fitting = [piece for piece in tuple(self._pieces) if nbytes <= piece.nbytes <= _SLACK * nbytes]
        if not fitting:
            return None
        piece = min(fitting, key=lambda piece: piece.nbytes)
        if piece.address not in self._settled:
            known = frozenset(each.address for each in tuple(self._pieces))
            if not self._memory.settle():
                return None
            self._settled = known
        self._pieces.remove(piece)
        self._settled -= {piece.address}
        self._reused += 1
        return piece.address, piece.nbytes

    def _told(self) -> str:
        """What holds the memory, as the end of a message."""
        listed = [f"{holder} {nbytes:,}" for holder, nbytes in self.holders().items()]
        more = len(listed) - _MOST_HOLDERS
        text = ", ".join(listed[:_MOST_HOLDERS]) + (f" and {more} more" if more > 0 else "")
        return f"; this process holds, in bytes: {text}" if listed else ""

    def __repr__(self) -> str:
        found = self.statistics()
        return f"DevicePool({self._memory.name}: {found.live_bytes:,} bytes live, {found.kept_bytes:,} kept)"


_MOST_HOLDERS = 4
"""Listed in a message."""

_pools: WeakValueDictionary[tuple[int, int], DevicePool] = WeakValueDictionary()
_configured: dict[tuple[int, int], DevicePool] = {}
_pools_lock = threading.RLock()


def pool_of(memory: DeviceMemory) -> DevicePool:
    """The pool of a device, one for the whole process."""
    with _pools_lock:
        found = _pools.get(memory.dlpack_device)
        if found is None:
            found = _pools[memory.dlpack_device] = DevicePool(memory)
        return found


def _checked(what: str, nbytes: object) -> int:
    if not is_whole(nbytes, least=0):
        raise InputMismatch(f"{what} is a number of bytes, 0 or more, got {nbytes!r}")
    assert isinstance(nbytes, int)
    return nbytes
