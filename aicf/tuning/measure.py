"""From cases to a tuning table, on whatever device times them.

How a device takes a time is its own affair (`host_device`, `cuda_device`); here every case is timed in turn, and the
times become rows. A case that fails becomes a row too, with the reason, and the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles
from typing import Protocol, runtime_checkable

from aicf.arguments import check_function, instance_from
from aicf.backends.native import NativeCode
from aicf.errors import AicfError, CaptureError, PolicyError
from aicf.policies.tuning_table import Failure, Header, MeasuredWorkload, Row, Timing, TuningTable
from aicf.progress import Step
from aicf.tuning.cases import Case, Prepared

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


@runtime_checkable
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

    @property
    def lost(self) -> bool:
        """Whether a case that failed left it useless to this process."""
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


def measure(prepared: Prepared, device: Device, step: Step, older: TuningTable | None = None) -> TuningTable:
    """The table of all cases, sorted. If the device is lost, the rest stays unmeasured, see `Device.lost`.

    Args:
        step: Is told what is being done.
        older: A table of the same device; what it has is not measured again.

    Raises:
        PolicyError: `older` is of another device, driver or library, or an argument is of another kind.
    """
    instance_from(prepared, Prepared, PolicyError, "what to measure", "what aicf.tuning.cases.load returns")
    instance_from(
        device, Device, PolicyError, "what measures", "what aicf.tuning.devices.open_device returns"
    )
    if older is not None:
        instance_from(older, TuningTable, PolicyError, "the older table", "a TuningTable")
    check_function(step, PolicyError, "what is told of progress")
    header = Header(
        prepared.backend,
        prepared.arch,
        prepared.threads,
        device.name,
        device.driver,
        dict(sorted(device.libraries.items())),
        prepared.toolchain,
    )
    if older is not None:
        _check_together(header, older.header)
    found: dict[str, MeasuredWorkload] = {}
    for number, case in enumerate(prepared.cases, 1):
        if device.lost:
            break
        key = case.work.digest
        if older is None or not _has(older, case):
            step(f"measuring {number} of {len(prepared.cases)}: {case.label}")
            measured = _measured(case, device)
            found[key] = found[key].merged(measured) if key in found else measured
    return TuningTable(header).with_works(list(found.values()))


def _has(table: TuningTable, case: Case) -> bool:
    """Whether the table knows the case; of one with `device_fields`, whether it knows any of its variants."""
    measured = table.find(case.work)
    results = () if measured is None else (*measured.rows, *measured.failed)
    own = [result for result in results if (result.kernel, result.version) == (case.kernel, case.version)]
    return any(case.device_fields or result.spec == case.spec for result in own)


def _measured(case: Case, device: Device) -> MeasuredWorkload:
    """A case alone: its rows, or the reasons why there are none."""
    rows: list[Row] = []
    failed: list[Failure] = []
    variants: Sequence[Variant] = ()
    try:
        variants = _variants(case, device)
    except AicfError as error:
        failed.append(Failure(case.kernel, case.version, case.spec, error.message))
    for variant in variants:
        try:
            rows.append(_row(case, variant, device))
        except AicfError as error:
            failed.append(Failure(case.kernel, case.version, variant.spec, error.message))
    return MeasuredWorkload(case.work.digest, case.work, tuple(rows), tuple(failed))


def _variants(case: Case, device: Device) -> Sequence[Variant]:
    if case.device_fields:
        if not (offered := device.variants(case)):
            raise CaptureError("the library offers no algorithm for this work")
        return offered
    return [Variant(case.native, case.spec, {})]


def _row(case: Case, variant: Variant, device: Device) -> Row:
    samples = device.time(case, variant.native)
    cold, warm = timing_of(samples.cold), timing_of(samples.warm)
    if min(cold.median_us, warm.median_us) <= 0:
        raise CaptureError(
            f"it took {min(cold.median_us, warm.median_us):.3g} us more than what stands between its runs: too "
            "little to be told from noise"
        )
    return Row(case.kernel, case.version, variant.spec, variant.record, cold, warm)


def timing_of(samples: Sequence[float]) -> Timing:
    """Median and distance between the quartiles."""
    if len(samples) < 2:
        return Timing(round(samples[0], _DECIMALS), 0.0)
    first, _, third = quantiles(samples, n=4, method="inclusive")
    return Timing(round(median(samples), _DECIMALS), round(third - first, _DECIMALS))


def added(table: TuningTable, older: TuningTable) -> TuningTable:
    """`older` with the results of `table`, those that both have as `table` has them.

    Raises:
        PolicyError: they were not measured on the same device with the same driver and libraries.
    """
    _check_together(table.header, older.header)
    libraries = {**older.header.libraries, **table.header.libraries}
    return TuningTable(replace(table.header, libraries=libraries), older.works).with_works(table.works)


def _check_together(now: Header, before: Header) -> None:
    """Raises PolicyError if times cannot be compared."""
    for what in ("backend", "arch", "threads", "device", "driver"):
        _check_same(what, getattr(before, what), getattr(now, what))
    for name in now.libraries.keys() & before.libraries.keys():
        _check_same(name, before.libraries[name], now.libraries[name])


def _check_same(what: str, before: object, now: object) -> None:
    if before != now:
        raise PolicyError(
            f"tuning: the table has {what} {before}, now it is {now}: times of both cannot be compared; write a table "
            "of its own"
        )
