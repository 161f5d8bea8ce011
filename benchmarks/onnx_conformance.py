"""The test cases of the `onnx` package on the `cpu` target, beside ONNX Runtime and OpenVINO in the same run.

    python benchmarks/onnx_conformance.py --only Conv --only Gemm       what fails of these ops, in seconds
    python benchmarks/onnx_conformance.py --kinds all --jobs 2 --rivals aicf,onnxruntime,openvino --output
    python benchmarks/onnx_conformance.py --page                         the page from the result that is there

A case passes by the tolerances of onnx's own runner. Each runs in a worker process with a time limit. Inputs whose
values shapes follow from are bound to the values of the case when it is compiled, and the result names them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where cuda.py would hide the package that others look for.
sys.path[0] = str(ROOT / "benchmarks" / "conformance")
sys.path.insert(1, str(ROOT / "benchmarks" / "host"))

from case_workers import PASS, Outcome, run_cases  # noqa: E402
from onnx_cases import KINDS, OnnxCase, load_cases  # noqa: E402
from onnx_runners import RUNNERS  # noqa: E402
from support_page import page  # noqa: E402
from support_table import key, rows, text, totals, without_reasons  # noqa: E402
from timing import machine, write_result  # noqa: E402

PAGE = ROOT / "docs" / "onnx-support.md"
RESULT = ROOT / "benchmarks" / "results" / "onnx_conformance.json"


def main() -> None:
    """Runs what was asked for and prints it."""
    arguments = _arguments()
    if arguments.page:
        PAGE.write_text(page(json.loads(RESULT.read_text("utf-8"))), "utf-8")
        return
    kinds = KINDS if arguments.kinds == "all" else tuple(arguments.kinds.split(","))
    cases = _chosen(load_cases(kinds), arguments.only, arguments.match)
    if arguments.core:
        cases = [case for case in cases if case.is_core]
    if not cases:
        sys.exit("no case of that op or name")
    found: dict[str, Any] = {}
    for rival in arguments.rivals.split(","):
        outcomes = _run(cases, rival, arguments.jobs, arguments.seconds)
        found[rival] = {"totals": totals(cases, outcomes), "rows": rows(cases, outcomes)}
    for rival, result in found.items():
        print(f"\n{rival}\n{text(_told(result['rows'], arguments))}")
        for name, total in result["totals"].items():
            print(f"{rival} {name}: {total}")
    if arguments.output is not None:
        _write(arguments.output, found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="OP", help="cases of this op")
    parser.add_argument("--match", default="", metavar="REGEX", help="cases with such a name")
    parser.add_argument(
        "--kinds", default="node", help=f"all, or of {', '.join(KINDS)} (default: %(default)s)"
    )
    parser.add_argument("--core", action="store_true", help="core cases only")
    parser.add_argument("--rivals", default="aicf", help=f"of {', '.join(RUNNERS)} (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit of a case")
    parser.add_argument("--output", type=Path, nargs="?", const=RESULT, help="write the result as JSON")
    parser.add_argument(
        "--page", action="store_true", help=f"write {PAGE.name} from the result that is there"
    )
    return parser.parse_args()


def _chosen(cases: Sequence[OnnxCase], ops: Sequence[str], pattern: str) -> list[OnnxCase]:
    wanted = {op.lower() for op in ops}
    return [
        case
        for case in cases
        if (not wanted or case.op.lower() in wanted) and re.search(pattern, case.name) is not None
    ]


def _run(cases: Sequence[OnnxCase], rival: str, jobs: int, limit: float) -> dict[str, Outcome]:
    started, found = time.monotonic(), dict[str, Outcome]()
    for case, outcome in run_cases(cases, rival, jobs, limit):
        found[key(case)] = outcome
        passed = sum(each.status == PASS for each in found.values())
        if sys.stderr.isatty() or len(found) % 100 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            spent = time.monotonic() - started
            print(
                f"{rival}: {passed} of {len(found)} ({len(cases)}), {spent:.0f} s", end=end, file=sys.stderr
            )
    return found


def _told(found: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Ops that were asked for by name are all told, else those with a case that failed."""
    return [row for row in found if arguments.only or arguments.match or row["failed"]]


def _write(path: Path, found: dict[str, Any]) -> None:
    """The result, with the reasons of AICF alone."""
    for rival, result in found.items():
        if rival != "aicf":
            result["rows"] = without_reasons(result["rows"])
    write_result(path, {"machine": machine(), "rivals": found})


if __name__ == "__main__":
    main()
