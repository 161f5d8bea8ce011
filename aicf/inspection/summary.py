"""A compiled program in a few lines: how many instructions, which kernels, bytes, memory, time, and what is not fused.

What `aicf compile` prints and `exe.summary()` gives. The whole story is in `explain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aicf.inspection.explain import Decision, ProgramExplanation, explain_programs
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.graph import MUTABLE_ROLES

APART = ("not fused", "alone")
"""Choices of fusing passes that leave ops in instructions of their own."""

_MOST_REASONS, _MOST_NAMES = 6, 3


@dataclass(frozen=True)
class ProgramSummary:
    """One program in figures; microseconds measured or predicted, None if a pass did not say.

    Args:
        kernels: How many instructions each kernel runs, most first.
        free_us: For a batch-invariant program, the predicted time of the same groups if kernels were chosen freely.
    """

    name: str
    instructions: int
    kernels: dict[str, int]
    bytes_moved: int
    arena_bytes: int
    expected_us: float | None
    free_us: float | None

    def __str__(self) -> str:
        kernels = ", ".join(f"{count} {kernel}" for kernel, count in self.kernels.items())
        parts = [f"{_counted(self.instructions, 'instruction')} ({kernels})" if kernels else "no instruction"]
        parts += [f"{self.bytes_moved:,} bytes moved", f"arena {self.arena_bytes:,} bytes"]
        if self.expected_us is not None:
            parts.append(f"{self.expected_us:.2f} us expected")
        if self.free_us is not None:
            parts.append(f"{self.free_us:.2f} us if the batch might change bits")
        return f"@{self.name}: {', '.join(parts)}"


@dataclass(frozen=True)
class NotFused:
    """One reason why ops are instructions of their own, and the ops, without their buckets."""

    because: str
    ops: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.ops) - _MOST_NAMES} more" if len(self.ops) > _MOST_NAMES else ""
        return f"{', '.join(self.ops[:_MOST_NAMES])}{more}: {self.because}"


@dataclass(frozen=True)
class Summary:
    """All programs of a model; `str()` is plain text.

    Args:
        weight_bytes, prepared_bytes: Of the weights, and of those that are packed ahead.
        state_bytes: Of states, and of metas such as counters.
        not_fused: Why ops are apart, the reasons of most ops first.
    """

    title: str
    programs: tuple[ProgramSummary, ...]
    weight_bytes: int
    state_bytes: int
    prepared: int
    prepared_bytes: int
    not_fused: tuple[NotFused, ...]

    def __str__(self) -> str:
        prepared = (
            f", {self.prepared} of them packed ({self.prepared_bytes:,} bytes)" if self.prepared else ""
        )
        lines = [self.title, *(f"  {program}" for program in self.programs)]
        lines += [f"  weights: {self.weight_bytes:,} bytes{prepared}"] if self.weight_bytes else []
        lines += [f"  state: {self.state_bytes:,} bytes"] if self.state_bytes else []
        if self.not_fused:
            lines.append("  not fused:")
            lines += [f"    {reason}" for reason in self.not_fused[:_MOST_REASONS]]
        if len(self.not_fused) > _MOST_REASONS:
            lines.append(
                f"    {_counted(len(self.not_fused) - _MOST_REASONS, 'more reason')}: see aicf explain"
            )
        return "\n".join(lines)


def summarize(title: str, plan: ModulePlan, decisions: Sequence[Decision]) -> Summary:
    """The summary of a compiled model."""
    free = {
        d.subjects[0]: float(us)
        for d in decisions
        if isinstance(us := d.cost.get("free_us"), int | float) and d.subjects
    }
    explained = explain_programs(title, plan, decisions).programs[: len(plan.programs)]
    programs = tuple(_program(each, free) for each in explained)
    return Summary(
        title,
        programs,
        sum(bind.nbytes for bind in plan.weights if bind.role not in MUTABLE_ROLES),
        sum(bind.nbytes for bind in plan.weights if bind.role in MUTABLE_ROLES),
        len(plan.derived),
        sum(bind.nbytes for bind in plan.derived),
        tuple(_not_fused(decisions)),
    )


def _program(explained: ProgramExplanation, free: dict[str, float]) -> ProgramSummary:
    rows = explained.rows
    times = [row.expected_us for row in rows if row.expected_us is not None]
    return ProgramSummary(
        explained.name,
        len(rows),
        dict(Counter(row.kernel for row in rows).most_common()),
        sum(row.bytes for row in rows),
        explained.arena_bytes,
        sum(times) if times else None,
        sum(free[row.name] for row in rows if row.name in free)
        if any(r.name in free for r in rows)
        else None,
    )


def _not_fused(decisions: Sequence[Decision]) -> Iterator[NotFused]:
    """The reasons of all fusing passes, each with its ops once, those of most ops first."""
    ops: dict[str, dict[str, None]] = {}
    joined = {subject for decision in decisions if _joins(decision) for subject in decision.subjects}
    for decision in decisions:
        if decision.choice == "alone" and joined & {*decision.subjects}:
            continue
        if decision.is_of_fusion and decision.choice in APART:
            names = [subject.partition("@")[0] for subject in decision.subjects]
            # A group of one is called after its op, and the op comes second.
            own = names[-1:] if decision.choice == "alone" else names[:2]
            ops.setdefault(decision.because, {})[" and ".join(own)] = None
    ranked = sorted(ops.items(), key=lambda entry: -len(entry[1]))
    yield from (NotFused(because, tuple(names)) for because, names in ranked)


def _joins(decision: Decision) -> bool:
    """Whether groups that were formed before became one, with several results."""
    return decision.made_by == "fuse-multi-output" and decision.choice not in APART


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
