"""The ATen op map: how each op of PyTorch is written in logical ops, one file for a family, one function for a row.

The files of this folder are found and imported with the package, and enter their rows into the table (`base.row`).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from aicf.frontends.torch.ops.base import (
    CHECKED_INDICES,
    EMPTY_ROWS,
    OTHER_GRADIENTS,
    ROWS,
    Call,
    CheckedIndices,
    Lower,
    OtherGradient,
    Tensor,
    Writer,
    empty_row,
    listed,
    row,
)

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

__all__ = [
    "CHECKED_INDICES",
    "EMPTY_ROWS",
    "OTHER_GRADIENTS",
    "ROWS",
    "Call",
    "CheckedIndices",
    "Lower",
    "OtherGradient",
    "Tensor",
    "Writer",
    "empty_row",
    "listed",
    "row",
]
