"""How composite ops are written with primitive ones: a table of formulas, one entry an op, one file a family.

A file registers by being here: it is imported with this package, and its ``FORMULAS`` enter the table.
"""

import pkgutil
from importlib import import_module
from typing import cast

from aicf.passes.logical.lowerings.base import Formulas, LowerBy
from aicf.passes.support.greedy import PatternTable
from aicf.passes.support.identity import IdTable

FORMULAS: Formulas = {
    op_class: formula
    for module in pkgutil.iter_modules(__path__)
    if hasattr(family := import_module(f"{__name__}.{module.name}"), "FORMULAS")
    for op_class, formula in cast(Formulas, family.FORMULAS).items()
}


def lowerings(ids: IdTable) -> PatternTable:
    """Composite op class to its lowering."""
    return {op_class: (LowerBy(formula, ids),) for op_class, formula in FORMULAS.items()}


__all__ = ["FORMULAS", "lowerings"]
