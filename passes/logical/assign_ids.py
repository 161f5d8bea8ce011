"""``assign-ids``: every logical op, and every node of an ONNX graph, gets a unique id and stands for itself.

The id comes from an explicit ``loc("name")``, else from the SSA name, else it is the op and an ordinal
(``matmul0``); that of a node is its name. Ops that have an id keep it, so running the pass twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, NameLoc
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from aicf.dialects.logical import LogicalOp
from aicf.dialects.onnx import NodeOp
from aicf.passes.onnx.names import node_id
from aicf.passes.support.identity import IdTable, invalid, op_id, set_identity, sources
from aicf.passes.support.works_on import MODELS


@dataclass(frozen=True)
class AssignIdsPass(ModulePass):
    """Gives ``aicf.id`` and ``aicf.src`` to every logical op that has none; two ops with the same id are an error."""

    name = "assign-ids"
    works_on = MODELS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        _check_unique(op)
        ids = IdTable(op)
        ordinals: Counter[str] = Counter()
        for inner in op.walk():
            if isinstance(inner, LogicalOp | NodeOp) and op_id(inner) is None:
                wanted = node_id(inner) if isinstance(inner, NodeOp) else _wanted_id(inner, ordinals)
                identity = ids.fresh(wanted)
                set_identity(inner, identity, sources(inner) or [identity])


def _check_unique(module: ModuleOp) -> None:
    seen: set[str] = set()
    for op in module.walk():
        identity = op_id(op)
        if identity is None or not isinstance(op, LogicalOp | NodeOp):
            continue
        if identity in seen:
            raise invalid(op, "another op has this id too; change one aicf.id or remove it")
        seen.add(identity)


def _wanted_id(op: Operation, ordinals: Counter[str]) -> str:
    if isinstance(op.location, NameLoc):
        return op.location.desc.data
    if op.results[0].name_hint is not None:
        return op.results[0].name_hint
    kind = op.name.split(".", 1)[1]
    ordinals[kind] += 1
    return f"{kind}{ordinals[kind] - 1}"
