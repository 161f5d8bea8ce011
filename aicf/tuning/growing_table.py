"""A tuning table that grows while cases are measured, and its file, which is whole at any time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from aicf.errors import PolicyError
from aicf.policies.tuning_table import Failure, Header, MeasuredWorkload, Row, TuningTable, WorkloadKey
from aicf.support.arguments import instance_from

WRITE_AFTER_S = 2.0
"""Seconds of measurements that a killed process may lose, at most and beside the case it was at."""


class GrowingTable:
    """Rows of earlier runs and of this one; a context, at whose end, however it comes, the file has all of them.

    Args:
        header: Where the measurements hold.
        older: What earlier runs found.
        path: The file; None keeps the table in memory. A pipe is written once, at the end.

    Raises:
        PolicyError: `older` is of another device, driver or library.
    """

    def __init__(self, header: Header, older: TuningTable | None = None, path: Path | None = None) -> None:
        if older is not None:
            instance_from(older, TuningTable, PolicyError, "the older table", "a TuningTable")
            _check_together(header, older.header)
            header = replace(header, libraries={**older.header.libraries, **header.libraries})
        self.header = header
        self._path = path
        self._works = {} if older is None else {measured.key: measured for measured in older.works}
        self._written = time.monotonic()
        self._is_new = self._keeps_failures = False
        self.failures: list[Failure] = []
        """Those of this run."""

    def __enter__(self) -> GrowingTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A model without anything to measure has an empty table.
        self._is_new |= kind is None and not self._works
        self._write()

    @property
    def table(self) -> TuningTable:
        """All of it, sorted."""
        return TuningTable(self.header).with_works(list(self._works.values()))

    def find(self, work: WorkloadKey) -> MeasuredWorkload | None:
        """What is known of a piece of work, None if nothing is."""
        return self._works.get(work.digest)

    def results(self, work: WorkloadKey, kernel: str, version: int) -> list[Row | Failure]:
        """What is known of a kernel on a piece of work, variant by variant."""
        measured = self.find(work)
        known = () if measured is None else (*measured.rows, *measured.failed)
        return [each for each in known if (each.kernel, each.version) == (kernel, version)]

    def has(self, work: WorkloadKey, kernel: str, version: int, spec: Mapping[str, object] | None) -> bool:
        """Whether a variant is known; with None for a spec, whether any variant of the kernel is."""
        return any(spec is None or result.spec == spec for result in self.results(work, kernel, version))

    def add(self, measured: MeasuredWorkload) -> None:
        """Takes results, which replace older ones of the same variants, and writes the file if that is some time ago.

        Raises PolicyError if it cannot be written.
        """
        older = self._works.get(measured.key)
        self._works[measured.key] = measured if older is None else older.merged(measured)
        self.failures += measured.failed
        self._is_new = True
        is_pipe = self._path is not None and self._path.exists() and not self._path.is_file()
        if time.monotonic() - self._written >= WRITE_AFTER_S and not is_pipe:
            self._write()

    def keep_failures(self) -> None:
        """Writes the file even if nothing but failures is known: the next run shall not try again what broke the
        device. Without this a run in which nothing could be measured leaves no file, and the next one starts anew."""
        self._keeps_failures = True

    def _write(self) -> None:
        if self._path is None or not self._is_new:
            return
        has_rows = any(measured.rows for measured in self._works.values())
        if has_rows or self._keeps_failures or not self._works:
            self.table.save(self._path)
            self._written, self._is_new = time.monotonic(), False


def _check_together(now: Header, before: Header) -> None:
    """Raises PolicyError if times cannot be compared."""
    for what in ("backend", "arch", "threads", "device", "driver"):
        _check_same(what, getattr(before, what), getattr(now, what))
    for name in now.libraries.keys() & before.libraries.keys():
        _check_same(name, before.libraries[name], now.libraries[name])


def _check_same(what: str, before: object, now: object) -> None:
    if before != now:
        raise PolicyError(
            f"tuning: the table has {what} {before}, now it is {now}: times of both cannot be compared; give -o "
            "another file, or --replace to measure all again"
        )
