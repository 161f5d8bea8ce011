"""docs/torch-support.md from the JSON result and the op map: which ops of PyTorch run, which do not, and why."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch_rows import families

STATUSES = ("right", "wrong", "unsupported", "raised")
_HEAD = """\
# PyTorch support

AICF compiles PyTorch's models from the graphs of ATen ops that PyTorch traces.
`python benchmarks/torch_conformance.py --page` writes this page from a run of PyTorch's own sample inputs; do not edit
it.

PyTorch tags as core the overloads that a backend must have. For each of them, the samples of PyTorch's OpInfo database,
and its reference inputs if the samples are few, are run in eager mode, and the calls of the overload are recorded: at
most {samples} for each of {dtypes}. The calls are traced, compiled for `{target}` and run. Samples
that eager mode refuses are left out. A sample has one of these outcomes:

- right: shapes and types are those of eager mode, and every element is within the tolerance of eager mode in float64
  or in the dtype itself, or its error relative to float64 is no larger than eager mode's. If PyTorch does not specify
  the order of equal elements, any order is right. Random numbers are checked for range and moments, uninitialized
  memory only for shape;
- wrong: any other result;
- unsupported: an error that names something AICF does not support;
- raised: any other exception, a crash or a timeout.

The tolerance of an element is an absolute part, two units times the largest element (at least 1), and a relative part,
eight units times the element; the unit is {tolerances}. The
run used PyTorch {version}.
"""
_LIMITS = """\
AICF has no complex numbers. All sizes of a program are known when it is compiled, so no result can have a
data-dependent size.
"""
_GPU = """\
## On a GPU

`python benchmarks/torch_conformance.py --target {target}` runs the samples on the GPU. There PyTorch has other
samples for some ops, and results of other sizes and element types.
"""
_SAME = "Every op has the same outcomes on both targets.\n"
_OTHERS = """\
## All other ops

The op map has {count} overloads in all. The ones below are not core. They are grouped by the file of
`aicf/frontends/torch/ops/` that lowers them. Ops in no table are decomposed by PyTorch's own formulas, if it has one.
"""


def page(result: Mapping[str, Any], gpu: Mapping[str, Any] | None = None) -> str:
    """The text of the page.

    Args:
        result: Of the CPU.
        gpu: Of a GPU; None if there is no such result.
    """
    core = result["core"]
    lines = [
        _head(result),
        "## Totals\n",
        *_table(
            ["core ops", *_TOTALS],
            [[len(core) + len(result["apart"]), *_totals(result)]],
        ),
        "\n## Core ops\n",
        *_table(["op", "samples", *STATUSES], [_row(row) for row in core]),
        "\n## What does not pass\n",
        _LIMITS,
        *_failures(core),
        "\n## Not measured\n",
        *_table(["op", "reason"], [[f"`{_short(op)}`", reason] for op, reason in result["apart"].items()]),
        "",
        *([] if gpu is None else _on_gpu(result, gpu)),
        *_others({row["op"].removeprefix("aten.") for row in core}),
        "",
    ]
    return "\n".join(lines)


_TOTALS = ["with samples", "samples", *STATUSES, "share right"]


def _totals(result: Mapping[str, Any]) -> list[object]:
    totals = result["totals"]
    return [
        sum(row["samples"] > 0 for row in result["core"]),
        totals["samples"],
        *(totals[status] for status in STATUSES),
        f"{totals['percent']:.1f} %",
    ]


def _on_gpu(result: Mapping[str, Any], gpu: Mapping[str, Any]) -> list[str]:
    """The totals of both targets, the ops that differ, and why samples of these do not pass on the GPU."""
    both = (result, gpu)
    lines = [
        _GPU.format(target=gpu["target"]),
        *_table(["target", *_TOTALS], [[f"`{each['target']}`", *_totals(each)] for each in both]),
        "",
    ]
    differing = _differing(result["core"], gpu["core"])
    if not differing:
        return [*lines, _SAME]
    rows = [
        [first, f"`{each['target']}`", *counts]
        for pair in differing
        for each, row in zip(both, pair, strict=True)
        for first, *counts in [_row(row)]
    ]
    lines += ["These ops have other outcomes:\n", *_table(["op", "target", "samples", *STATUSES], rows), ""]
    failing = [row for _, row in differing if row["reasons"]]
    return [*lines, *(["What does not pass on the GPU:\n", *_failures(failing), ""] if failing else [])]


def _differing(
    core: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The rows of both targets of each op that has other counts of samples that do not pass. The counts of all samples
    differ for many ops, as PyTorch's kernels take other element types."""
    by_op = {row["op"]: row for row in others}
    pairs = [(row, by_op[row["op"]]) for row in core if row["op"] in by_op]
    return [(one, other) for one, other in pairs if _not_right(one) != _not_right(other)]


def _not_right(row: Mapping[str, Any]) -> list[int]:
    return [row[status] for status in STATUSES[1:]]


def _head(result: Mapping[str, Any]) -> str:
    tolerances = ", ".join(f"{value:g} for {name}" for name, value in result["tolerances"].items())
    return _HEAD.format(
        samples=result["samples_each"],
        dtypes=", ".join(result["dtypes"][:-1]) + f" and {result['dtypes'][-1]}",
        target=result["target"],
        tolerances=tolerances,
        version=result["machine"]["packages"]["torch"],
    )


def _short(op: str) -> str:
    return op.removeprefix("aten.")


def _table(head: Sequence[str], body: Sequence[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def _row(row: Mapping[str, Any]) -> list[object]:
    return [f"`{_short(row['op'])}`", row["samples"], *(row[status] for status in STATUSES)]


def _failures(core: Sequence[Mapping[str, Any]]) -> list[str]:
    """One row per op and reason, with the number of samples and their types."""
    body: list[list[object]] = []
    for row in core:
        found: dict[tuple[str, str], Counter[str]] = {}
        for each in row["reasons"]:
            key = (each["status"], _reason(each["reason"]))
            found.setdefault(key, Counter()).update([each["dtype"]])
        for (status, reason), dtypes in found.items():
            body.append([f"`{_short(row['op'])}`", sum(dtypes.values()), ", ".join(dtypes), status, reason])
    return _table(["op", "samples", "types", "status", "reason"], body)


def _reason(reason: str) -> str:
    """The reason as text of a cell, without the node's name."""
    return re.sub(r" \(node '[^']*'\)", "", reason).replace("|", "\\|")


def _others(core: set[str]) -> list[str]:
    groups = families()
    lines = [_OTHERS.format(count=sum(len(family.rows) for family in groups))]
    for family in groups:
        if rows := [name for name in family.rows if name not in core]:
            lines += [f"### {family.name}\n", f"{family.about}\n", _wrapped(rows), ""]
    return lines[:-1]


def _wrapped(rows: Sequence[str]) -> str:
    return textwrap.fill(", ".join(f"`{row}`" for row in rows), 120, break_on_hyphens=False)
