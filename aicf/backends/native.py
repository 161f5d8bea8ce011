"""Native code at run time: what a backend gives the runtime to call. No IR, no code generator, no decisions.

Everything here is plain Python and imports no xDSL, because loading an artifact goes through it. What a
backend needs at compile time is in `base`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class ProgramNeeds:
    """What the code of one program takes for granted of who calls it.

    Args:
        entry: Its symbol.
        threads: How many enter it together.
        launches: Its instructions.
        nbytes: Bytes that it reads or writes past each data pointer of its table: the arena, then the binds.
    """

    entry: str
    threads: int
    launches: int
    nbytes: tuple[int, ...]


@dataclass(frozen=True)
class NativeCode:
    """Code of a whole module.

    Args:
        code: The object file (or whatever the backend loads), the same bytes for the same input.
        features: CPU or device features it needs.
        functions: Names of the library functions whose addresses follow the data pointers in every table.
        memory: `host`: `load` gives `LoadedCode`, and programs run on host memory. `device`: it gives `DeviceCode`, and
            is called at the first use, so that a machine without the device can compile, save and explain.
        reserves: Bytes that a program of device code needs besides the plan's buffers, by entry symbol.
        programs: What each program needs; the compiler adds it to what a backend builds.
    """

    code: bytes
    features: tuple[str, ...]
    functions: tuple[str, ...] = ()
    memory: Literal["host", "device"] = "host"
    reserves: Mapping[str, int] = field(default_factory=dict[str, int])
    programs: tuple[ProgramNeeds, ...] = ()


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


class CEntry(Entry):
    """`Entry` of a C function `void run(i64 tid, i64 nthreads, void** table)`; it runs without the
    interpreter lock.

    Args:
        address: The function's address; whoever made it keeps the code alive.
    """

    def __init__(self, address: int) -> None:
        self.address = address
        self._function = _RUN(address)

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """See `Entry`. Arguments are converted here, once: ctypes takes 0.2 us to convert three integers."""
        return functools.partial(
            self._function, ctypes.c_int64(tid), ctypes.c_int64(nthreads), ctypes.c_void_p(table)
        )


class CProfileEntry(ProfileEntry):
    """`ProfileEntry` of a C function `void run(i64 launch, i64 tid, i64 nthreads, void** table)`."""

    def __init__(self, address: int) -> None:
        self.address = address
        self._function = _RUN_ONE(address)

    def bind(self, launch: int, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        numbers = (ctypes.c_int64(launch), ctypes.c_int64(tid), ctypes.c_int64(nthreads))
        return functools.partial(self._function, *numbers, ctypes.c_void_p(table))


# Code whose memory lies on a device


class DeviceMemory(Protocol):
    """Memory of one device and copies to and from it. Addresses and streams are integers that only this object and
    the code of the same device understand; copies are queued on a stream and return at once."""

    @property
    def name(self) -> str:
        """As people call it, for messages."""
        ...

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Device type and index as DLPack numbers them."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Address of `nbytes` (more than 0) fresh bytes, a multiple of 256. Raises BackendUnavailable when full."""
        ...

    def free(self, address: int) -> None:
        """Gives an allocation back once the device no longer uses it."""
        ...

    def allocate_pinned(self, nbytes: int) -> int:
        """Host address of page-locked memory, which the device copies from and to beside the caller."""
        ...

    def free_pinned(self, address: int) -> None:
        """Gives pinned memory back."""
        ...

    def available(self) -> tuple[int, int]:
        """Bytes that are free now, and all bytes of the device."""
        ...

    def open_stream(self, priority: int = 0) -> int:
        """A new queue; one with a lower number is served first. Work on it is also ordered with the device's default
        stream."""
        ...

    def close_stream(self, stream: int) -> None:
        """Waits for what is queued and ends the queue."""
        ...

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Host to device. The source may change as soon as this returns, unless it is pinned."""
        ...

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Device to host; the target holds the bytes after `synchronize`."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Device to device."""
        ...

    def clear(self, target: int, nbytes: int, stream: int) -> None:
        """Zeros."""
        ...

    def follow(self, stream: int, other: int) -> None:
        """Lets work queued on `stream` from now on wait for what `other` holds now."""
        ...

    def synchronize(self, stream: int) -> None:
        """Waits for everything on `stream`. Raises AicfError if any of it failed."""
        ...

    def settle(self) -> bool:
        """Waits for everything that is queued on the device; False, without waiting, `beside_capture`."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether somebody captures what is queued on `stream`, which then does not run."""
        ...

    def record_event(self, stream: int) -> int:
        """A new event at the end of what `stream` holds now."""
        ...

    def wait_event(self, stream: int, event: int) -> None:
        """Lets work queued on `stream` from now on wait for `event`."""
        ...

    def is_over(self, event: int) -> bool:
        """Whether the device has reached `event`. Raises AicfError if work before it failed."""
        ...

    def synchronize_event(self, event: int) -> None:
        """Waits for `event`. Raises AicfError if work before it failed."""
        ...

    def milliseconds(self, start: int, end: int) -> float:
        """Between two events that are over."""
        ...

    def close_event(self, event: int) -> None:
        """Gives an event back; what waits for it then still does."""
        ...

    def beside_capture(self) -> AbstractContextManager[None]:
        """Lets this thread allocate, copy and wait while somebody captures a stream of the device."""
        ...


