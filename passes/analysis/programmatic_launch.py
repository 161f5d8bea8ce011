"""Programmatic edges: which instructions may start before their predecessor ends, and what they may touch until then.

A kernel says in its record whether it waits inside (`early_reads`: the operands it reads before its wait, possibly
none) and whether it lets its successors start early (`triggers`). Before its wait it may read only what the program
never writes; after it, everything its predecessors wrote is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import EARLY_READS, TRIGGERS
from aicf.dialects.emit import BindOp, ResolvedOp, SlotOp
from aicf.passes.analysis.accesses import region_of

Root = BindOp | SlotOp


def _entry(op: ResolvedOp, key: str) -> Attribute | None:
    return None if op.kernel is None else op.kernel.record.data.get(key)


def waits_inside(op: ResolvedOp) -> bool:
    """Whether the kernel waits for its predecessors itself."""
    return isinstance(_entry(op, EARLY_READS), ArrayAttr)


def triggers(op: ResolvedOp) -> bool:
    """Whether the kernel lets its successors start before it ends."""
    return _entry(op, TRIGGERS) == BoolAttr.from_bool(True)


def early_operands(op: ResolvedOp) -> Iterator[int]:
    """Numbers of the operands that the kernel reads before its wait."""
    entry = _entry(op, EARLY_READS)
    if isinstance(entry, ArrayAttr):
        for index in cast("ArrayAttr[Attribute]", entry).data:
            if isinstance(index, IntegerAttr) and index.value.data < len(op.ins):
                yield index.value.data


def early_roots(op: ResolvedOp) -> Iterator[Root]:
    """Binds and slots whose elements the kernel reads before its wait."""
    for index in early_operands(op):
        yield region_of(op.ins[index]).root


def may_start_early(op: ResolvedOp, source: ResolvedOp, written: Collection[Root]) -> bool:
    """Whether a programmatic edge from `source` to `op` is legal and of use; `written`: what the program writes."""
    return waits_inside(op) and triggers(source) and early_conflict(op, written) is None


def early_conflict(op: ResolvedOp, written: Collection[Root]) -> Root | None:
    """The first bind or slot that `op` reads before its wait although the program writes it."""
    return next((root for root in early_roots(op) if isinstance(root, SlotOp) or root in written), None)
