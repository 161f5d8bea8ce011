"""The result of the GPU benchmark as JSON: rows and cold compiles by name, each with the machine that it was taken on.

Several runs add up to one result. What is newer replaces what is older, and a machine goes when its last figure does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from criteria import evaluated
from machine import machine
from programs import PROGRAMS

Result = dict[str, Any]


def taken_here(
    rows: Mapping[str, Mapping[str, Any]], cold: Mapping[str, Mapping[str, Any]], commit: str
) -> Result:
    """A result of this machine, from rows and cold compiles by name, and the commit that they are of."""
    here = machine(commit)
    key = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
    return {
        "machines": {key: here},
        "rows": [{"name": name, **row, "machine": key} for name, row in rows.items()],
        "cold": {name: {**entry, "machine": key} for name, entry in cold.items()},
    }


def merged(older: Result, newer: Result) -> Result:
    """Both, and what the criteria say to it."""
    rows = {row["name"]: row for row in (*older["rows"], *newer["rows"])}
    cold = {**older["cold"], **newer["cold"]}
    used = {entry["machine"] for entry in (*rows.values(), *cold.values())}
    machines = {**older["machines"], **newer["machines"]}
    result: Result = {
        "machines": {key: value for key, value in machines.items() if key in used},
        "rows": [rows[name] for name in PROGRAMS if name in rows],
        "cold": cold,
    }
    return {**result, "criteria": evaluated(result["rows"], cold)}


def read(path: Path) -> Result:
    """The result in a file, an empty one if there is none."""
    if not path.exists():
        return {"machines": {}, "rows": [], "cold": {}}
    return json.loads(path.read_text("utf-8"))


def extend(path: Path, newer: Result) -> None:
    """Adds to the result in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(merged(read(path), newer), indent=1) + "\n", "utf-8")
