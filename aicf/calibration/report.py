"""What calibration gives: the policy, and what it costs, as data and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aicf.calibration.outputs import OutputAccuracy
from aicf.inspection.explain import format_table, microseconds
from aicf.policies.policy import Policy
from aicf.policies.precision_policy import F32

_MOST_OPS = 10
"""Rows of the table of ops."""


@dataclass(frozen=True)
class OpAccuracy:
    """What rounding one op does.

    Args:
        op: Its id.
        precision: That it was tried in.
        relative_error: Of the outputs if it alone is rounded, see `OutputAccuracy`.
        saved_us: Predicted microseconds that a run is faster by with its integers; None if no pass says.
        stays: Why it stays f32; None if it is lowered.
    """

    op: str
    precision: str
    relative_error: float
    saved_us: float | None
    stays: str | None = None


@dataclass(frozen=True)
class Top1:
    """The share of right labels."""

    f32: float
    lowered: float


@dataclass(frozen=True)
class Report:
    """What was measured on the samples, of the program that the policy compiles to.

    Args:
        to: What the model is lowered to.
        method: That gave the ranges; empty for floats.
        samples: How many there were.
        outputs: Each output against f32.
        ops: Each op that could be lowered, in text order.
        others: Ids of other ops that stay f32, by the reason.
        top1: With labels.
        goal: What was to be kept; None if nothing was asked.
        probe_error: The largest relative error of an output in the program with a switch for each op, as far as it
            stands for the compiled one.
        notes: What is to be known of the result, a sentence each.
        rest: What ops other than products are lowered to, where products are of 8 bits.
    """

    to: str
    method: str
    samples: int
    outputs: tuple[OutputAccuracy, ...]
    ops: tuple[OpAccuracy, ...]
    others: dict[str, tuple[str, ...]]
    top1: Top1 | None
    goal: str | None
    probe_error: float
    notes: tuple[str, ...] = ()
    rest: str = F32

    @property
    def kept(self) -> tuple[OpAccuracy, ...]:
        """The ops that could be lowered and stay f32."""
        return tuple(each for each in self.ops if each.stays is not None)

    def __str__(self) -> str:
        by = f" by {self.method}" if self.method else ""
        lowered = len(self.ops) - len(self.kept)
        to = self.to if self.rest == F32 else f"{self.to} and {self.rest}"
        title = f"{lowered} of {len(self.ops)} ops in {to}{by}, against f32 on {self.samples} samples"
        blocks = [title, self._outputs_table()]
        if self.top1 is not None:
            blocks.append(f"right labels: {self.top1.lowered:.2%}, in f32 {self.top1.f32:.2%}")
        if worst := sorted(self.ops, key=lambda each: -each.relative_error)[:_MOST_OPS]:
            blocks.append(f"{_heading(len(worst), len(self.ops))}\n{_ops_table(worst)}")
        stays = [f"{each.op}: {each.stays}" for each in self.kept]
        stays += [f"{_names(ids)}: {why}" for why, ids in self.others.items()]
        if stays:
            blocks.append("\n".join(["stays f32:", *(f"  {line}" for line in stays)]))
        return "\n\n".join([*blocks, *self.notes])

    def _outputs_table(self) -> str:
        columns = ("output", "relative error", "largest difference", "same labels")
        rows = [
            (
                each.name,
                f"{each.relative_error:.3%}",
                f"{each.largest:.3g}",
                "" if each.agreement is None else f"{each.agreement:.2%}",
            )
            for each in self.outputs
        ]
        return format_table(columns, rows)


def _heading(shown: int, count: int) -> str:
    which = (
        f"the {shown} of {count} ops whose rounding costs most"
        if shown < count
        else "ops by what rounding costs"
    )
    return f"{which}, each rounded alone:"


def _ops_table(ops: Sequence[OpAccuracy]) -> str:
    columns = ("op", "precision", "relative error", "predicted us saved")
    rows = [
        (
            each.op,
            each.precision if each.stays is None else "f32",
            f"{each.relative_error:.3%}",
            "" if each.saved_us is None else "0" if not each.saved_us else microseconds(each.saved_us),
        )
        for each in ops
    ]
    return format_table(columns, rows)


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(ids[:3]) + more


@dataclass(frozen=True)
class Calibration:
    """A policy that lowers the precision of a model, and what it costs.

    Args:
        policy: For `aicf.compile(model, policy=...)`.
        report: What was measured.
    """

    policy: Policy
    report: Report

    def save(self, path: str | Path) -> None:
        """Writes the policy as `.yaml` or `.json`, with the sections that say anything.

        Raises:
            PolicyError: it cannot be written.
        """
        report, policy = self.report, self.policy
        comment = f"{report.to}, calibrated with {report.samples} samples: aicf compile MODEL --policy THIS"
        if policy == Policy.of(policy.precision):
            policy.precision.save(path, comment)
        else:
            policy.save(path, comment)
