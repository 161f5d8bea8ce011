"""The tuning table of the GPU benchmark's programs.

    python benchmarks/gpu/tune.py prepare DIR --rows bert_1x128   no GPU needed: compiles the candidates of each row
    python benchmarks/gpu/tune.py measure DIR                     on the GPU: extends benchmarks/tuning/h100.json

A piece of work that several programs share is measured once; what the table has is not measured again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicf.policies.tuning_table import Timing
    from aicf.tuning.cases import Prepared
    from aicf.tuning.measure import Device

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(1, str(ROOT))
TABLE = ROOT / "benchmarks" / "tuning" / "h100.json"


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    preparing = commands.add_parser("prepare", help="compile the candidates, a folder for each row")
    preparing.add_argument("--target", default="cuda:sm_90a")
    preparing.add_argument("--variants", type=int, default=8, help="of one kernel on one piece of work")
    preparing.add_argument("--rows", default="")
    preparing.set_defaults(run=prepare_all)
    measuring = commands.add_parser("measure", help="time them")
    measuring.add_argument("--output", "-o", type=Path, default=TABLE)
    measuring.set_defaults(run=measure_all)
    for command in (preparing, measuring):
        command.add_argument("directory", type=Path)
    options = parser.parse_args()
    options.run(options)


def prepare_all(options: argparse.Namespace) -> None:
    """Compiles the candidates of every row."""
    import programs

    from aicf.compilation.record import Options
    from aicf.tuning.cases import save
    from aicf.tuning.plan import prepare

    for name in filter(None, options.rows.split(",")) if options.rows else programs.PROGRAMS:
        started = time.perf_counter()
        requested = Options(options.target, "", "", 1)
        made = prepare(programs.PROGRAMS[name](), requested, options.variants, partial(print, f"{name}:"))
        save(made, options.directory / name)
        print(f"{name}: {len(made.cases)} cases, {time.perf_counter() - started:.0f} s", flush=True)


def measure_all(options: argparse.Namespace) -> None:
    """Times what is in the folders and not yet in the table, which is written after every piece of work."""
    from aicf.tuning.cases import load
    from aicf.tuning.devices import open_device

    folders = [load(path) for path in sorted(options.directory.iterdir()) if path.is_dir()]
    works = {case.work.digest: case.work for cases in folders for case in cases.cases}
    device = open_device(folders[0].setting)
    for key in works:
        for cases in folders:
            of_work = tuple(case for case in cases.cases if case.work.digest == key)
            if of_work and measure_work(replace(cases, cases=of_work), device, options.output):
                # A kernel broke the GPU for this process; the next one resumes after it.
                os.execv(sys.executable, [sys.executable, *sys.argv])


def measure_work(cases: Prepared, device: Device, path: Path) -> bool:
    """Times cases of one piece of work and adds them to the table; whether the device is lost."""
    from aicf.tuning.growing_table import GrowingTable
    from aicf.tuning.measure import header_of, measure
    from aicf.tuning.tune import older_table

    started = time.perf_counter()
    older = older_table(path)
    known = {entry.key: len(entry.rows) + len(entry.failed) for entry in older.works} if older else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with GrowingTable(header_of(cases.setting, device), older, path) as table:
        measure(cases, device, lambda what: None, table)
    key = cases.cases[0].work.digest
    for work in table.table.only([key]).works:
        if len(work.rows) + len(work.failed) == known.get(key):
            continue
        shapes = " ".join(str(list(operand.shape)) for operand in work.work.operands)
        count, seconds = len(work.rows) + len(work.failed), time.perf_counter() - started
        print(f"{work.work.kind} {work.key} {shapes}: {count} in {seconds:.1f} s", flush=True)
        for row in work.rows[:4]:
            print(f"  {row.label}: cold {_text(row.cold)}, warm {_text(row.warm)}")
        for failure in work.failed:
            print(f"  {failure.label} failed: {failure.reason}")
    return device.lost


def _text(timing: Timing) -> str:
    return f"{timing.median_us:.2f}±{timing.spread_us:.2f}"


if __name__ == "__main__":
    main()
