"""The memory of a session: what each program is predicted to request from the runtime, and what it did request.

Predictions come from the plan, before anything is allocated. What is requested is counted where it is requested, apart
from all other memory of the process: while an executable is made, and while each of its programs runs first.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from aicf.compilation.compiled import CompiledModel
from aicf.runtime.memory import Ledger, counting


class Meter:
    """Counts what one executable requests, from its making on."""

    def __init__(self) -> None:
        self._ledgers = {"host": Ledger(), "device": Ledger()}
        self._has_run = False
        self._failed: dict[str, tuple[FirstRun, int]] = {}

    @contextmanager
    def open(self) -> Generator[None]:
        """Counts what this thread requests meanwhile."""
        with counting("host", self._ledgers["host"]), counting("device", self._ledgers["device"]):
            yield

    @contextmanager
    def first_run(self, executable: CompiledModel, name: str) -> Generator[FirstRun]:
        """Counts the first run of one program of `executable`. What all its programs share goes with the first.

        One that fails may have taken memory that the next one finds, so they are counted together.
        """
        ledger = self._ledgers[executable.native.memory]
        run, before = self._failed.pop(name, None) or self._begin(executable, name, ledger)
        try:
            with self.open():
                yield run
        except BaseException:
            self._failed[name] = run, before
            raise
        run.requested = ledger.read().peak_bytes - before

    def _begin(self, executable: CompiledModel, name: str, ledger: Ledger) -> tuple[FirstRun, int]:
        """A run that has not begun, and the bytes that are there before it."""
        run = FirstRun(predicted_bytes(executable, name, is_first=not self._has_run))
        before = 0
        if self._has_run:
            before = ledger.read().live_bytes
            ledger.reset_peak()
        self._has_run = True
        return run, before


@dataclass
class FirstRun:
    """Bytes that a first run was predicted to request at once at the most, and those that it did (None: not yet)."""

    predicted: int
    requested: int | None = None


def predicted_bytes(executable: CompiledModel, name: str, *, is_first: bool) -> int:
    """The most that the first run of a program requests at once."""
    return executable.memory()[f"{'peak' if is_first else 'instance'}@{name}"]


def program_bytes(executable: CompiledModel, name: str, *, with_shared: bool) -> int:
    """What one program holds while it is idle, apart from what `Executable.common` tells.

    Args:
        with_shared: Whether with what all programs of its executable share.
    """
    sizes = executable.memory()
    shared = (sizes["state"] + sizes.get("consts", 0)) if with_shared else 0
    return sizes[f"arena@{name}"] + shared


@dataclass(frozen=True)
class ProgramMemory:
    """Bytes of one program.

    Args:
        program: The sizes it is for.
        arena: Of its intermediates.
        lower_bound: The least that any placement of them takes, None if unknown.
        predicted: The most that its first run requests at once; with what the programs of an executable share for the
            first of them that runs.
        requested: What its first run did request; None if it has not run, or its executable was made elsewhere.
    """

    program: str
    arena: int
    lower_bound: int | None
    predicted: int
    requested: int | None

    def __str__(self) -> str:
        least = "" if self.lower_bound is None else f" (lower bound {self.lower_bound:,})"
        requested = "not run yet" if self.requested is None else f"{self.requested:,} requested"
        return f"{self.program}: arena {self.arena:,} bytes{least}; {self.predicted:,} predicted, {requested}"


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a session.

    Args:
        weights: Of the weights, which all programs share on the host and are used where they are.
        prepared: Of weights that are packed ahead, in all executables.
        programs: Those that are there.
    """

    weights: int
    prepared: int
    programs: tuple[ProgramMemory, ...]

    @property
    def predicted(self) -> int:
        """Of all programs that have run."""
        return sum(row.predicted for row in self.programs if row.requested is not None)

    @property
    def requested(self) -> int:
        """Of all programs that have run."""
        return sum(row.requested for row in self.programs if row.requested is not None)

    def __str__(self) -> str:
        lines = [f"weights {self.weights:,} bytes, {self.prepared:,} packed ahead"]
        return "\n".join([*lines, *map(str, self.programs)])
