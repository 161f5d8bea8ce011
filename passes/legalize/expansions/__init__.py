"""What becomes of ops that the target has no kernel for: a table of expansions, one file a family.

A file registers by being here: it is imported with this package, and its expansions enter the table
(``base.register``).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from aicf.passes.legalize.expansions.base import EXPANSIONS, OpExpansion, register

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

__all__ = ["EXPANSIONS", "OpExpansion", "register"]
