"""Collects the data of a report from compiled programs: explanations, plans, measured times, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from aicf.backends.base import Peaks
from aicf.comparison.diff import compare
from aicf.compilation.record import Options, title_of
from aicf.frontends.text import parse_module
from aicf.inspection.benched import Benched
from aicf.inspection.explain import (
    Explanation,
    InstructionRow,
    ProgramExplanation,
    describe_operand,
    explain_programs,
)
from aicf.inspection.roofline import Roofline, peaks_of, rooflines
from aicf.inspection.summary import summarize
from aicf.inspection.why_not import group_members, why_not_neighbours
from aicf.report.arena import arena_buffers
from aicf.report.contents import Bound, Compiled, Instruction, ModelOp, Program, Report
from aicf.report.measured import Measured, assigned, read_measured
from aicf.report.model_ops import model_ops
from aicf.report.opened import Opened, open_program
from aicf.report.stage_lines import stages_of
from aicf.runtime.capture_plan import CapturePlan, Launch
from aicf.runtime.graph import Node
from aicf.runtime.plan_from_ir import programs_of


def gather_report(
    path: str | Path,
    other: str | Path | None = None,
    measured: Sequence[str | Path] = (),
    *,
    passes: bool = True,
) -> Report:
    """The data of a report.

    Args:
        path: An artifact, or an `.mlir` file of final emit IR.
        other: Another one, to compare with it.
        measured: Files of times that `aicf bench --json` wrote of these programs.
        passes: Whether the passes are run again, for the IR after each.

    Raises:
        ArtifactError: a file is damaged, or no compiled program, or holds no measured times.
        InputMismatch: times were measured of another program.
    """
    opened = [open_program(each) for each in (path, other) if each is not None]
    times = assigned(opened, [read_measured(file) for file in measured])
    compiled = tuple(_compiled(each, times.get(number), passes) for number, each in enumerate(opened))
    comparison = compare(opened[0].saved, opened[1].saved).to_json_value() if len(opened) > 1 else None
    return Report(compiled, comparison)


def _compiled(opened: Opened, measured: Measured | None, passes: bool) -> Compiled:
    record, plan = opened.record, opened.plan
    title = title_of(record.name, plan)
    explanation = explain_programs(title, plan, record.decisions)
    benched = {} if measured is None else measured.by_program
    return Compiled(
        path=opened.path,
        name=record.name,
        title=title,
        backend=plan.backend,
        arch=plan.arch,
        threads=plan.threads,
        toolchain=dict(record.toolchain),
        options=_told(record.options),
        summary=summarize(title, plan, record.decisions),
        saves=explanation.saves,
        precision=explanation.precision,
        programs=_programs(opened, explanation, benched),
        decisions=record.decisions,
        model=_model(opened),
        stages=stages_of(record, passes),
        measured=None if measured is None else measured.file,
    )


_SHOWN = ("target", "threads")
"""Options that a report has in other places."""


def _told(options: Options) -> dict[str, object]:
    """The options that say something: those that are neither empty nor the default."""
    values = {field.name: (getattr(options, field.name), field.default) for field in fields(options)}
    return {
        name: value
        for name, (value, default) in values.items()
        if value and value != default and name not in _SHOWN
    }


def _model(opened: Opened) -> tuple[ModelOp, ...] | None:
    record = opened.record
    if record.logical is None:
        return None
    return model_ops(parse_module(record.logical, f"{opened.path}:logical.mlir"), record.locations)


def _programs(
    opened: Opened, explanation: Explanation, benched: Mapping[str, Benched]
) -> tuple[Program, ...]:
    plan = opened.plan
    arenas = {program.sym_name.data: arena_buffers(program) for program in programs_of(opened.saved.module)}
    bounds, groups = _bounds(opened, explanation), group_members(opened.record.decisions)
    found: list[Program] = []
    for own, explained in zip(plan.all_programs, explanation.programs, strict=True):
        times = benched.get(own.name)
        found.append(
            Program(
                name=own.name,
                instructions=_instructions(own, explained, bounds, times, groups),
                notes=explained.notes,
                arena_bytes=explained.arena_bytes,
                lower_bound_bytes=explained.lower_bound_bytes,
                arena=arenas.get(own.name, ()),
                neighbours=why_not_neighbours(own, opened.record.decisions),
                replay_us=None if times is None else times.timing.replay_us,
                no_times=None if times is None else times.no_instructions,
            )
        )
    return tuple(found)


def _bounds(opened: Opened, explanation: Explanation) -> Mapping[str, Roofline]:
    """The rooflines of all instructions; none if the target's peaks are unknown."""
    peaks: Peaks | None = peaks_of(opened.plan)
    if peaks is None:
        return {}
    moved = {row.name: row.bytes for program in explanation.programs for row in program.rows}
    return rooflines(opened.saved.module, moved, peaks)


def _instructions(
    plan: CapturePlan,
    explained: ProgramExplanation,
    bounds: Mapping[str, Roofline],
    times: Benched | None,
    groups: Mapping[str, Sequence[str]],
) -> tuple[Instruction, ...]:
    measured = {} if times is None else {row.name: row.median_us for row in times.instructions}
    return tuple(
        _instruction(
            node, launch, plan, row, bounds.get(row.name), measured.get(row.name), groups.get(row.name, ())
        )
        for node, launch, row in zip(plan.graph.nodes, plan.launches, explained.rows, strict=True)
    )


def _instruction(
    node: Node,
    launch: Launch,
    plan: CapturePlan,
    row: InstructionRow,
    roofline: Roofline | None,
    measured_us: float | None,
    members: Sequence[str],
) -> Instruction:
    return Instruction(
        row=row,
        stream=launch.stream,
        members=tuple(members),
        after=tuple((edge.source, edge.kind != "full") for edge in node.after),
        reads=tuple(describe_operand(operand, plan) for operand in launch.ins),
        writes=tuple(describe_operand(operand, plan) for operand in launch.outs),
        record=launch.record,
        measured_us=measured_us,
        bound=None if roofline is None else _bound(roofline, row.expected_us, measured_us),
    )


SHORTEST_US = 0.05
"""A shorter time that was measured says little: clocks, and calls that do nothing, take as long."""


def _bound(roofline: Roofline, expected_us: float | None, measured_us: float | None) -> Bound:
    us = expected_us if measured_us is None else measured_us if measured_us >= SHORTEST_US else None
    share = roofline.least_us / us if us else None
    return Bound(roofline.operations, roofline.arithmetic_us, roofline.memory_us, share)
