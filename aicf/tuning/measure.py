"""From cases to a tuning table, on whatever device times them.

How a device takes a time is its own affair (`host_device`, `cuda_device`); here every case is timed in turn, and the
times become rows of a growing table. A case that fails becomes a row too, with the reason, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Protocol, runtime_checkable

from aicf.backends.native import NativeCode
from aicf.errors import AicfError, CaptureError, PolicyError
from aicf.policies.tuning_table import Failure, Header, MeasuredWorkload, Row, Timing
from aicf.support.arguments import check_function, instance_from
from aicf.support.progress import Step
from aicf.tuning.cases import Case, Prepared, Setting
from aicf.tuning.growing_table import GrowingTable

_DECIMALS = 3
"""Of microseconds in a table."""


@dataclass(frozen=True)
class Variant:
    """A case ready to run: with what only the device could give, and which of the device's ways this is."""

    native: NativeCode
    spec: dict[str, object]
    record: dict[str, object]


Runnable = tuple[Case, Variant]
"""A case and the way to run it."""


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

    @property
    def shares_cores(self) -> bool:
        """Whether cases run on the cores that compile others: then only one of the two goes on at a time."""
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

    def rounds(self, first: Runnable, second: Runnable) -> Iterator[tuple[Samples, Samples]]:
        """Runs two programs in turns, round after round; the caller may stop early. Raises as `time`."""
        ...


def measure(prepared: Prepared, device: Device, step: Step, table: GrowingTable) -> None:
    """Adds all cases to the table that it does not have. If the device is lost, the rest stays unmeasured, see
    `Device.lost`.

    Args:
        step: Is told what is being done.

    Raises:
        PolicyError: an argument is of another kind, or the file of the table cannot be written.
    """
    instance_from(prepared, Prepared, PolicyError, "what to measure", "what aicf.tuning.cases.load returns")
    instance_from(
        device, Device, PolicyError, "what measures", "what aicf.tuning.devices.open_device returns"
    )
    instance_from(table, GrowingTable, PolicyError, "the table", "a GrowingTable")
    check_function(step, PolicyError, "what is told of progress")
    for number, case in enumerate(prepared.cases, 1):
        if device.lost:
            break
        if not table.has(case.work, case.kernel, case.version, None if case.device_fields else case.spec):
            step(f"measuring {number} of {len(prepared.cases)}: {case.label}")
            table.add(result_of(case, device))
    if device.lost:
        table.keep_failures()


def rounds_by_time(
    device: Device, first: Runnable, second: Runnable, count: int
) -> Iterator[tuple[Samples, Samples]]:
    """The rounds of a device that can only time one program after the other; who begins changes."""
    for number in range(count):
        times: dict[bool, Samples] = {}
        for is_second in (False, True) if number % 2 == 0 else (True, False):
            case, variant = second if is_second else first
            times[is_second] = device.time(case, variant.native)
        yield times[False], times[True]


def header_of(setting: Setting, device: Device) -> Header:
    """Where times that the device takes will hold."""
    return Header(
        setting.backend,
        setting.arch,
        setting.threads,
        device.name,
        device.driver,
        dict(sorted(device.libraries.items())),
        setting.toolchain,
    )


def result_of(case: Case, device: Device) -> MeasuredWorkload:
    """A case alone: its rows, or the reasons why there are none."""
    rows: list[Row] = []
    failed: list[Failure] = []
    variants: Sequence[Variant] = ()
    try:
        variants = variants_of(case, device)
    except AicfError as error:
        failed.append(Failure(case.kernel, case.version, case.spec, error.message))
    for variant in variants:
        try:
            rows.append(row_of(case, variant, device.time(case, variant.native)))
        except AicfError as error:
            failed.append(Failure(case.kernel, case.version, variant.spec, error.message))
    return MeasuredWorkload(case.work.digest, case.work, tuple(rows), tuple(failed))


def variants_of(case: Case, device: Device) -> Sequence[Variant]:
    """What can be run of a case. Raises AicfError if nothing can."""
    if case.device_fields:
        if not (offered := device.variants(case)):
            raise CaptureError("the library offers no algorithm for this work")
        return offered
    return [Variant(case.native, case.spec, {})]


def row_of(case: Case, variant: Variant, samples: Samples) -> Row:
    """The row of a variant that took so long. Raises CaptureError for times that say nothing."""
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
