"""How the boundary is bound: directly, at which alignment, or staged where a kernel embeds an address.

A captured library call embeds addresses. What it reads or writes at the boundary lies in memory of ours, and the
runtime copies when the caller's array comes or goes; every other bind uses the caller's address, aligned as the
backend's kernels need it.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64

from aicf.backends.base import Backend, BoundaryBackend
from aicf.backends.registry import get_backend
from aicf.dialects.emit import BindOp, ProgramOp, ResolvedOp
from aicf.errors import PolicyError
from aicf.passes.analysis.accesses import region_of
from aicf.passes.bodies.workload import target_of
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of


def decide_bindings(module: ModuleOp, program: ProgramOp, pass_name: str) -> None:
    """Stages every input and output of `program` that an instruction needs at a fixed address, with its reason; states
    the alignment of the others, where the target's backend asks for one."""
    readers: dict[BindOp, list[ResolvedOp]] = {}
    for op in program.instructions:
        for value in op.fixed_operands:
            root = region_of(value).root
            if isinstance(root, BindOp) and root.role.data in ("input", "output"):
                readers.setdefault(root, []).append(op)
    wanted = execution_of(module).bindings
    for bind, ops in readers.items():
        if wanted.get(bind.bind_name.data) == "direct":
            name, instruction = bind.bind_name.data, ops[0].instruction.data
            raise PolicyError(
                f"bindings.{name}: the kernel of '{instruction}' embeds its address: write staged, or forbid the kernel"
            )
        _stage(module, bind, ops, pass_name)
    backend = get_backend(target_of(module).backend.data)
    for bind in program.binds:
        if bind.role.data not in ("input", "output") or bind in readers:
            continue
        if wanted.get(bind.bind_name.data) == "staged":
            _stage_as_wanted(module, bind, backend, pass_name)
        elif isinstance(backend, BoundaryBackend):
            bind.properties["align"] = IntegerAttr(backend.bind_align, i64)


def _stage_as_wanted(module: ModuleOp, bind: BindOp, backend: Backend, pass_name: str) -> None:
    name = bind.bind_name.data
    if not isinstance(backend, BoundaryBackend):
        raise PolicyError(
            f"bindings.{name}: {backend.name} uses callers' memory where it is; write direct, or drop it"
        )
    bind.properties["binding"] = StringAttr("staged")
    record_decision(module, pass_name, [name], f"{bind.role.data} '{name}' is staged", "the policy wants it")


def _stage(module: ModuleOp, bind: BindOp, ops: list[ResolvedOp], pass_name: str) -> None:
    bind.properties["binding"] = StringAttr("staged")
    names = [*dict.fromkeys(op.instruction.data for op in ops), bind.bind_name.data]
    kernels = sorted({op.kernel.kernel.data for op in ops if op.kernel is not None})
    record_decision(
        module,
        pass_name,
        names,
        f"{bind.role.data} '{bind.bind_name.data}' is staged",
        f"{', '.join(kernels)} embeds its address when the graph is captured",
        {"direct": "the caller's address may differ at every replay"},
    )
