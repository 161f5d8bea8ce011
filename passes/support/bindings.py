"""Where the boundary is staged: inputs and outputs whose address a kernel cannot take anew at every replay.

A TMA descriptor or a captured library call embeds addresses. What it reads or writes at the boundary lies in memory of
ours, and the runtime copies when the caller's array comes or goes; every other bind uses the caller's address.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, SSAValue

from aicf.dialects.emit import BindOp, ProgramOp, ResolvedOp
from aicf.passes.analysis.accesses import region_of
from aicf.passes.support.ledger import record

FIXED_ADDRESSES = "fixed_addresses"
"""Entry of a kernel record: numbers of the operands, ins before outs, whose address is embedded."""


def stage_fixed_addresses(module: ModuleOp, program: ProgramOp, pass_name: str) -> None:
    """Stages every input and output of `program` that an instruction needs at a fixed address, with its reason."""
    readers: dict[BindOp, list[ResolvedOp]] = {}
    for op in program.instructions:
        for value in _fixed_operands(op):
            root = region_of(value).root
            if isinstance(root, BindOp) and root.role.data in ("input", "output"):
                readers.setdefault(root, []).append(op)
    for bind, ops in readers.items():
        bind.properties["binding"] = StringAttr("staged")
        names = list(dict.fromkeys(op.instruction.data for op in ops))
        kernels = sorted({op.kernel.kernel.data for op in ops if op.kernel is not None})
        record(
            module,
            pass_name,
            names,
            f"{bind.role.data} '{bind.bind_name.data}' is staged",
            f"{', '.join(kernels)} embeds its address when the graph is captured",
            {"direct": "the caller's address may differ at every replay"},
        )


def _fixed_operands(op: ResolvedOp) -> list[SSAValue]:
    entry = None if op.kernel is None else op.kernel.record.data.get(FIXED_ADDRESSES)
    if not isinstance(entry, ArrayAttr):
        return []
    operands = [*op.ins, *op.outs]
    places = [p.value.data for p in cast("ArrayAttr[Attribute]", entry).data if isinstance(p, IntegerAttr)]
    return [operands[place] for place in places if place < len(operands)]
