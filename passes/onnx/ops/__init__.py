"""The ONNX op map: how each op of ONNX is written in logical ops, one file a family, one function an op.

A file registers by being here: it is imported with this package, and its rows enter the table (``base.row``).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from aicf.passes.onnx.ops.base import (
    ROWS,
    Counted,
    Header,
    Items,
    Known,
    Lower,
    Node,
    Result,
    Row,
    Value,
    find_row,
    row,
)

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

SUPPORTED: Sequence[Row] = [entry for key in sorted(ROWS) for entry in reversed(ROWS[key])]
"""The whole map, by domain, op type and first opset."""

__all__ = [
    "ROWS",
    "SUPPORTED",
    "Counted",
    "Header",
    "Items",
    "Known",
    "Lower",
    "Node",
    "Result",
    "Row",
    "Value",
    "find_row",
    "row",
]
