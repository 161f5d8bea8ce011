"""PyTorch's own sample inputs of its core ATen ops through AICF, beside eager mode.

    python benchmarks/torch_conformance.py --only add.Tensor --only sort    what fails of these ops, in seconds
    python benchmarks/torch_conformance.py --jobs 2 --write                 all core ops, with result and page
    python benchmarks/torch_conformance.py --target cuda --jobs 2 --write   the same on a GPU
    python benchmarks/torch_conformance.py --page                           the page from the results that are there

Each sample runs in a worker process with a time limit. Samples that eager mode refuses are left out.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where cuda.py would hide the package that others look for.
sys.path[0] = str(ROOT / "benchmarks" / "conformance")
sys.path.insert(1, str(ROOT / "benchmarks" / "host"))

from timing import machine, write_result  # noqa: E402
from torch_judge import TOLERANCES  # noqa: E402
from torch_page import page  # noqa: E402
from torch_runners import TARGETS  # noqa: E402
from torch_table import apart, core_overloads  # noqa: E402
from torch_workers import ALL_DTYPES, RIGHT, STATUSES, Job, Outcome, measure  # noqa: E402

from aicf.support.torch_types import NAMES  # noqa: E402

PAGE = ROOT / "docs" / "torch-support.md"
RESULTS = ROOT / "benchmarks" / "results"
PAGE_TARGETS = ("cpu", "cuda")
"""The page is made from the results of these targets, of the second one if it is there."""


def main(
    only: Annotated[list[str] | None, typer.Option(help="Of these ops, or overloads of them.")] = None,
    target: Annotated[str, typer.Option(help=f"Of {', '.join(TARGETS)}.")] = "cpu",
    samples: Annotated[int, typer.Option(help="At most, of an op and a dtype.")] = 8,
    dtypes: Annotated[str, typer.Option(help="Which to take.")] = ",".join(ALL_DTYPES),
    jobs: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    seconds: Annotated[float, typer.Option(help="Time limit of a sample.")] = 60.0,
    write: Annotated[bool, typer.Option("--write", help="Write the result, and the page.")] = False,
    page_only: Annotated[bool, typer.Option("--page", help="Write the page from the results.")] = False,
) -> None:
    """Measures the core ops, and prints each sample that is not right."""
    if page_only:
        PAGE.write_text(page_of_results(), "utf-8")
        return
    if target not in TARGETS:
        raise typer.BadParameter(f"the target is one of {', '.join(TARGETS)}")
    overloads = [each for each in core_overloads() if _is_wanted(str(each), only or [])]
    ops = [str(each) for each in overloads if apart(each) is None]
    job = Job(target, samples, tuple(dtypes.split(",")), seconds)
    found = _run(ops, job, jobs)
    result = {
        "machine": machine(),
        "target": target,
        "samples_each": samples,
        "dtypes": job.dtypes,
        "tolerances": {NAMES[str(dtype)]: value for dtype, value in TOLERANCES.items()},
        "totals": _totals(found),
        "apart": {str(each): reason for each in overloads if (reason := apart(each)) is not None},
        "core": [_row(op, [each for each in found if each.op == op]) for op in ops],
    }
    _print_failures(found, result)
    if write:
        write_result(_result_of(target), result)
        if target in PAGE_TARGETS:
            PAGE.write_text(page_of_results(), "utf-8")


def page_of_results() -> str:
    """The text of the page from the results that are there."""
    paths = map(_result_of, PAGE_TARGETS)
    return page(*(json.loads(path.read_text("utf-8")) for path in paths if path.exists()))


def _result_of(target: str) -> Path:
    return RESULTS / f"torch_ops_{target}.json"


def _is_wanted(op: str, only: Sequence[str]) -> bool:
    _, base, overload = op.split(".")
    return not only or base in only or f"{base}.{overload}" in only


def _run(ops: Sequence[str], job: Job, jobs: int) -> list[Outcome]:
    started, found = time.monotonic(), list[Outcome]()
    for outcome in measure(ops, job, jobs):
        found.append(outcome)
        if len(found) % 200 == 0:
            right = sum(each.status == RIGHT for each in found)
            print(
                f"{outcome.op}: {right} right of {len(found)}, {time.monotonic() - started:.0f} s",
                file=sys.stderr,
            )
    return found


def _totals(found: Sequence[Outcome]) -> dict[str, Any]:
    counts = _counts(found)
    return {**counts, "percent": round(100 * counts[RIGHT] / max(len(found), 1), 2)}


def _counts(found: Sequence[Outcome]) -> dict[str, int]:
    counts = Counter(each.status for each in found)
    return {"samples": len(found), **{status: counts[status] for status in STATUSES}}


def _row(op: str, found: Sequence[Outcome]) -> dict[str, Any]:
    reasons = [
        {"dtype": each.dtype, "sample": each.sample, "status": each.status, "reason": each.reason}
        for each in found
        if each.status != RIGHT
    ]
    return {
        "op": op,
        **_counts(found),
        "dtypes": dict(Counter(each.dtype for each in found)),
        "reasons": reasons,
    }


def _print_failures(found: Sequence[Outcome], result: dict[str, Any]) -> None:
    for each in found:
        if each.status != RIGHT:
            print(f"{each.status}: {each.dtype} {each.sample}: {each.reason}")
    for row in result["core"]:
        if not row["samples"]:
            print(f"no samples: {row['op']}")
    print(result["totals"])


if __name__ == "__main__":
    typer.run(main)
