"""Measured times, and which of the programs of a report they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aicf.errors import InputMismatch
from aicf.inspection.benched import Benched, BenchResult, read_bench_result
from aicf.report.opened import Opened


@dataclass(frozen=True)
class Measured:
    """Times, and the file that they are from."""

    file: str
    result: BenchResult

    @property
    def by_program(self) -> dict[str, Benched]:
        """The times of each program by its name."""
        return {benched.timing.program: benched for benched in self.result.programs}


def read_measured(file: str | Path) -> Measured:
    """Reads what `aicf bench --json` wrote. Raises as `read_bench_result`."""
    return Measured(str(file), read_bench_result(file))


def assigned(opened: Sequence[Opened], measured: Sequence[Measured]) -> dict[int, Measured]:
    """Measured times by the number of the program that they are of, each program at most once.

    Raises:
        InputMismatch: some are of no program that has none yet.
    """
    found: dict[int, Measured] = {}
    for times in measured:
        fitting = (n for n, each in enumerate(opened) if n not in found and _is_of(times.result, each))
        number = next(fitting, None)
        if number is None:
            have = " and ".join(each.path for each in opened)
            raise InputMismatch(
                f"these times are of another program than {have}: '{times.result.model}' for {times.result.target}, "
                "or of other instructions; measure this one with `aicf bench --json`",
                location=times.file,
            )
        found[number] = times
    return found


def _is_of(result: BenchResult, opened: Opened) -> bool:
    """Whether times are of a program: the same model, target and instructions with their kernels."""
    plan = opened.plan
    if (result.model, result.target) != (opened.record.name, f"{plan.backend}:{plan.arch}"):
        return False
    for benched in result.programs:
        program = plan.by_name.get(benched.timing.program)
        if program is None:
            return False
        launched = [(launch.name, launch.kernel) for launch in program.launches]
        if benched.instructions and launched != [(row.name, row.kernel) for row in benched.instructions]:
            return False
    return True
