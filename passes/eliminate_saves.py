"""`eliminate-saves`: where the backward part of a training step takes what it reads of the forward part from."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.types import byte_count
from aicf.passes.support.identity import op_id, replace_with_value
from aicf.passes.support.ledger import record


@dataclass(frozen=True)
class EliminateSavesPass(ModulePass):
    """Replaces every `logical.save` by the value itself, whose buffer lives until the last reader of it."""

    name = "eliminate-saves"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for save in [inner for inner in op.walk() if isinstance(inner, logical.SaveOp)]:
            _record_keep(op, save)
            replace_with_value(PatternRewriter(save), save, save.operand)


def _record_keep(module: ModuleOp, save: logical.SaveOp) -> None:
    identity = op_id(save)
    if identity is not None:
        cost = {"bytes": IntegerAttr(byte_count(save.operand.type), i64)}
        record(module, EliminateSavesPass.name, [identity], "keep", "it is in memory anyway", {}, cost)
