"""`verify`: repeats a program in several processes, and says whether all runs gave the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from aicf import errors
from aicf.certificates.certificate import FORMAT, Certificate, Environment
from aicf.certificates.repeating import Request, Series
from aicf.compilation.compiled import CompiledModel
from aicf.errors import AicfError, ArtifactError, InputMismatch, quoted
from aicf.inspection.random_inputs import GENERATOR
from aicf.runtime.tensors import Array
from aicf.saving import tensor_bytes
from aicf.support.arguments import mapping_from, path_from
from aicf.support.dataclass_json import from_json_value, to_json_value
from aicf.support.whole_numbers import is_whole

RUNS, PROCESSES = 1000, 3
"""How often programs are repeated if nothing is said."""
GIVEN = "given"
"""The generator of inputs that a caller gave."""

Report = Callable[[int, int], None]
"""Called with the number of the process, from 1, and its runs so far."""


@dataclass(frozen=True)
class Verification:
    """What was found; `str()` is plain text.

    Args:
        certificate: Of the runs; it can be saved if `is_same`.
        differences: What differs between runs, between processes, and from the certificate it was held against.
        moved: What is other where that certificate was made.
        against: Whether there was one.
    """

    certificate: Certificate
    differences: tuple[str, ...]
    moved: tuple[str, ...]
    against: bool

    @property
    def is_same(self) -> bool:
        """Whether all runs gave the same bits, those of the certificate included."""
        return not self.differences

    def to_json_value(self) -> dict[str, object]:
        """JSON values: `same`, `differences`, `moved` and the certificate."""
        return {
            "same": self.is_same,
            "differences": list(self.differences),
            "moved": list(self.moved),
            "certificate": to_json_value(self.certificate),
        }

    def __str__(self) -> str:
        made = self.certificate
        where = f"each of {made.processes} processes" if made.processes > 1 else "1 process"
        what = (
            f"{made.model} for {made.target}: {made.runs} runs of {_programs(made)} in {where} on "
            f"{made.environment.device}"
        )
        if not self.is_same:
            head = f"{what}: different"
        else:
            head = f"{what}: the same bits{' as in the certificate' if self.against else ''}"
        moved = [f"  elsewhere, {line}" for line in self.moved]
        return "\n".join([head, *(f"  {line}" for line in self.differences), *moved])


def _programs(made: Certificate) -> str:
    count = len(made.programs)
    return f"{count} programs" if count > 1 else "the program"


def verify(
    model: str | Path | CompiledModel,
    runs: int | None = None,
    processes: int | None = None,
    *,
    seed: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    weights: str | Path | None = None,
    against: Certificate | str | Path | None = None,
    report: Report | None = None,
) -> Verification:
    """Runs every program of a model many times, in several processes one after the other, on fixed inputs, and compares
    the bits of all outputs, and of the state after each run.

    Args:
        model: The path of an artifact, or a compiled model.
        runs: Of each program in each process, each from the initial state; 1000 by default, or as in `against`.
        processes: 3 by default, or as in `against`.
        seed: Of random inputs, 0 by default, or as in `against`.
        inputs: Arrays by name, for one program, instead of random ones for every program.
        weights: A `.safetensors` file, for an artifact without weights.
        against: A certificate, or its path: outputs are compared with these, too.
        report: Called while it runs.

    Raises:
        ArtifactError: the artifact or the certificate cannot be read.
        InputMismatch: the numbers are not legal, or inputs do not fit the model or the certificate.
        Others: the program does not run here, as `aicf.load` and a call say.
    """
    certificate = Certificate.load(against) if isinstance(against, str | Path) else against
    counts = _counts(certificate, runs, processes, seed)
    _check_inputs(certificate, inputs)
    with tempfile.TemporaryDirectory(prefix="aicf-verify-") as name:
        folder = Path(name)
        request = Request(
            str(_artifact(model, folder)),
            None if weights is None else str(path_from(weights, InputMismatch, "the weights")),
            counts["runs"],
            counts["seed"],
            _saved(inputs, folder),
        )
        series = [
            _series(request, number, folder, report or (lambda number, runs: None))
            for number in range(1, counts["processes"] + 1)
        ]
    made = _certificate(series[0], counts, GENERATOR if inputs is None else GIVEN)
    unequal = [line for number, each in enumerate(series, 1) for line in _unequal_runs(number, each)]
    for number, each in enumerate(series[1:], 2):
        other = _certificate(each, counts, made.generator)
        unequal += [f"process {number}, run 1: {line}" for line in made.differences(other)]
    differences = [] if certificate is None else certificate.differences(made)
    moved = [] if certificate is None else certificate.moved(made)
    return Verification(made, (*unequal, *differences), tuple(moved), certificate is not None)


def _counts(
    certificate: Certificate | None, runs: int | None, processes: int | None, seed: int | None
) -> dict[str, int]:
    """The numbers in force: those given, else those of the certificate, else the default."""
    counts = {"runs": RUNS, "processes": PROCESSES, "seed": 0}
    given = {"runs": runs, "processes": processes, "seed": seed}
    for name, least in (("runs", 1), ("processes", 1), ("seed", 0)):
        value: object = given[name] if given[name] is not None else getattr(certificate, name, counts[name])
        if not is_whole(value, least=least):
            raise InputMismatch(f"{name} is {quoted(value)}; give a whole number of at least {least}")
        counts[name] = int(cast("int", value))
    if certificate is not None and counts["seed"] != certificate.seed:
        raise InputMismatch(f"the certificate is of seed {certificate.seed}, not {seed}; leave the seed out")
    return counts


def _check_inputs(certificate: Certificate | None, inputs: Mapping[str, Any] | None) -> None:
    """Raises InputMismatch if a certificate is of given inputs and there are none, or the other way round."""
    if inputs is not None:
        mapping_from(inputs, InputMismatch, "inputs")
    if certificate is not None and (certificate.generator == GIVEN) != (inputs is not None):
        way_out = "leave them out" if inputs is not None else "give the same"
        raise InputMismatch(f"the certificate is of {certificate.generator} inputs; {way_out}")


def _artifact(model: str | Path | CompiledModel, folder: Path) -> Path:
    """The path of the artifact. Raises ArtifactError for what has none."""
    if isinstance(model, CompiledModel):
        path = folder / "model.aicf"
        model.save(path)
        return path
    return path_from(model, ArtifactError, "the artifact").absolute()


def _saved(inputs: Mapping[str, Any] | None, folder: Path) -> str | None:
    if inputs is None:
        return None
    arrays: dict[str, Array] = {name: np.asarray(value) for name, value in inputs.items()}
    path = folder / "inputs.safetensors"
    path.write_bytes(tensor_bytes.to_bytes(arrays))
    return str(path)


# One process


def _series(request: Request, number: int, folder: Path, report: Report) -> Series:
    """What a process of its own gives.

    Raises:
        AicfError: what it raised there, or that it died.
    """
    path = folder / "request.json"
    path.write_text(json.dumps(to_json_value(request)), "utf-8")
    command = [sys.executable, "-m", "aicf.certificates.worker", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        try:
            result = _follow(process.stdout, number, report)
        except BaseException:
            process.kill()
            raise
    if result is not None:
        return result
    ended = f"signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
    raise ArtifactError(
        f"process {number} ended by {ended} before all runs were done; run the program alone to see why, aicf run",
        location=request.model,
    )


def _follow(lines: Any, number: int, report: Report) -> Series | None:
    """Reads what the process prints, until it ends."""
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue  # a kernel of somebody else may print
        match value:
            case {"runs": int(runs)}:
                report(number, runs)
            case {"error": str(kind), "message": str(message), "location": location}:
                raise _error_class(kind)(message, location=location)
            case {"series": series}:
                return from_json_value(Series, series, "series")
            case _:
                pass
    return None


def _error_class(name: str) -> type[AicfError]:
    """The class of an error of another process."""
    found = getattr(errors, name, AicfError)
    return found if isinstance(found, type) and issubclass(found, AicfError) else AicfError


# What they gave


def _certificate(series: Series, counts: Mapping[str, int], generator: str) -> Certificate:
    return Certificate(
        FORMAT,
        series.name,
        series.target,
        series.threads,
        counts["runs"],
        counts["processes"],
        generator,
        counts["seed"],
        series.emit,
        series.native,
        series.weights,
        series.programs,
        from_json_value(Environment, series.environment, "environment"),
    )


def _unequal_runs(number: int, series: Series) -> list[str]:
    return [
        f"process {number}, run {each.run}: output '{each.output}' of @{each.program} has other bits than in run 1"
        for each in series.unequal
    ]
