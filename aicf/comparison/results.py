"""What a comparison gives, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aicf.engines.record import EngineRecord


@dataclass(frozen=True)
class Deviation:
    """How far outputs are from those that they are compared with, at the worst output.

    Args:
        output: Its name.
        largest: The largest absolute difference of two elements; infinite where shapes, or which elements are finite,
            differ.
        relative: The same over the largest magnitude of the output.
    """

    output: str
    largest: float
    relative: float


@dataclass(frozen=True)
class EngineResult:
    """What was measured of one engine, in a process of its own.

    Args:
        engine: Its name.
        record: What ran.
        start_s: Seconds from before its package was imported to its first answer: import, preparing the model, plans.
        median_us, best_us: Microseconds of a run on bound memory.
        runs: How many were timed.
        peak_bytes: By how much the memory of the process grew, at most; None where the system does not tell.
        deviation: From the outputs that it is compared with; None if there are none.
        failure: Why there are no measurements; empty if there are.
    """

    engine: str
    record: EngineRecord | None = None
    start_s: float = 0.0
    median_us: float = 0.0
    best_us: float = 0.0
    runs: int = 0
    peak_bytes: int | None = None
    deviation: Deviation | None = None
    failure: str = ""


@dataclass(frozen=True)
class Comparison:
    """All of it.

    Args:
        model: Name of the model; `digest` is its SHA-256.
        sizes: Of the symbolic dimensions.
        threads: That each engine was given.
        reference: What outputs are compared with, in words.
        machine: Where it was measured: processor, cores, and the load of the last minute when it began.
        results: A row for each engine, in the order asked for.
    """

    model: str
    digest: str
    sizes: Mapping[str, int]
    threads: int
    reference: str
    machine: Mapping[str, str | float] = field(default_factory=dict[str, str | float])
    results: tuple[EngineResult, ...] = ()

    @property
    def has_failures(self) -> bool:
        """Whether an engine could not be measured."""
        return any(row.failure for row in self.results)
