"""Native code at run time: what a backend gives the runtime to call. No IR, no code generator, no decisions.

Everything here is plain Python and imports no xDSL, because loading an artifact goes through it. What a
backend needs at compile time is in `base`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class NativeCode:
    """Code of a whole module.

    Args:
        code: The object file (or whatever the backend loads), the same bytes for the same input.
        features: CPU or device features it needs.
        functions: Names of the library functions whose addresses follow the data pointers in every table.
    """

    code: bytes
    features: tuple[str, ...]
    functions: tuple[str, ...] = ()


class Entry(Protocol):
    """A loaded program."""

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """The call of thread `tid` of `nthreads` on one pointer table, ready to be made many times.

        Args:
            tid: Which of the threads, from 0.
            nthreads: How many run it together; all must be running at once, they meet at barriers.
            table: Address of an array of pointers: arena, binds in program order, then
                `NativeCode.functions`. Its contents may change between calls.
        """
        ...


class ProfileEntry(Protocol):
    """A loaded program whose instructions can be run one at a time."""

    def bind(self, launch: int, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """The call that runs instruction number `launch` in text order; -1 runs nothing, to time the call."""
        ...


class LoadedCode(Protocol):
    """Native code in this process. It stays callable while this object is referenced."""

    def entry(self, symbol: str) -> Entry:
        """The entry of one program. Raises ArtifactError if there is none."""
        ...

    def profile_entry(self, symbol: str) -> ProfileEntry | None:
        """The same program instruction by instruction; None if this code was built without."""
        ...

    def function_addresses(self) -> Sequence[int]:
        """Addresses that belong after the data pointers of a table, in `NativeCode.functions` order."""
        ...


_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_RUN_ONE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class CEntry:
    """`Entry` of a C function `void run(i64 tid, i64 nthreads, void** table)`; it runs without the
    interpreter lock.

    Args:
        address: The function's address; whoever made it keeps the code alive.
    """

    def __init__(self, address: int) -> None:
        self._function = _RUN(address)

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """See `Entry`. Arguments are converted here, once: ctypes takes 0.2 us to convert three integers."""
        return functools.partial(
            self._function, ctypes.c_int64(tid), ctypes.c_int64(nthreads), ctypes.c_void_p(table)
        )


class CProfileEntry:
    """`ProfileEntry` of a C function `void run(i64 launch, i64 tid, i64 nthreads, void** table)`."""

    def __init__(self, address: int) -> None:
        self._function = _RUN_ONE(address)

    def bind(self, launch: int, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """See `ProfileEntry`."""
        numbers = (ctypes.c_int64(launch), ctypes.c_int64(tid), ctypes.c_int64(nthreads))
        return functools.partial(self._function, *numbers, ctypes.c_void_p(table))
