"""`aicf engines`: what can run whole models here, and what is missing for the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicf.errors import BackendUnavailable
from aicf.inspection.explain import format_table
from aicf.tools.cli.arguments import Json

if TYPE_CHECKING:
    from aicf.engines.availability import Availability


@dataclass(frozen=True)
class _Row:
    """An engine, and what it says of this machine."""

    engine: str
    is_verified: bool
    found: Availability

    def to_json_value(self) -> dict[str, object]:
        """All of it, by name."""
        own = self.found
        return {
            "engine": self.engine,
            "version": own.version,
            "devices": list(own.devices),
            "verified": self.is_verified,
            "available": own.is_available,
            "missing": own.missing,
            "remedy": own.remedy,
        }

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        state = "" if self.is_verified else "unverified"
        return self.engine, self.found.version, ", ".join(self.found.devices), state

    def __str__(self) -> str:
        return f"{self.engine}{'' if self.is_verified else ' (unverified)'}: {self.found}"


def engines_command(as_json: Json = False) -> None:
    """List the engines that can run models here, with their versions and devices.

    A line for each that cannot says what is missing and how to get it.
    """
    from aicf.engines.registry import engine_names

    rows = [_row(name) for name in engine_names()]
    if as_json:
        print(json.dumps([row.to_json_value() for row in rows], indent=2))
        return
    here = [row for row in rows if row.found.is_available]
    print(format_table(("engine", "version", "devices", "state"), [row.cells for row in here]))
    for row in rows:
        if row not in here:
            print(row)


def _row(name: str) -> _Row:
    from aicf.engines.availability import Availability
    from aicf.engines.registry import get_engine

    try:
        engine = get_engine(name)
    except BackendUnavailable as error:
        return _Row(name, False, Availability(missing=error.message, remedy="correct its package"))
    return _Row(name, engine.is_verified, engine.availability())
