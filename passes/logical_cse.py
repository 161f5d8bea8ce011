"""``logical-cse``: ops that compute the same become one, which stands for all of them.

Two logical ops compute the same when kind, operands, properties and result type are equal; ``aicf.*``
attributes, names and locations do not count. The first in the text stays.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import Commutative

from aicf.dialects.logical import LogicalOp
from aicf.passes.support.identity import merge_sources, op_id
from aicf.passes.support.ledger import record


@dataclass(frozen=True)
class LogicalCsePass(ModulePass):
    """Merges equal logical ops of a block; the survivor takes the sources, the ledger keeps what merged."""

    name = "logical-cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in list(op.walk_blocks()):
            for kept, duplicate in _equal_ops(block):
                _merge(op, kept, duplicate)


def _equal_ops(block: Block) -> list[tuple[LogicalOp, LogicalOp]]:
    """Pairs of an op and a later one that computes the same, given that earlier pairs are merged."""
    first: dict[Hashable, LogicalOp] = {}
    leader: dict[int, int] = {}
    pairs: list[tuple[LogicalOp, LogicalOp]] = []
    for op in block.ops:
        if not isinstance(op, LogicalOp):
            continue
        key = _key(op, leader)
        kept = first.setdefault(key, op)
        if kept is not op:
            leader[id(op.result)] = id(kept.result)
            pairs.append((kept, op))
    return pairs


def _key(op: LogicalOp, leader: dict[int, int]) -> Hashable:
    operands = [leader.get(id(operand), id(operand)) for operand in op.operands]
    if op.has_trait(Commutative):
        operands.sort()
    attributes = frozenset(item for item in op.attributes.items() if not item[0].startswith("aicf."))
    return type(op), tuple(operands), frozenset(op.properties.items()), op.result.type, attributes


def _merge(module: ModuleOp, kept: LogicalOp, duplicate: LogicalOp) -> None:
    merge_sources(kept, duplicate)
    duplicate.result.replace_all_uses_with(kept.result)
    identity, kept_identity = op_id(duplicate), op_id(kept)
    if identity is not None:
        choice = f"merged into {kept_identity}"
        record(module, LogicalCsePass.name, [identity], choice, "both compute the same")
    Rewriter.erase_op(duplicate)
