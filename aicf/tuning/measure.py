"""From cases to a tuning table, on whatever device times them.

How a device takes a time is its own affair (`host_device`, `cuda_device`); here every case is timed in turn, and the
times become rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Protocol

from aicf.backends.native import NativeCode
from aicf.errors import PolicyError
from aicf.policies.tuning_table import Header, MeasuredWork, Row, Timing, TuningTable
from aicf.progress import Step
from aicf.tuning.cases import Case
from aicf.tuning.prepared import Prepared

_DECIMALS = 3
"""Of microseconds in a table."""


@dataclass(frozen=True)
class Variant:
    """A case ready to run: with what only the device could give, and which of the device's ways this is."""

    native: NativeCode
    spec: dict[str, object]
    record: dict[str, object]


@dataclass(frozen=True)
class Samples:
    """Microseconds of single runs: with nothing in the cache, and repeated on the same operands."""

    cold: Sequence[float]
    warm: Sequence[float]


class Device(Protocol):
    """What times cases."""

    @property
    def name(self) -> str:
        """What its maker calls it."""
        ...

    @property
    def driver(self) -> str:
        """Version of its driver, empty if it has none."""
        ...

    @property
    def libraries(self) -> Mapping[str, str]:
        """Versions of the libraries that cases may call."""
        ...

    def variants(self, case: Case) -> Sequence[Variant]:
        """The ways in which the device offers to run a case with `device_fields`; none if it cannot."""
        ...

    def time(self, case: Case, native: NativeCode) -> Samples:
        """Runs a program on random data, many times.

        Raises:
            BackendUnavailable: the device is not the one the code is for, or has too little memory.
            CaptureError: the program cannot run; the message names its instruction.
        """
        ...


def measure(prepared: Prepared, device: Device, step: Step) -> TuningTable:
    """The table of all cases, sorted.

    Args:
        step: Is told what is being done.
    """
    rows: dict[str, list[Row]] = {}
    works = {case.work.digest: case.work for case in prepared.cases}
    for number, case in enumerate(prepared.cases, 1):
        step(f"measuring {number} of {len(prepared.cases)}: {case.label}")
        found = rows.setdefault(case.work.digest, [])
        found += [_row(case, variant, device) for variant in _variants(case, device)]
    header = Header(
        prepared.backend,
        prepared.arch,
        prepared.threads,
        device.name,
        device.driver,
        dict(sorted(device.libraries.items())),
        prepared.toolchain,
    )
    measured = [MeasuredWork(key, works[key], tuple(found)) for key, found in rows.items() if found]
    return TuningTable(header).with_works(measured)


def _variants(case: Case, device: Device) -> Sequence[Variant]:
    if case.device_fields:
        return device.variants(case)
    return [Variant(case.native, case.spec, {})]


def _row(case: Case, variant: Variant, device: Device) -> Row:
    samples = device.time(case, variant.native)
    cold, warm = timing_of(samples.cold), timing_of(samples.warm)
    return Row(case.kernel, case.version, variant.spec, variant.record, cold, warm)


def timing_of(samples: Sequence[float]) -> Timing:
    """Median and distance between the quartiles."""
    if len(samples) < 2:
        return Timing(round(samples[0], _DECIMALS), 0.0)
    first, _, third = quantiles(samples, n=4, method="inclusive")
    return Timing(round(median(samples), _DECIMALS), round(third - first, _DECIMALS))


def added(table: TuningTable, older: TuningTable) -> TuningTable:
    """`older` with the works of `table` in place of its own.

    Raises:
        PolicyError: they were not measured on the same device with the same driver and libraries.
    """
    for what in ("backend", "arch", "threads", "device", "driver", "libraries"):
        before, now = getattr(older.header, what), getattr(table.header, what)
        if before != now:
            raise PolicyError(
                f"tuning: the table has {what} {before}, now it is {now}: times of both cannot be compared; "
                "write a table of its own"
            )
    return TuningTable(table.header, older.works).with_works(table.works)
