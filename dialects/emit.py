"""Emit IR: how a program runs, completely.

`emit.group` outlines logical ops while kernels are chosen; `emit.program` is the buffer program that the runtime
captures; `emit.body` keeps what an instruction means; `emit.ledger` keeps why. One `emit.resolved` is one instruction.
The ops are in `emit_groups`, `emit_program`, `emit_buffers`, `emit_instruction`, `emit_kernels`, `emit_access_ops`,
`emit_scalar_ops`, `emit_scan`, `emit_accumulate` and `emit_ledger`, types and attributes in `emit_types`; this module
is the dialect and the one place to import from.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Dialect, Operation

from aicf.dialects.emit_access_ops import IndexOp, LoadOp
from aicf.dialects.emit_buffers import BIND_ROLES, BINDINGS, BindOp, SlotOp, ViewOp, buffer_of, root_buffer
from aicf.dialects.emit_groups import BodyOp, GroupOp
from aicf.dialects.emit_instruction import ResolvedOp, emit_resolved
from aicf.dialects.emit_kernels import (
    AccumulateOp,
    BitcastOp,
    CastOp,
    DivIntOp,
    KernelOp,
    PhaseOp,
    PhiloxOp,
    ReduceOp,
    ScanOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.emit_ledger import DecisionOp, LedgerOp, find_ledger
from aicf.dialects.emit_program import PHASES, PREPARE, ProgramOp
from aicf.dialects.emit_types import BufferType, EdgeAttr, KernelAttr, LayoutAttr, TargetAttr

__all__ = [
    "BINDINGS",
    "BIND_ROLES",
    "PHASES",
    "PREPARE",
    "AccumulateOp",
    "BindOp",
    "BitcastOp",
    "BodyOp",
    "BufferType",
    "CastOp",
    "DecisionOp",
    "DivIntOp",
    "EdgeAttr",
    "Emit",
    "GroupOp",
    "IndexOp",
    "KernelAttr",
    "KernelOp",
    "LayoutAttr",
    "LedgerOp",
    "LoadOp",
    "PhaseOp",
    "PhiloxOp",
    "ProgramOp",
    "ReduceOp",
    "ResolvedOp",
    "ScanOp",
    "ShiftLeftOp",
    "ShiftRightOp",
    "SigmoidOp",
    "SlotOp",
    "StoreOp",
    "TargetAttr",
    "ViewOp",
    "YieldOp",
    "buffer_of",
    "emit_resolved",
    "find_ledger",
    "root_buffer",
    "symbols",
]


def symbols(module: ModuleOp) -> dict[str, Operation]:
    """All symbols of `module` by name."""
    table: dict[str, Operation] = {}
    for op in module.body.block.ops:
        name = op.properties.get("sym_name")
        if isinstance(name, StringAttr):
            table[name.data] = op
    return table


_TYPES = [item for name in __all__ if isinstance(item := globals().get(name), type)]

Emit = Dialect(
    "emit",
    [item for item in _TYPES if issubclass(item, Operation)],
    [item for item in _TYPES if issubclass(item, Attribute)],
)
