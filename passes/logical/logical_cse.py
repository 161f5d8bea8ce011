"""``logical-cse``: ops that compute the same become one, which stands for all of them.

Two logical ops compute the same when kind, operands, properties and result type are equal; ``aicf.*``
attributes, names and locations do not count. The first in the text stays.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import Commutative

from aicf.dialects.logical import LogicalOp
from aicf.passes.support.identity import merge_sources, op_id
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LogicalCsePass(ModulePass):
    """Merges equal logical ops of a block; the survivor takes the sources, the ledger keeps what merged."""

    name = "logical-cse"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in list(op.walk_blocks()):
            for kept, duplicates in _equal_ops(block):
                _merge(op, kept, duplicates)


def _equal_ops(block: Block) -> list[tuple[LogicalOp, list[LogicalOp]]]:
    """Ops with the later ones that compute the same, given that earlier groups are merged."""
    groups: dict[Hashable, tuple[LogicalOp, list[LogicalOp]]] = {}
    leader: dict[int, int] = {}
    for op in block.ops:
        if not isinstance(op, LogicalOp):
            continue
        kept, duplicates = groups.setdefault(_key(op, leader), (op, []))
        if kept is not op:
            leader[id(op.result)] = id(kept.result)
            duplicates.append(op)
    return [group for group in groups.values() if group[1]]


def _key(op: LogicalOp, leader: dict[int, int]) -> Hashable:
    operands = [leader.get(id(operand), id(operand)) for operand in op.operands]
    if op.has_trait(Commutative):
        operands.sort()
    attributes = frozenset(item for item in op.attributes.items() if not item[0].startswith("aicf."))
    return type(op), tuple(operands), frozenset(op.properties.items()), op.result.type, attributes


def _merge(module: ModuleOp, kept: LogicalOp, duplicates: Sequence[LogicalOp]) -> None:
    merge_sources(kept, *duplicates)
    merged = [identity for op in duplicates if (identity := op_id(op)) is not None]
    if merged:
        record_decision(
            module, LogicalCsePass.name, merged, f"merged into {op_id(kept)}", "they compute the same"
        )
    for duplicate in duplicates:
        duplicate.result.replace_all_uses_with(kept.result)
        Rewriter.erase_op(duplicate)
