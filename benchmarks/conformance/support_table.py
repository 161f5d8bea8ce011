"""The outcomes of a run as the table by op: as data for the JSON result, and as text for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from case_workers import PASS, Outcome
from onnx_cases import OnnxCase

Outcomes = Mapping[str, Outcome]
"""By `key` of the case."""

CORE = "core"
"""The name of the core cases among the totals; they are node cases too."""


def key(case: OnnxCase) -> str:
    """Cases of two kinds may have one name."""
    return f"{case.kind}/{case.name}"


def rows(cases: Sequence[OnnxCase], outcomes: Outcomes) -> list[dict[str, Any]]:
    """One row for each kind and op: counts, what did not pass with its reason, and which values were bound."""
    groups: dict[tuple[str, str], list[OnnxCase]] = {}
    for case in cases:
        groups.setdefault((case.kind, case.op), []).append(case)
    return [_row(kind, op, members, outcomes) for (kind, op), members in sorted(groups.items())]


def _row(kind: str, op: str, cases: Sequence[OnnxCase], outcomes: Outcomes) -> dict[str, Any]:
    found = {case.name: outcomes[key(case)] for case in cases}
    return {
        "kind": kind,
        "op": op,
        "cases": len(cases),
        **Counter(each.status for each in found.values()),
        "core": sum(case.is_core for case in cases),
        "core_pass": sum(case.is_core and found[case.name].status == PASS for case in cases),
        "bound": {name: list(each.bound) for name, each in found.items() if each.bound},
        "failed": {
            name: {"status": each.status, "reason": each.reason}
            for name, each in found.items()
            if each.status != PASS
        },
    }


def without_reasons(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a peer: what it says about its own failures is not ours to keep."""
    return [
        {**row, "failed": {name: each["status"] for name, each in row["failed"].items()}} for row in found
    ]


def totals(cases: Iterable[OnnxCase], outcomes: Outcomes) -> dict[str, dict[str, Any]]:
    """Counts and the share that passed: of each kind, and of the core."""
    groups: dict[str, list[str]] = {}
    for case in cases:
        status = outcomes[key(case)].status
        groups.setdefault(case.kind, []).append(status)
        if case.is_core:
            groups.setdefault(CORE, []).append(status)
    return {
        name: {
            "cases": len(found),
            **Counter(found),
            "percent": round(100 * found.count(PASS) / len(found), 2),
        }
        for name, found in groups.items()
    }


def text(found: Sequence[Mapping[str, Any]]) -> str:
    """One line for each op, and one for each case that did not pass."""
    lines: list[str] = []
    for row in found:
        lines.append(f"{row['op']} ({row['kind']}): {row.get(PASS, 0)} of {row['cases']}")
        lines += [f"    {name}: {each['status']}: {each['reason']}" for name, each in row["failed"].items()]
    return "\n".join(lines)
