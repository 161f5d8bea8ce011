"""Every case of the GPU tests under compute-sanitizer, each in a process of its own, several side by side.

    python -m tests.gpu.sanitize [--jobs N] [--tools memcheck,racecheck] [CASE...]

memcheck looks for reads and writes out of bounds, racecheck for races in shared memory. The log has a line for each
case and, first, one for the control of each tool: a kernel with a defect that the tool must report. COMPUTE_SANITIZER
names the tool if it is not on the path. The exit status is the number of lines that are not as they must be, 100 at
most.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tests.gpu.artifacts import environment
from tests.gpu.case_table.case import ROOT
from tests.gpu.cases import CASES
from tests.gpu.controls import CHECKED_BY, CONTROLS

SANITIZER = os.environ.get("COMPUTE_SANITIZER", "compute-sanitizer")
TIMEOUT_S = 300
_REPORT = re.compile(
    r"^========= (?!COMPUTE-SANITIZER|\w* ?(?:ERROR|RACECHECK) SUMMARY|Target application)(\S.*)"
)
_SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (\d+) ")


@dataclass(frozen=True)
class Checked:
    """What a tool said about a program.

    Args:
        reports: First lines of its reports.
        summary: Number in its summary; None if it printed none, and so has not checked to the end.
        status: Exit status of the program.
        said: Last line that the program itself printed.
    """

    reports: tuple[str, ...]
    summary: int | None
    status: int
    said: str

    @staticmethod
    def read(output: str, status: int) -> Checked:
        """From what tool and program printed."""
        lines = output.splitlines()
        reports = tuple(found[1] for line in lines if (found := _REPORT.match(line)) is not None)
        counts = [int(found[1]) for line in lines if (found := _SUMMARY.match(line)) is not None]
        said = [line for line in lines if line.strip() and not line.startswith("=========")]
        return Checked(reports, sum(counts) if counts else None, status, said[-1] if said else "")

    def verdict(self, expected: str | None) -> tuple[bool, str]:
        """Whether this is as it must be (clean, or with the report that a control must have), and in words."""
        if expected is not None:
            found = next((report for report in self.reports if report.startswith(expected)), None)
            return found is not None, f"reported: {found}" if found else f"'{expected}' was not reported"
        if self.reports or self.summary:
            return False, f"{self.summary} reports: {' | '.join(self.reports[:2])}"
        if self.status or self.summary is None:
            return False, f"not checked, exit status {self.status}: {self.said}"
        return True, f"clean: {self.said}"


def main() -> None:
    """Checks and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--tools", default=",".join(CHECKED_BY))
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    started = time.perf_counter()
    print("compute-sanitizer,", _output([SANITIZER, "--version"])[0].strip().splitlines()[-1])
    print(_output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])[0].strip())
    wrong = sum(
        _check_all(tool, options.cases or list(CASES), options.jobs) for tool in options.tools.split(",")
    )
    print(f"{wrong} not as they must be, {time.perf_counter() - started:.0f} s")
    sys.exit(min(wrong, 100))


def _check_all(tool: str, names: Sequence[str], jobs: int) -> int:
    """Prints a line for the control and for each name, in order; how many are not as they must be."""
    wrong = 0
    with ThreadPoolExecutor(jobs) as pool:
        for right, line in pool.map(partial(_check, tool), (CHECKED_BY[tool], *names)):
            print(line, flush=True)
            wrong += not right
    return wrong


def _check(tool: str, name: str) -> tuple[bool, str]:
    started = time.perf_counter()
    checker = (SANITIZER, "--tool", tool, "--error-exitcode", "1", "--print-limit", "20")
    checked = Checked.read(*_output([*checker, sys.executable, "-m", "tests.gpu.run_case", name]))
    control = CONTROLS.get(name)
    right, words = checked.verdict(None if control is None else control.report)
    mark = "ok  " if right else "WRONG"
    return right, f"{mark:5} {tool:9} {name:28} {time.perf_counter() - started:5.1f} s  {words}"


def _output(command: Sequence[str]) -> tuple[str, int]:
    """What a command printed, and its exit status. `timeout` ends it with all of its processes if it takes too long."""
    done = subprocess.run(
        ["timeout", "--kill-after=5", str(TIMEOUT_S), *command],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout, done.returncode


if __name__ == "__main__":
    main()