@dataclass(frozen=True)
class KernelSpan:
    """A kernel that ran: the number of its instruction in launch order, its symbol, its queue by name, and microseconds
    from the start of the first kernel."""

    launch: int
    symbol: str
    queue: str
    start_us: float
    duration_us: float


class DeviceGraph(Protocol):
    """A program captured on one pointer table and one stream. Given back when nothing refers to it."""

    @property
    def launch(self) -> Callable[[], None]:
        """Queues one replay and returns; allocates, synchronises and decides nothing."""
        ...

    def launch_on(self, stream: int) -> Callable[[], None]:
        """As `launch`, on another stream."""
        ...

    def queue(self, stream: int) -> None:
        """Queues the instructions one by one on a stream, such as one that is being captured."""
        ...

    def set_pointers(self, pointers: Mapping[int, int]) -> None:
        """Replaces entries of the pointer table for later launches, by index.

        Raises CaptureError for one whose address an instruction has inside: the plan stages it."""
        ...

    def run_eagerly(self, around: Callable[[str], AbstractContextManager[Any]]) -> None:
        """Runs instruction after instruction, waiting for each, inside `around(its name)`.

        Raises CaptureError that names the failing one."""
        ...

    def instruction_times(self, repeats: int) -> list[list[float]]:
        """For each repeat, microseconds on the device: of an empty gap, then of each instruction in launch order, run
        one after the other."""
        ...

    def kernel_spans(self, repeats: int) -> list[KernelSpan]:
        """Every kernel of so many runs, as the device's own records have it.

        Raises BackendUnavailable if the device, or this system, keeps no records."""
        ...


class DeviceCode(Protocol):
    """Code on a device. It stays loaded while this object, or a graph of it, is referenced."""

    @property
    def memory(self) -> DeviceMemory:
        """Where its programs run."""
        ...

    def instructions(self, symbol: str) -> tuple[str, ...]:
        """Names of the instructions of one program, in launch order. Raises ArtifactError if there is none."""
        ...

    def capture(self, symbol: str, table: Sequence[int], descriptors: int, stream: int) -> DeviceGraph:
        """Captures one program.

        Args:
            symbol: Its entry.
            table: Device addresses: arena, then the binds in program order.
            descriptors: `descriptor_bytes` of device memory that the graph keeps for itself, 0 if it needs none.
            stream: Where it runs.

        Raises:
            ArtifactError: there is no such program.
            CaptureError: an instruction cannot be captured; the message names it.
        """
        ...
