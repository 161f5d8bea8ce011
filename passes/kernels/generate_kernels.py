"""`generate-kernels`: writes the scalar program of what has a generated kernel, or a kernel with an epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from aicf.backends.common.workload import Workload
from aicf.dialects.emit import GroupOp, ProgramOp, ResolvedOp, symbols
from aicf.dialects.emit_kernels import KernelOp
from aicf.passes.bodies.workload import workload_of
from aicf.passes.kernels.instructions import instruction_work
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import until_phase


@dataclass(frozen=True)
class GenerateKernelsPass(ModulePass):
    """Derives an `emit.kernel` from the body of what has a kernel record and needs code, and links it: groups, and
    instructions of programs that are not final.

    The body stays authoritative: `verify-emit` derives the code again and compares.
    """

    name = "generate-kernels"
    works_on = until_phase("final", "emit.group")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for group in function.body.block.ops:
                if isinstance(group, GroupOp) and group.kernel is not None and _is_open(group):
                    _generate(op, function, group, workload_of(group).work)
        table = symbols(op)
        for program in programs(op):
            if program.phase.data != "final":
                _generate_for(op, program, table)


def _generate_for(module: ModuleOp, program: ProgramOp, table: dict[str, Operation]) -> None:
    for instruction in program.instructions:
        if instruction.kernel is None or instruction.body is None or not _is_open(instruction):
            continue
        work = instruction_work(program, instruction, table, True).work
        for made in _generate(module, program, instruction, work):
            table[made.sym_name.data] = made


def _is_open(user: GroupOp | ResolvedOp) -> bool:
    """Whether a scalar program may be missing."""
    return user.code is None or user.prologue is None


def _generate(
    module: ModuleOp, before: Operation, user: GroupOp | ResolvedOp, work: Workload
) -> list[KernelOp]:
    """Adds the scalar programs of the work before the op `before`, and links them."""
    made: list[KernelOp] = []
    for field, code in (("prologue", work.prologue), ("code", work.code)):
        if code is not None and field not in user.properties:
            module.body.block.insert_op_before(code, before)
            user.properties[field] = SymbolRefAttr(code.sym_name)
            record_decision(module, GenerateKernelsPass.name, [work.id], code.sym_name.data, _describe(code))
            made.append(code)
    return made


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
