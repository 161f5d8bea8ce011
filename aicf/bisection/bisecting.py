"""`bisect`: a smallest set of decisions that makes a good program a bad one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aicf.bisection.candidates import Candidates
from aicf.bisection.changes import Change
from aicf.bisection.checks import Check, Verdict
from aicf.bisection.delta_debugging import Outcome, hierarchical
from aicf.bisection.verdicts import Verdicts
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.reading import load
from aicf.errors import AicfError, ArtifactError, InputMismatch
from aicf.runtime.tensors import Array
from aicf.support.arguments import path_from


@dataclass(frozen=True)
class Standing:
    """Where a bisection stands.

    Args:
        tested: Candidates that have a verdict.
        left: Decisions in the smallest set so far that is bad.
        total: Decisions that differ.
        last: The last verdict in words.
    """

    tested: int
    left: int
    total: int
    last: str


Report = Callable[[Standing], None]


@dataclass(frozen=True)
class Bisection:
    """What was found; `str()` is plain text.

    Args:
        good, bad: What the programs are called.
        effect: What the decisions do.
        detail: What the check found of the program with these decisions alone.
        total: How many decisions differ.
        found: Those that make the difference: with all of them the good program is bad, and not without any one.
        tested, unresolved: Candidates, and those of them that do not compile or have no clear verdict.
    """

    good: str
    bad: str
    effect: str
    detail: str
    total: int
    found: tuple[Change, ...]
    tested: int
    unresolved: int

    def to_json_value(self) -> dict[str, object]:
        """JSON values: every field."""
        return {**vars(self), "found": [change.to_json_value() for change in self.found]}

    def __str__(self) -> str:
        count = len(self.found)
        unresolved = f", {self.unresolved} without a verdict" if self.unresolved else ""
        line = (
            f"{self.good} -> {self.bad}: with {count} of {self.total} decisions {self.effect}: {self.detail} "
            f"({self.tested} programs tested{unresolved})"
        )
        return "\n".join([line, *(f"  {text}" for change in self.found for text in change.lines())])


def bisect(
    good: str | Path | CompiledModel,
    bad: str | Path | CompiledModel,
    check: Check,
    *,
    weights: Mapping[str, Array] | str | Path | None = None,
    verdicts: str | Path | None = None,
    report: Report | None = None,
) -> Bisection:
    """Finds a smallest set of decisions that makes the difference between two compiled programs of one model.

    It compiles the model with policies that take some decisions from each program (delta debugging). A candidate that
    does not compile, because its decisions do not go together, is neither good nor bad. No decision can be left out of
    the result; another set that is as small may exist.

    Args:
        good, bad: Compiled models or the paths of artifacts, which differ in decisions only.
        check: What is good and what is bad: `aicf.bisection.Slower()`, `Wrong(inputs)` or `Script("./check.sh")`.
        weights: Of artifacts that have none; as of `aicf.load`.
        verdicts: A file that is written as candidates are tested; the same call goes on from it.
        report: Called after each candidate.

    Raises:
        InputMismatch: the programs differ in more than decisions, or the check does not tell them apart.
        ArtifactError: an artifact cannot be read, or the file of verdicts is of another bisection.
    """
    programs = _loaded(good, weights), _loaded(bad, weights)
    candidates = Candidates(*programs)
    everything = frozenset(range(len(candidates.changes)))
    path = None if verdicts is None else path_from(verdicts, ArtifactError, "the file of verdicts")
    known = Verdicts(path, *programs, check.text, candidates.changes)
    testing = _Testing(candidates, check, known, len(everything), report or (lambda standing: None))
    testing.open(everything)
    left = hierarchical(candidates.units, testing.outcome, testing.narrowed)
    verdict = known.get(frozenset(left))
    assert verdict is not None
    found = Bisection(
        _name(good),
        _name(bad),
        check.effect,
        verdict.detail,
        len(everything),
        tuple(candidates.changes[number] for number in left),
        len(known),
        known.count(Outcome.UNRESOLVED),
    )
    known.write(found.to_json_value())
    return found


class _Testing:
    """The test of delta debugging: compiles candidates and asks the check, once for each."""

    def __init__(
        self, candidates: Candidates, check: Check, known: Verdicts, total: int, report: Report
    ) -> None:
        self._candidates, self._check, self._known = candidates, check, known
        self._total = self._left = total
        self._report = report

    def open(self, everything: frozenset[int]) -> None:
        """Shows the check both programs, made by policies as candidates are."""
        ends = [self._candidates.compile(taken) for taken in (frozenset[int](), everything)]
        verdict = self._check.open(*ends)
        if self._known.get(everything) is None:
            self._known.add(everything, verdict)
        self._tell(verdict)

    def outcome(self, taken: frozenset[int]) -> Outcome:
        """See `delta_debugging.Test`."""
        verdict = self._known.get(taken)
        if verdict is None:
            verdict = self._verdict(taken)
            self._known.add(taken, verdict)
        self._tell(verdict)
        return verdict.outcome

    def narrowed(self, left: Sequence[int]) -> None:
        """Notes a smaller set."""
        self._left = len(left)

    def _verdict(self, taken: frozenset[int]) -> Verdict:
        try:
            candidate = self._candidates.compile(taken)
        except AicfError as error:
            return Verdict(Outcome.UNRESOLVED, error.message)
        try:
            return self._check.verdict(candidate)
        except InputMismatch:
            raise  # it is about the check, which the user gave
        except AicfError as error:
            return Verdict(Outcome.UNRESOLVED, error.message)
        finally:
            candidate.release()

    def _tell(self, verdict: Verdict) -> None:
        self._report(Standing(len(self._known), self._left, self._total, verdict.detail))


def _loaded(
    program: str | Path | CompiledModel, weights: Mapping[str, Array] | str | Path | None
) -> CompiledModel:
    return program if isinstance(program, CompiledModel) else load(program, weights=weights)


def _name(program: str | Path | CompiledModel) -> str:
    return program.name if isinstance(program, CompiledModel) else str(program)
