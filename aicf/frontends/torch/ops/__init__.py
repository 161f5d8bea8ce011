"""The ATen op map: how each op of PyTorch is written in logical ops, one file a family, one function a row.

A file registers by being here: it is imported with this package, and its rows enter the table (``base.row``).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from aicf.frontends.torch.ops.base import (
    EMPTY_ROWS,
    OTHER_GRADIENTS,
    ROWS,
    Call,
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
    "EMPTY_ROWS",
    "OTHER_GRADIENTS",
    "ROWS",
    "Call",
    "Lower",
    "OtherGradient",
    "Tensor",
    "Writer",
    "empty_row",
    "listed",
    "row",
]
