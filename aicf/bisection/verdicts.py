"""The verdicts of a bisection, in a file that is written as they come: the same bisection goes on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aicf.bisection.changes import Change
from aicf.bisection.checks import Verdict
from aicf.bisection.delta_debugging import Outcome
from aicf.compilation.compiled import CompiledModel
from aicf.errors import ArtifactError
from aicf.saving.artifact import digest
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value
from aicf.support.files import reason_of, write_whole

FORMAT = "aicf bisection 1"
_ANEW = "give another file, or remove it to begin anew"


@dataclass(frozen=True)
class _Entry:
    """A verdict, and the numbers of the changes that the candidate had."""

    taken: tuple[int, ...]
    outcome: str
    detail: str


@dataclass(frozen=True)
class _File:
    """The contents of a file: what was bisected by which check, and the verdicts. `result` is the end of it."""

    format: str
    good: str
    bad: str
    check: str
    changes: tuple[str, ...]
    verdicts: tuple[_Entry, ...] = ()
    result: dict[str, object] | None = None


class Verdicts:
    """The verdicts so far, by candidate; with a path, in its file as well.

    Args:
        path: The file; None keeps none.
        good, bad: The programs.
        check: Text of the check.
        changes: What candidates are made of.

    Raises:
        ArtifactError: the file cannot be read, or is of another bisection.
    """

    def __init__(
        self,
        path: Path | None,
        good: CompiledModel,
        bad: CompiledModel,
        check: str,
        changes: Sequence[Change],
    ) -> None:
        self._path = path
        ours, theirs = (digest(program.record.emit.encode()) for program in (good, bad))
        self._header = _File(FORMAT, ours, theirs, check, tuple(change.title for change in changes))
        self._known: dict[frozenset[int], Verdict] = {}
        if path is not None and path.exists():
            self._known = _read(path, self._header)
        self.resumed = len(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def count(self, outcome: Outcome) -> int:
        """How many candidates have an outcome."""
        return sum(verdict.outcome is outcome for verdict in self._known.values())

    def get(self, taken: frozenset[int]) -> Verdict | None:
        """The verdict on a candidate, if there is one."""
        return self._known.get(taken)

    def add(self, taken: frozenset[int], verdict: Verdict) -> None:
        """Keeps a verdict. Raises ArtifactError if the file cannot be written."""
        self._known[taken] = verdict
        self.write(None)

    def write(self, result: Mapping[str, Any] | None) -> None:
        """Writes the file, whole or not at all. Raises ArtifactError if it cannot be written."""
        if self._path is None:
            return
        entries = tuple(
            _Entry(tuple(sorted(taken)), verdict.outcome.value, verdict.detail)
            for taken, verdict in self._known.items()
        )
        file = replace(self._header, verdicts=entries, result=None if result is None else dict(result))
        text = json.dumps(to_json_value(file), indent=1) + "\n"
        try:
            write_whole(self._path, lambda stream: stream.write(text.encode()))
        except OSError as error:
            raise ArtifactError(
                f"the verdicts cannot be written: {reason_of(error)}; choose a path that can be written",
                location=str(self._path),
            ) from error


def _read(path: Path, header: _File) -> dict[frozenset[int], Verdict]:
    """The verdicts in a file. Raises ArtifactError if it is of another bisection."""
    try:
        file = from_json_value(_File, parse_json(path.read_bytes()), "bisection")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"no file of a bisection: {error}; {_ANEW}", location=str(path)) from error
    except ArtifactError as error:
        raise ArtifactError(f"{error.message}; {_ANEW}", location=str(path)) from error
    for name in ("format", "good", "bad", "check", "changes"):
        if getattr(file, name) != getattr(header, name):
            raise ArtifactError(f"it is of another bisection: other {name}; {_ANEW}", location=str(path))
    outcomes = {outcome.value: outcome for outcome in Outcome}
    if wrong := [entry.outcome for entry in file.verdicts if entry.outcome not in outcomes]:
        raise ArtifactError(f"'{wrong[0]}' is no outcome; {_ANEW}", location=str(path))
    return {frozenset(entry.taken): Verdict(outcomes[entry.outcome], entry.detail) for entry in file.verdicts}
