"""`generate-kernels`: writes the scalar program of each group whose kernel is generated, or has an epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.passes import ModulePass

from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_kernels import KernelOp
from aicf.passes.support.ledger import record
from aicf.passes.support.work import work_of_group


@dataclass(frozen=True)
class GenerateKernelsPass(ModulePass):
    """Derives an `emit.kernel` from the body of each group that has a kernel record and needs code, and links it.

    The body stays authoritative: `verify-emit` derives the code again and compares.
    """

    name = "generate-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in list(op.body.block.ops):
            if not isinstance(function, func.FuncOp) or function.is_declaration:
                continue
            for group in function.body.block.ops:
                if isinstance(group, GroupOp) and group.kernel is not None and group.code is None:
                    _generate(op, function, group)


def _generate(module: ModuleOp, function: func.FuncOp, group: GroupOp) -> None:
    code = work_of_group(group).work.code
    if code is None:
        return
    module.body.block.insert_op_before(code, function)
    group.properties["code"] = SymbolRefAttr(code.sym_name)
    record(module, GenerateKernelsPass.name, [group.id.data], code.sym_name.data, _describe(code))


def _describe(code: KernelOp) -> str:
    sweeps = len(code.phases)
    space = " x ".join(str(size) for size in code.parallel_sizes) or "a scalar"
    reduced = " x ".join(str(size) for size in code.reduce_sizes)
    kept = sum(1 for phase in code.phases for _ in phase.results)
    parts = [f"{sweeps} phase{'s' if sweeps > 1 else ''} over {space}"]
    if reduced:
        parts.append(f"reducing {reduced}")
    if kept:
        parts.append(f"{kept} value{'s' if kept > 1 else ''} kept between phases")
    return ", ".join(parts)
