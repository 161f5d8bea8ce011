"""How the boundary is bound: directly, at which alignment, or staged where a kernel embeds an address.

A captured library call embeds addresses. What it reads or writes at the boundary lies in memory of ours, and the
runtime copies when the caller's array comes or goes; every other bind uses the caller's address, aligned as the
backend's kernels need it.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64

from aicf.backends.base import BoundaryBackend
from aicf.backends.registry import get_backend
from aicf.dialects.emit import BindOp, ProgramOp, ResolvedOp
from aicf.passes.analysis.accesses import region_of
from aicf.passes.support.ledger import record
from aicf.passes.support.work import target_of


def decide_bindings(module: ModuleOp, program: ProgramOp, pass_name: str) -> None:
    """Stages every input and output of `program` that an instruction needs at a fixed address, with its reason; states
    the alignment of the others, where the target's backend asks for one."""
    readers: dict[BindOp, list[ResolvedOp]] = {}
    for op in program.instructions:
        for value in op.fixed_operands:
            root = region_of(value).root
            if isinstance(root, BindOp) and root.role.data in ("input", "output"):
                readers.setdefault(root, []).append(op)
    for bind, ops in readers.items():
        _stage(module, bind, ops, pass_name)
    backend = get_backend(target_of(module).backend.data)
    if isinstance(backend, BoundaryBackend):
        for bind in program.binds:
            if bind.role.data in ("input", "output") and bind not in readers:
                bind.properties["align"] = IntegerAttr(backend.bind_align, i64)


def _stage(module: ModuleOp, bind: BindOp, ops: list[ResolvedOp], pass_name: str) -> None:
    bind.properties["binding"] = StringAttr("staged")
    names = [*dict.fromkeys(op.instruction.data for op in ops), bind.bind_name.data]
    kernels = sorted({op.kernel.kernel.data for op in ops if op.kernel is not None})
    record(
        module,
        pass_name,
        names,
        f"{bind.role.data} '{bind.bind_name.data}' is staged",
        f"{', '.join(kernels)} embeds its address when the graph is captured",
        {"direct": "the caller's address may differ at every replay"},
    )
