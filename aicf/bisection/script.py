"""A check by a program of the user's, with the exit statuses of `git bisect run`."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aicf.bisection.checks import Verdict, told_apart
from aicf.bisection.delta_debugging import Outcome
from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch

SKIP, MOST_BAD = 125, 127
"""`git bisect run`: 0 is good, 1 to 127 bad, except 125, which is neither; anything else ends the search."""


@dataclass(frozen=True)
class Script:
    """Runs a command with the path of the candidate's artifact as its last argument.

    Args:
        command: Program and arguments, as a shell reads them.
    """

    command: str

    @property
    def text(self) -> str:
        """See `Check`."""
        return f"check {self.command}"

    @property
    def effect(self) -> str:
        """See `Check`."""
        return "the check fails"

    def open(self, good: CompiledModel, bad: CompiledModel) -> Verdict:
        """See `Check`."""
        return told_apart(self.verdict(good), self.verdict(bad))

    def verdict(self, candidate: CompiledModel) -> Verdict:
        """See `Check`.

        Raises:
            InputMismatch: the command cannot be run, or ends with a status that is no verdict.
        """
        with tempfile.TemporaryDirectory(prefix="aicf-bisect-") as folder:
            path = Path(folder) / "candidate.aicf"
            candidate.save(path)
            status = self._run(path)
        if status == SKIP or 0 <= status <= MOST_BAD:
            outcome = {0: Outcome.GOOD, SKIP: Outcome.UNRESOLVED}.get(status, Outcome.BAD)
            return Verdict(outcome, f"exit status {status}")
        ended = f"ended by signal {-status}" if status < 0 else f"exit status {status}"
        raise InputMismatch(
            f"check '{self.command}': {ended} is no verdict; exit with 0 for good, 1 to 127 for bad, 125 for neither"
        )

    def _run(self, path: Path) -> int:
        try:
            command = [*shlex.split(self.command), os.fspath(path)]
            # What it prints is not the result of this command.
            return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
        except (OSError, ValueError) as error:
            raise InputMismatch(
                f"check '{self.command}' cannot be run: {error}; give a program, as in --check ./check.sh"
            ) from error
