"""What is left of a report in the policy file, and what a user is to know of it."""

from __future__ import annotations

import math

import numpy as np

from aicf.calibration.outputs import Reference
from aicf.calibration.report import Report
from aicf.calibration.request import Request

_DIGITS = 4
"""Of errors in a policy file."""


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


def notes_of(reference: Reference, request: Request) -> tuple[str, ...]:
    """What the samples do not fit."""
    if reference.top1 is None or reference.labels is None:
        return ()
    classes = len(np.unique(reference.labels))
    if reference.top1 <= 1.5 / classes:
        return (
            f"f32 itself has {reference.top1:.1%} of the labels right, which is no better than chance: do they belong "
            "to these samples, and to the first output?",
        )
    return ()


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
