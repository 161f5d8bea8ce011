"""docs/onnx-support.md from the JSON result: which ops of ONNX run, which do not, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from case_workers import PASS, STATUSES
from support_table import CORE

NAMES = {"aicf": "AICF", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
KINDS = {
    CORE: "node cases of f32, i32, i64 and bool tensors, default domain, no control flow, opset 27 and earlier",
    "node": "all node cases",
    "simple": "small models",
    "pytorch-converted": "layers converted from PyTorch",
    "pytorch-operator": "operators exported from PyTorch",
    "light": "known networks, with weights that nodes make",
}
_HEAD = """\
# ONNX support

AICF reads ONNX files of opset 7 to 28. `python benchmarks/onnx_conformance.py --page` writes this page from a run of
the test cases in the `onnx` package; do not edit it. A case passes if all outputs have the shape and type of the
reference, and values within the tolerances of onnx's own runner. The other outcomes are:

- random: the reference drew random numbers, which ONNX does not specify;
- noise: the error of the outputs relative to f64 is at most twice that of the reference, whose own rounding error is as
  large as the tolerance;
- wrong: other values;
- unsupported: an error that names something the runtime does not support;
- crash: any other exception, a crash or a timeout.

The peers ran the same cases in the same run: {versions}.
"""
_BOUND = """\
## Inputs with fixed values

A program is static. If the *value* of an input determines a shape, as the shape operand of `Reshape` does, that value
is given when the model is compiled (`aicf.compile(..., values={...})`). These cases were compiled with the values of
the case. AICF's error names the inputs whose values it needs; it fixes no value on its own.
"""


def page(result: Mapping[str, Any]) -> str:
    """The text of the page."""
    rivals = result["rivals"]
    ours = rivals["aicf"]["rows"]
    return "\n".join(
        [
            _HEAD.format(versions=_versions(result["machine"]["packages"])),
            "## Totals\n",
            *_totals(rivals),
            "\n## Node cases by op\n",
            "Passed cases, next to the peers'. Ops outside the default domain have the domain as a prefix.\n",
            *_ops(rivals),
            "",
            _BOUND,
            *_bound(ours),
            "\n## What does not pass\n",
            *_failures(ours),
            "",
        ]
    )


def _versions(packages: Mapping[str, str]) -> str:
    peers = ", ".join(f"{NAMES[name]} {packages[name]}" for name in ("onnxruntime", "openvino"))
    return f"{peers}, with the cases of onnx {packages['onnx']}"


def _table(head: Sequence[str], body: Sequence[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def _totals(rivals: Mapping[str, Any]) -> list[str]:
    body: list[list[object]] = []
    for kind, what in KINDS.items():
        for name, rival in rivals.items():
            if (total := rival["totals"].get(kind)) is not None:
                counts = [total.get(status, 0) for status in STATUSES]
                body.append([what, total["cases"], NAMES[name], *counts, f"{total['percent']:.1f} %"])
    return _table(["cases", "number", "", *STATUSES, "passed"], body)


def _ops(rivals: Mapping[str, Any]) -> list[str]:
    passed = {
        name: {row["op"]: row.get(PASS, 0) for row in rival["rows"] if row["kind"] == "node"}
        for name, rival in rivals.items()
    }
    body = [
        [f"`{row['op']}`", row["cases"], *(counts[row["op"]] for counts in passed.values())]
        for row in rivals["aicf"]["rows"]
        if row["kind"] == "node"
    ]
    return _table(["op", "cases", *(NAMES[name] for name in rivals)], body)


def _bound(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for names in row["bound"].values():
            found.setdefault(row["op"], Counter()).update([", ".join(f"`{name}`" for name in names)])
    body = [
        [f"`{op}`", "; ".join(f"{names} ({count})" for names, count in sorted(counts.items()))]
        for op, counts in sorted(found.items())
    ]
    return _table(["op", "inputs (cases)"], body)


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One row per op, kind and reason, with the number of cases."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for row in rows:
        for each in row["failed"].values():
            found[row["op"], row["kind"], each["status"], _reason(each["reason"])] += 1
    body = [
        [f"`{op}`", kind, count, status, reason]
        for (op, kind, status, reason), count in sorted(found.items())
    ]
    return _table(["op", "kind", "cases", "status", "reason"], body)


def _reason(reason: str) -> str:
    """The reason as text of a cell, without the node's name, which differs from case to case."""
    return re.sub(r"^<[^>]*>: ", "", reason).replace("|", "\\|")
