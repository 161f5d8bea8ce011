"""The result of the training benchmark as JSON: rows by name, each with the machine that it was taken on.

Several runs add up to one result. What is newer replaces what is older, and a machine goes when its last row does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import machine
from promises import evaluated
from works import WORKS

Result = dict[str, Any]


def taken_here(rows: Mapping[str, Mapping[str, Any]], commit: str) -> Result:
    """A result of this machine, from rows by name and the commit that they are of."""
    here = machine(commit)
    key = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
    return {
        "machines": {key: here},
        "rows": [{"name": name, **row, "machine": key} for name, row in rows.items()],
    }


def merged(older: Result, newer: Result) -> Result:
    """Both, and what the promises say to it."""
    by_name = {row["name"]: row for row in (*older["rows"], *newer["rows"])}
    rows = [by_name[name] for name in WORKS if name in by_name]
    used = {row["machine"] for row in rows}
    machines = {**older["machines"], **newer["machines"]}
    return {
        "machines": {key: value for key, value in machines.items() if key in used},
        "rows": rows,
        "promises": evaluated(rows),
    }


def read(path: Path) -> Result:
    """The result in a file, an empty one if there is none."""
    if not path.exists():
        return {"machines": {}, "rows": []}
    return json.loads(path.read_text("utf-8"))


def extend(path: Path, newer: Result) -> None:
    """Adds to the result in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(merged(read(path), newer), indent=1) + "\n", "utf-8")
