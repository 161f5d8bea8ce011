"""The data of a report: what its page holds as JSON, field by field. Plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.inspection.explain import Decision, InstructionRow, Saves
from aicf.inspection.explain_precision import Precision
from aicf.inspection.summary import Summary
from aicf.inspection.why_not import Neighbours


@dataclass(frozen=True)
class ModelOp:
    """One op of the model.

    Args:
        id: As decisions and instructions name it.
        kind: `linear`, or the ONNX op `Gemm`.
        type: Type of its results, in words; empty where it is unknown.
        reads: Ids of the ops that it reads.
        inputs: Names of the inputs and weights that it reads.
        location: `file:line:col`, or None.
    """

    id: str
    kind: str
    type: str
    reads: tuple[str, ...]
    inputs: tuple[str, ...]
    location: str | None


@dataclass(frozen=True)
class ArenaBuffer:
    """One buffer of the arena.

    Args:
        offset, size: Bytes.
        touches: Positions in launch order of the instructions that touch it, the first one first.
        type: Its tensor, in words.
    """

    offset: int
    size: int
    touches: tuple[int, ...]
    type: str


@dataclass(frozen=True)
class Bound:
    """The roofline of an instruction, in microseconds; `share` is the longer of the two by its time, None if the time
    is unknown.

    Args:
        operations: Scalar operations; a multiply and an add are two.
    """

    operations: int
    arithmetic_us: float
    memory_us: float
    share: float | None


@dataclass(frozen=True)
class Instruction:
    """One instruction: its row of the explanation, and how it is launched.

    Args:
        stream: Number of its stream.
        members: Ids of the ops of its group, after lowering; empty if no pass formed one.
        after: Its happens-before edges: the instruction, and whether it starts before that one has ended.
        reads, writes: Operands and results in words, with their memory.
        record: Its kernel record.
        measured_us: Median of a measurement that was given, else None.
        bound: None if the target's peaks are unknown.
    """

    row: InstructionRow
    stream: int
    members: tuple[str, ...]
    after: tuple[tuple[str, bool], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    record: dict[str, object]
    measured_us: float | None
    bound: Bound | None


@dataclass(frozen=True)
class Program:
    """One program in launch order.

    Args:
        notes: What was decided about it as a whole.
        lower_bound_bytes: The least memory that any placement takes; None if the ledger does not say.
        neighbours: Why instructions that read each other are not one.
        replay_us: Median of measured replays; None without a measurement.
        no_times: Why a measurement has no times of instructions; None if it has, or there is none.
    """

    name: str
    instructions: tuple[Instruction, ...]
    notes: tuple[str, ...]
    arena_bytes: int
    lower_bound_bytes: int | None
    arena: tuple[ArenaBuffer, ...]
    neighbours: tuple[Neighbours, ...]
    replay_us: float | None
    no_times: str | None


@dataclass(frozen=True)
class Stage:
    """The IR after one pass.

    Args:
        made_by: The pass.
        lines: Its lines as runs of numbers into the lines of all stages, the first number of a run and its length one
            after the other; empty if the pass changed nothing.
    """

    made_by: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Stages:
    """The IR after each pass. A line that stands in several stages is kept once.

    Args:
        lines: All lines of all stages.
        stages: The model first.
        missing: Why only the first and last stage are here; None if all are.
    """

    lines: tuple[str, ...]
    stages: tuple[Stage, ...]
    missing: str | None


@dataclass(frozen=True)
class Compiled:
    """One compiled program.

    Args:
        path: The file, as it was given.
        toolchain: Versions of what made it, by package.
        options: What the passes were told, those that say something.
        model: Ops of the model; None if it was an emit program.
        measured: The file of measured times, as it was given, or None.
    """

    path: str
    name: str
    title: str
    backend: str
    arch: str
    threads: int
    toolchain: dict[str, object]
    options: dict[str, object]
    summary: Summary
    saves: Saves | None
    precision: Precision | None
    programs: tuple[Program, ...]
    decisions: tuple[Decision, ...]
    model: tuple[ModelOp, ...] | None
    stages: Stages
    measured: str | None


@dataclass(frozen=True)
class Report:
    """One compiled program, or two and what differs.

    Args:
        comparison: What `aicf diff --json` prints; None for one program.
    """

    compiled: tuple[Compiled, ...]
    comparison: dict[str, object] | None
