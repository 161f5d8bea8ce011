"""Whether a pass changed a module: what was found out about it before still holds if it did not."""

from __future__ import annotations

from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

State: TypeAlias = list[tuple[Any, ...]]


def state_of(module: ModuleOp) -> State:
    """Everything a module says, for comparison by `==` with what it says later: its operations in order, each with what
    it holds. A pass that builds an equal module anew changes it."""
    return [_held(op) for op in module.walk()]


def _held(op: Operation) -> tuple[Any, ...]:
    arguments = tuple(block.args for region in op.regions for block in region.blocks)
    types = tuple(value.type for values in (op.results, *arguments) for value in values)
    return (op, op.parent, tuple(op.operands), dict(op.properties), dict(op.attributes), arguments, types)
