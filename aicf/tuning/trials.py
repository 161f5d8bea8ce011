"""The search's hands: compiles and times variants of one piece of work by their numbers, and keeps what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from aicf.errors import AicfError, CaptureError
from aicf.policies.tuning_table import Failure, MeasuredWorkload, Row
from aicf.tuning.candidates import Candidate
from aicf.tuning.case_compiler import CaseCompiler
from aicf.tuning.cases import Case
from aicf.tuning.contest import Contest, contest
from aicf.tuning.growing_table import GrowingTable
from aicf.tuning.measure import Device, Runnable, Samples, result_of, row_of, variants_of


class Trials:
    """Variants of one piece of work.

    Args:
        found: Candidates, called by their numbers in this list.
        first: Number that the compiler has for the first of them.
        compiler: Compiles them.
        device: Times them.
        table: Takes the results, also of what is slower or fails, so that nothing is measured twice.
        measurements: Which times count, `cold` or `warm`.
    """

    def __init__(
        self,
        found: Sequence[Candidate],
        first: int,
        compiler: CaseCompiler,
        device: Device,
        table: GrowingTable,
        measurements: str,
    ) -> None:
        self._found, self._first = found, first
        self._compiler, self._device = compiler, device
        self._table, self._measurements = table, measurements
        self._cases: dict[int, Case] = {}

    def known(self, number: int) -> Row | Failure | None:
        """The best that the table has of a candidate: a row if there is one, else why it failed, else None."""
        candidate = self._found[number]
        results = [
            result
            for result in self._table.results(candidate.work, candidate.kernel.id, candidate.kernel.version)
            if candidate.kernel.device_fields or result.spec == candidate.spec
        ]
        rows = [result for result in results if isinstance(result, Row)]
        return min(rows, key=self.us, default=results[0] if results else None)

    def us(self, row: Row) -> float:
        """The microseconds that count."""
        return row.timing(self._measurements).median_us

    def measure(self, number: int, then: Iterable[int]) -> float | None:
        """Measures a candidate; None if it failed.

        Args:
            then: What is probably measured next, by the compiler's numbers: it is compiled on the way.

        Raises:
            BackendUnavailable, CaptureError: none can be compiled.
        """
        case = self._case(number, then)
        if isinstance(case, AicfError):
            self._failed(number, case)
            return None
        self._table.add(result_of(case, self._device))
        known = self.known(number)
        return self.us(known) if isinstance(known, Row) else None

    def contest(self, champion: int, challenger: int, to_the_end: bool = False) -> Contest | int:
        """Times two candidates in turns; their rows then have these times. Or the number of the one that failed, which
        then is in the table."""
        ready: list[Runnable] = []
        for number in (champion, challenger):
            try:
                ready.append(self._runnable(number))
            except AicfError as error:
                return self._failed(number, error)
        try:
            found = contest(self._device.rounds(ready[0], ready[1]), self._measurements, to_the_end)
            for runnable, samples in zip(ready, (found.champion, found.challenger), strict=True):
                self._keep(runnable, samples)
        except AicfError as error:  # whose it is nobody knows, but the champion has run before
            return self._failed(challenger, error)
        return found

    def _failed(self, number: int, error: AicfError) -> int:
        candidate, known = self._found[number], self.known(number)
        spec = candidate.spec if known is None else known.spec
        failure = Failure(candidate.kernel.id, candidate.kernel.version, spec, error.message)
        self._table.add(MeasuredWorkload(candidate.work.digest, candidate.work, (), (failure,)))
        return number

    def _case(self, number: int, then: Iterable[int] = ()) -> Case | AicfError:
        if number in self._cases:
            return self._cases[number]
        numbers = chain([self._first + number], then)
        case = self._compiler.next_case(numbers, self._device.shares_cores)
        if isinstance(case, Case):
            self._cases[number] = case
        return case

    def forget(self) -> None:
        """Frees the code of the variants, which is compiled again if the search returns to them."""
        self._cases.clear()

    def _runnable(self, number: int) -> Runnable:
        """The best variant of a candidate. Raises AicfError if it does not run any more."""
        known, case = self.known(number), self._case(number)
        if isinstance(case, AicfError):
            raise case
        for variant in variants_of(case, self._device):
            if known is not None and variant.spec == known.spec:
                return case, variant
        raise CaptureError("the device does not offer it any more")

    def _keep(self, runnable: Runnable, samples: Samples) -> None:
        """Adds a row. Raises CaptureError for times that say nothing."""
        case, variant = runnable
        row = row_of(case, variant, samples)
        self._table.add(MeasuredWorkload(case.work.digest, case.work, (row,)))
