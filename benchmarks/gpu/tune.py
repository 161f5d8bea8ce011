"""The tuning table of the GPU benchmark's programs.

    python benchmarks/gpu/tune.py prepare DIR --rows bert_1x128   no GPU needed: compiles the candidates of each row
    python benchmarks/gpu/tune.py measure DIR                     on the GPU: extends benchmarks/tuning/h100.json

Work that several programs share is measured with the first of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

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

    from aicf.compiled import Options
    from aicf.tuning.candidates import prepare
    from aicf.tuning.cases import save

    for name in filter(None, options.rows.split(",")) if options.rows else programs.PROGRAMS:
        started = time.perf_counter()
        asked = Options(options.target, "", "", 1)
        made = prepare(programs.PROGRAMS[name](), asked, options.variants, partial(print, f"{name}:"))
        save(made, options.directory / name)
        print(f"{name}: {len(made.cases)} cases, {time.perf_counter() - started:.0f} s", flush=True)


def measure_all(options: argparse.Namespace) -> None:
    """Times what is in the folders, each piece of work once; the table is written after every folder."""
    from aicf.policies.tuning_table import TuningTable
    from aicf.tuning.cases import load
    from aicf.tuning.devices import open_device
    from aicf.tuning.measure import added, measure

    table = TuningTable.load(options.output) if options.output.exists() else None
    done: set[str] = set()
    for folder in sorted(path for path in options.directory.iterdir() if path.is_dir()):
        cases = load(folder)
        fresh = replace(cases, cases=tuple(case for case in cases.cases if case.work.digest not in done))
        done |= {case.work.digest for case in fresh.cases}
        started = time.perf_counter()
        found = measure(fresh, open_device(cases), lambda what: None)
        table = found if table is None else added(found, table)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        table.save(options.output)
        print(f"{folder.name}: {len(fresh.cases)} cases, {time.perf_counter() - started:.0f} s", flush=True)
        for work in found.works:
            for row in work.rows[:3]:
                print(f"  {work.work.kind} {work.key}: {row.label}: cold {row.cold}, warm {row.warm}")


if __name__ == "__main__":
    main()
