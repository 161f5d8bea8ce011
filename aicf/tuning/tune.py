"""`aicf.tune` and `aicf tune`: a model's kernels are measured on the device of this machine, and the table is written
as the times come."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Literal

from aicf.compilation.record import Options
from aicf.compilation.sources import Dims, Model, Policy, Values, dims_text, policy_text, values_text
from aicf.errors import AicfError, CaptureError, PolicyError, quoted
from aicf.policies.tuning_table import Failure, MeasuredWorkload, TuningTable
from aicf.support.arguments import flag_from, path_from
from aicf.support.files import check_writable, reason_of
from aicf.support.progress import Step, progress
from aicf.tuning.case_compiler import CaseCompiler
from aicf.tuning.cases import Prepared
from aicf.tuning.devices import check_device, open_device
from aicf.tuning.growing_table import GrowingTable
from aicf.tuning.measure import Device, header_of, measure, result_of
from aicf.tuning.plan import Plan, plan
from aicf.tuning.search import Report, Search
from aicf.tuning.searched_works import works_of
from aicf.tuning.trials import Trials
from aicf.tuning.work_search import Outcome, Standing

VARIANTS = 16
"""Most variants of a kernel that are measured without a search, if the caller does not say."""
SECONDS = 60.0
"""Of a search, if the caller does not say."""

MOST_SECONDS = 1e7


@dataclass(frozen=True)
class Tuned:
    """What tuning found.

    Args:
        table: All rows, also those of earlier runs.
        device: What the device is called.
        failures: Variants that this run could not measure.
        outcomes: Of each piece of work, if it was searched; the largest share of the program's time first.
    """

    table: TuningTable
    device: str
    failures: tuple[Failure, ...]
    outcomes: tuple[Outcome, ...] = ()


def tune(
    model: Model,
    output: str | Path,
    target: str | None = None,
    *,
    dims: Dims | None = None,
    values: Values | None = None,
    policy: Policy | None = None,
    threads: int = 1,
    meta: Literal["device", "host"] | None = None,
    check_finite: bool = False,
    training: bool = False,
    variants: int = VARIANTS,
    search: bool = False,
    time: float | None = None,
    replace: bool = False,
) -> Tuned:
    """Measures the kernels that could run a model, and writes a tuning table for `aicf.compile(..., tuning=output)`.

    The table is written as the times come, whole at any time. If the file exists, its rows are kept, and only what it
    lacks is measured: after an interrupt the same call goes on.

    Args:
        model, target, dims, values, policy, threads, meta, check_finite, training: As for `aicf.compile`.
        output: The file of the table.
        variants: Most variants of one kernel on one piece of work that are measured without a search.
        search: Whether to search among all variants, from the best known one through those that are alike.
        time: Seconds of the search, 60 if it is None; they begin when the model is read.
        replace: Whether the file is begun anew.

    Raises:
        PolicyError: an option is not legal, the table cannot be read or written, or is of another device.
        BackendUnavailable: the device or what compiles for it is not here.
        CaptureError: nothing could be measured, or a kernel broke the device for this process.
    """
    seconds = seconds_of(search, time)
    options = Options(
        target or "",
        policy_text(policy),
        dims_text(dims),
        threads,
        meta=meta or "",
        check_finite=flag_from(check_finite, PolicyError, "check_finite"),
        values=values_text(values),
        training=flag_from(training, PolicyError, "training"),
    )
    path = _writable(path_from(output, PolicyError, "the tuning table's path"))
    if target is not None:
        check_device(target)
    older = None if flag_from(replace, PolicyError, "replace") else older_table(path)
    with progress("preparing") as step:
        found = plan(model, options, None if seconds else variants, step)
    if seconds is None:
        with progress("measuring") as step:
            return measured(found, path, older, step)
    with progress("searching") as step:
        return searched(found, path, older, seconds, _words(step))


def _writable(path: Path) -> Path:
    """Raises PolicyError if a file cannot be written, before times are taken for it."""
    try:
        check_writable(path)
    except (OSError, ValueError) as error:
        raise PolicyError(
            f"cannot write the tuning table: {reason_of(error)}; choose a path that can be written",
            location=str(path),
        ) from None
    return path


def seconds_of(search: bool, time: object) -> float | None:
    """The seconds of a search, None without one. Raises PolicyError if both contradict each other."""
    if not flag_from(search, PolicyError, "search"):
        if time is not None:
            raise PolicyError("time: only a search has a budget; ask for one, or leave it out")
        return None
    if time is None:
        return SECONDS
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 < time <= MOST_SECONDS:
        raise PolicyError(
            f"time: a search cannot take {quoted(time)} seconds; give more than 0, and at most {MOST_SECONDS:.0f}"
        )
    return float(time)


def older_table(path: Path) -> TuningTable | None:
    """The table to go on with, None if there is no file. Raises PolicyError if it is no table."""
    if not isfile(path):
        return None
    try:
        return TuningTable.load(path)
    except PolicyError as error:
        raise PolicyError(
            f"{error.message}; nothing was changed: give -o another file, or --replace to begin anew"
        ) from None


def _words(step: Step) -> Report:
    def report(standing: Standing, left: float) -> None:
        step(f"{standing.name}: {standing.tried} of {standing.variants} variants, {left:.0f} s left")

    return report


# With what was planned


def measured(found: Plan, path: Path, older: TuningTable | None, step: Step) -> Tuned:
    """Measures all candidates that the table lacks. Raises as `tune`."""
    with _open(found, path, older) as (compiler, device, table):
        _measure_all(found, compiler, device, table, step)
    return _result(device, table)


def measured_folder(prepared: Prepared, path: Path, older: TuningTable | None, step: Step) -> Tuned:
    """Measures all prepared cases that the table lacks. Raises as `tune`."""
    device = open_device(prepared.setting)
    with GrowingTable(header_of(prepared.setting, device), older, path) as table:
        measure(prepared, device, step, table)
    return _result(device, table)


def searched(found: Plan, path: Path, older: TuningTable | None, seconds: float, report: Report) -> Tuned:
    """Searches among all candidates. Raises as `tune`.

    Args:
        found: With all variants.
        report: Is told of each step.
    """
    measurements = found.policy.measurements
    works = works_of(found)
    with _open(found, path, older) as (compiler, device, table):
        tried = [
            (work, Trials(work.candidates, work.first, compiler, device, table, measurements))
            for work in works
        ]
        outcomes = Search(tried, device, seconds, report).run()
        if device.lost:
            table.keep_failures()
    return _result(device, table, outcomes)


@contextmanager
def _open(
    found: Plan, path: Path, older: TuningTable | None
) -> Generator[tuple[CaseCompiler, Device, GrowingTable]]:
    with found.compiler() as compiler:
        setting = found.setting(compiler)
        device = open_device(setting)
        with GrowingTable(header_of(setting, device), older, path) as table:
            yield compiler, device, table


def _measure_all(
    found: Plan, compiler: CaseCompiler, device: Device, table: GrowingTable, step: Step
) -> None:
    """Measures in the order of the candidates, while those that come next are compiled."""
    left = [number for number, candidate in enumerate(found.candidates) if not candidate.is_in(table)]
    for place, number in enumerate(left):
        if device.lost:
            break
        candidate = found.candidates[number]
        step(f"measuring {place + 1} of {len(left)}: {candidate.label}")
        case = compiler.next_case(left[place:], device.shares_cores)
        if isinstance(case, AicfError):
            failure = Failure(candidate.kernel.id, candidate.kernel.version, candidate.spec, case.message)
            table.add(MeasuredWorkload(candidate.work.digest, candidate.work, (), (failure,)))
        else:
            table.add(result_of(case, device))
    if device.lost:
        table.keep_failures()


def _result(device: Device, table: GrowingTable, outcomes: Sequence[Outcome] = ()) -> Tuned:
    """What was found. Raises CaptureError if that is nothing, or the device is lost."""
    found, failures = table.table, tuple(table.failures)
    if failures and not any(work.rows for work in found.works):
        raise CaptureError(f"nothing could be measured; {failures[0].label} failed: {failures[0].reason}")
    if device.lost:
        raise CaptureError(
            f"{failures[-1].label} failed: {failures[-1].reason}; it left {device.name} useless to this process: run "
            "the command again, which goes on after it"
        )
    return Tuned(found, device.name, failures, tuple(outcomes))
