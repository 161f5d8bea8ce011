"""What `aicf bench` measures of a program, as data: it is printed, written with `--json`, and read by `aicf view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aicf.errors import ArtifactError
from aicf.inspection.explain import format_table, microseconds
from aicf.support.arguments import path_from
from aicf.support.dataclass_json import from_json_value, parse_json
from aicf.support.files import reason_of


@dataclass(frozen=True)
class Timing:
    """Median microseconds of one program: a call with fresh outputs, a replay on memory of its own from its start to
    its end, and the part of the replay after which the caller goes on (all of it on the host)."""

    program: str
    call_us: float
    replay_us: float
    host_us: float


@dataclass(frozen=True)
class BenchedInstruction:
    """Microseconds of one instruction, measured and as predicted when it was compiled; `src` are ops of the model."""

    name: str
    kind: str
    kernel: str
    src: tuple[str, ...]
    median_us: float
    best_us: float
    predicted_us: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        times = microseconds(self.median_us), microseconds(self.best_us)
        return f"  {self.name}", self.kind, self.kernel, *times, f"{self.predicted_us or ''}"


@dataclass(frozen=True)
class Benched:
    """Times of one program, and of its instructions or why there are none; `str()` is plain text."""

    timing: Timing
    instructions: tuple[BenchedInstruction, ...]
    no_instructions: str | None

    def __str__(self) -> str:
        timing = self.timing
        head = (
            f"@{timing.program}: call {microseconds(timing.call_us)} us, replay "
            f"{microseconds(timing.replay_us)} us, of which the caller waits {microseconds(timing.host_us)} us"
        )
        if self.no_instructions is not None:
            return f"{head}\n  no times by instruction: {self.no_instructions}"
        columns = ("  instruction", "kind", "kernel", "median us", "best us", "predicted us")
        return f"{head}\n{format_table(columns, [row.cells for row in self.instructions])}"


@dataclass(frozen=True)
class BenchResult:
    """The times of a model: its name, its target and its programs, one for each row of the dispatch table."""

    model: str
    target: str
    programs: tuple[Benched, ...]


def read_bench_result(path: str | Path) -> BenchResult:
    """Reads what `aicf bench --json` wrote.

    Raises:
        ArtifactError: the file cannot be read, or holds something else.
    """
    path = path_from(path, ArtifactError, "the path of measured times")
    try:
        return from_json_value(BenchResult, parse_json(path.read_text("utf-8")), "measured times:")
    except OSError as error:
        raise ArtifactError(
            f"cannot read measured times: {reason_of(error)}; give what `aicf bench --json` wrote",
            location=str(path),
        ) from error
    except ValueError as error:
        raise ArtifactError(
            "is no JSON; measured times are what `aicf bench --json` wrote", location=str(path)
        ) from error
    except ArtifactError as error:
        problem = error.message.partition(";")[0]
        raise ArtifactError(
            f"{problem}; measured times are what `aicf bench --json` of this version wrote",
            location=str(path),
        ) from None
