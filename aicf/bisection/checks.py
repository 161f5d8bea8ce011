"""What every check of candidates has: it is shown both programs first, and then gives a verdict on each candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aicf.bisection.delta_debugging import Outcome
from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch


@dataclass(frozen=True)
class Verdict:
    """What a check says of a program.

    Args:
        outcome: Good, bad, or neither.
        detail: What was found, in a few words.
    """

    outcome: Outcome
    detail: str


class Check(Protocol):
    """A check of candidates."""

    @property
    def text(self) -> str:
        """What it checks and with which options: verdicts of checks with the same text are the same."""
        ...

    @property
    def effect(self) -> str:
        """What bad decisions do, as in `it makes the program slower`."""
        ...

    def open(self, good: CompiledModel, bad: CompiledModel) -> Verdict:
        """Looks at both programs, and gives the verdict on the bad one.

        Raises:
            InputMismatch: it cannot tell them apart.
        """
        ...

    def verdict(self, candidate: CompiledModel) -> Verdict:
        """Says what a candidate is. Raises AicfError where it cannot be run."""
        ...


def told_apart(good: Verdict, bad: Verdict) -> Verdict:
    """The verdict on the bad program. Raises InputMismatch if a check does not tell both programs apart."""
    for name, verdict, wanted in (("good", good, Outcome.GOOD), ("bad", bad, Outcome.BAD)):
        if verdict.outcome is not wanted:
            raise InputMismatch(
                f"the check says that the {name} program is {verdict.outcome.value} ({verdict.detail}); give a check, "
                "inputs or a tolerance that tells the two programs apart"
            )
    return bad
