"""``logical-dce``: removes pure ops that no result depends on, one sweep backward per block."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from aicf.passes.support.identity import op_id
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LogicalDcePass(ModulePass):
    """Erases unused pure ops; the ledger keeps the ids of those that had one."""

    name = "logical-dce"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        removed = [identity for block in list(op.walk_blocks()) for identity in _sweep(block)]
        if removed:
            record_decision(op, self.name, removed, "removed", "no result depends on it")


def _sweep(block: Block) -> list[str]:
    """Erase the dead ops of a block, users before definitions, and give their ids in program order."""
    removed: list[str] = []
    op = block.last_op
    while op is not None:
        previous = op.prev_op
        if op.results and op.has_trait(Pure) and all(result.first_use is None for result in op.results):
            identity = op_id(op)
            if identity is not None:
                removed.append(identity)
            Rewriter.erase_op(op)
        op = previous
    return removed[::-1]
