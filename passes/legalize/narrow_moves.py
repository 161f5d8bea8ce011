"""`narrow-moves`: what moves elements moves them before a cast makes them wider, not after."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.traits import Moved
from aicf.dialects.types import byte_count, is_tensor, tensor, tensor_info
from aicf.passes.support.identity import Expansion, IdTable, op_id
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import WorksOn


@dataclass(frozen=True)
class NarrowMovesPass(ModulePass):
    """Turns a flip or a gather of a cast to wider elements into a cast of the flip or gather.

    Loops read what is moved by computed indices, so it has to be in memory: the wide elements would be written there
    and read again. Of the narrow ones most are there already, and the cast is an op of the loops. Values are the same.
    The cast stays for its other users, if there are any.
    """

    name = "narrow-moves"
    works_on = WorksOn(("logical.cast",))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids = IdTable(op)
        for function in functions(op):
            for inner in list(function.body.block.ops):  # groups that are formed stay as they are
                if inner.has_trait(Moved) and (cast := _widening(inner.operands[0])) is not None:
                    _narrow(op, inner, cast, ids)


def _widening(value: SSAValue) -> logical.CastOp | None:
    """The cast that gives the value, if it makes elements wider."""
    cast = value.owner
    if not isinstance(cast, logical.CastOp):
        return None
    return cast if byte_count(cast.result.type) > byte_count(cast.operand.type) else None


def _narrow(module: ModuleOp, move: Operation, cast: logical.CastOp, ids: IdTable) -> None:
    result = move.results[0].type
    assert is_tensor(result)
    element = tensor_info(cast.operand.type).element
    expansion = Expansion(PatternRewriter(move), move, ids)
    narrow = type(move).create(
        operands=[cast.operand, *move.operands[1:]],
        result_types=[tensor(tensor_info(result).sizes, element)],
        properties=dict(move.properties),
    )
    wide = logical.CastOp(expansion.add(narrow, "narrow"), tensor_info(result).element)
    expansion.finish([expansion.add(wide, "")])
    record_decision(
        module,
        NarrowMovesPass.name,
        [identity for op in (wide, cast) if (identity := op_id(op)) is not None],
        "moved before the cast",
        "what is moved is read from memory, where narrow elements take less room and often are already",
    )
    if cast.result.first_use is None:
        cast.detach()
        cast.erase()
