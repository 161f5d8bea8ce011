"""The fusion patterns, a file each. A pattern registers by being here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from aicf.passes.fusion.driver import FusionPattern, Stage


@cache
def patterns(stage: Stage) -> tuple[type[FusionPattern[Any]], ...]:
    """The patterns of a stage, those of the highest benefit first."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    found: set[type[FusionPattern[Any]]] = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, FusionPattern) and value is not FusionPattern
    }
    of_stage = (each for each in found if each.stage == stage)
    return tuple(sorted(of_stage, key=lambda each: (-each.benefit, each.name)))
