"""What is left of a report in the policy file, and what a user is to know of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from aicf.calibration.outputs import Reference
from aicf.calibration.report import OpAccuracy, Report

_DIGITS = 4
"""Of errors in a policy file."""
_MOST_NAMED = 5
"""Ops in one sentence."""


def accuracy_of(report: Report) -> dict[str, object]:
    """The field `accuracy` of the policy: plain values, the same for the same samples."""
    found: dict[str, object] = {"samples": report.samples}
    if report.method:
        found["method"] = report.method
    if report.goal is not None:
        found["keep"] = report.goal
    found["errors"] = {
        each.name: _rounded(each.relative_error)
        for each in report.outputs
        if math.isfinite(each.relative_error)
    }
    found["agreement"] = {
        each.name: _rounded(each.agreement) for each in report.outputs if each.agreement is not None
    }
    if report.top1 is not None:
        found["top1"] = {"f32": _rounded(report.top1.f32), report.to: _rounded(report.top1.lowered)}
    found["ops"] = {
        each.op: _rounded(each.relative_error) for each in report.ops if math.isfinite(each.relative_error)
    }
    found["kept"] = {each.op: each.stays for each in report.kept}
    return {name: value for name, value in found.items() if value != {}}


def notes_of(reference: Reference, ops: Sequence[OpAccuracy]) -> tuple[str, ...]:
    """What is to be known of the result, a sentence each."""
    return (*_of_labels(reference), *_of_times(ops))


def _of_labels(reference: Reference) -> Iterator[str]:
    if reference.top1 is None or reference.labels is None:
        return
    classes = len(np.unique(reference.labels))
    if reference.top1 <= 1.5 / classes:
        yield (
            f"f32 itself has {reference.top1:.1%} of the labels right, which is no better than chance: do they belong "
            "to these samples, and to the first output?"
        )


def _of_times(ops: Sequence[OpAccuracy]) -> Iterator[str]:
    known = [each for each in ops if each.saved_us is not None and each.stays is None]
    idle = [each.op for each in known if not each.saved_us]
    if idle and len(idle) == len(known):
        yield "no product is predicted to be faster in 8 bits on this target, which multiplies rounded factors in f32"
    elif idle:
        listed = ", ".join(f"{op}: f32" for op in idle[:_MOST_NAMED])
        more = f" and {len(idle) - _MOST_NAMED} more" if len(idle) > _MOST_NAMED else ""
        yield f"8 bits save no time on this target in some ops, which may as well be exact: ops: {{{listed}}}{more}"


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
