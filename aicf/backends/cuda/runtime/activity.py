"""Kernels as CUPTI records them: which instruction queued them, on which stream, from when to when.

CUPTI is NVIDIA's; the package cupti-python calls it. Both are optional, and a system may keep users from it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from aicf.errors import BackendUnavailable
from aicf.support.extras import install

BUFFER_BYTES = 8 << 20
"""Of a buffer that CUPTI fills with records."""
KINDS = ("DRIVER", "RUNTIME", "EXTERNAL_CORRELATION", "CONCURRENT_KERNEL")
"""Kinds of records. CUPTI says which instruction a call belongs to only where it records the call: ours are the
driver's, those of libraries the runtime's."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel: the number of the instruction that queued it, its symbol, the number of its stream, and nanoseconds
    of the device's clock."""

    launch: int
    symbol: str
    stream: int
    start_ns: int
    end_ns: int


class Recorder:
    """Records the kernels that are queued while it is open.

    Args:
        cupti: The module of cupti-python.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._kernels: list[Any] = []
        self._launches: dict[int, int] = {}

    @contextmanager
    def instruction(self, launch: int) -> Generator[None]:
        """What is queued meanwhile belongs to instruction number `launch`."""
        kind = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._cupti.activity_push_external_correlation_id(kind, launch)
        try:
            yield
        finally:
            self._cupti.activity_pop_external_correlation_id(kind)

    def buffer(self) -> tuple[int, int]:
        """Called by CUPTI for a new buffer: its bytes, and the most records in it, 0 for as many as fit."""
        return BUFFER_BYTES, 0

    def completed(self, records: Sequence[Any]) -> None:
        """Called by CUPTI for the records of a full buffer."""
        kinds = self._cupti.ActivityKind
        for record in records:
            if record.kind == kinds.CONCURRENT_KERNEL:
                self._kernels.append(record)
            elif record.kind == kinds.EXTERNAL_CORRELATION:
                self._launches[record.correlation_id] = record.external_id

    def found(self) -> list[KernelTime]:
        """The kernels of instructions, in order of their start, once all have run and the recorder is closed."""
        times = [
            KernelTime(launch, kernel.name, kernel.stream_id, kernel.start, kernel.end)
            for kernel in self._kernels
            if (launch := self._launches.get(kernel.correlation_id)) is not None
        ]
        return sorted(times, key=lambda time: (time.start_ns, time.launch))


@contextmanager
def recording() -> Generator[Recorder]:
    """A recorder; all records are with it at the end.

    Raises:
        BackendUnavailable: CUPTI is not installed, or the system keeps users from it.
    """
    try:
        cupti: Any = import_module("cupti.cupti")
    except ImportError as error:
        raise BackendUnavailable(f"CUPTI does not import ({error}); {install('cuda')}") from None
    recorder = Recorder(cupti)
    kinds = tuple(getattr(cupti.ActivityKind, name) for name in KINDS)
    try:
        cupti.activity_register_callbacks(recorder.buffer, recorder.completed)
        for kind in kinds:
            cupti.activity_enable(kind)
    except cupti.cuptiError as error:
        raise BackendUnavailable(
            f"CUPTI refuses to record ({error}); let users read performance counters (the option "
            "NVreg_RestrictProfilingToAdminUsers=0 of the driver), or close other profilers"
        ) from None
    try:
        yield recorder
    finally:
        cupti.activity_flush_all(1)
        for kind in kinds:
            cupti.activity_disable(kind)
