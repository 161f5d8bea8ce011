"""Completing instructions that were written by hand: bodies from the kind table, and what a chosen kernel asks for.

Which kernel runs an instruction is decided in `select-kernels`; here the decision becomes part of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import (
    DenseArrayBase,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    SymbolRefAttr,
    i32,
    i64,
)
from xdsl.ir import Operation, Region, SSAValue

from aicf.backends.common.workload import Workload
from aicf.dialects.emit import (
    PHASES,
    PREPARE,
    BindOp,
    BodyOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    buffer_of,
    symbols,
)
from aicf.dialects.emit_constraints import most_workspace
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr, i64_pairs
from aicf.passes.analysis.accesses import region_of
from aicf.passes.analysis.liveness import ARENA_ALIGN, aligned
from aicf.passes.bodies.views import View
from aicf.passes.bodies.workload import (
    GroupWorkload,
    body_symbol,
    code_symbol,
    prologue_symbol,
    symbol_name,
    workload_of_instruction,
)
from aicf.passes.emit.decide_inplace import may_alias_pairs
from aicf.passes.emit.records import take_apart
from aicf.passes.emit.weight_packing import Packing, Prepare, drop_prepared_params, tensor_of
from aicf.passes.kernels.kind_definitions import NoBody, Request, kind_body
from aicf.passes.support.identity import invalid, value_hint
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of
from aicf.passes.verify.verify_emit import Known, verify_meaning


def fresh_symbol(wanted: str, program: ProgramOp, taken: Mapping[str, Operation]) -> str:
    """`wanted`; where the module has that symbol, the same after the program's name, repeated as needed."""
    while wanted in taken:
        wanted = f"{program.sym_name.data}.{wanted}"
    return wanted


def instruction_work(
    program: ProgramOp, op: ResolvedOp, table: Mapping[str, Operation], may_prepare: bool
) -> GroupWorkload:
    """The work of an instruction that has a body.

    Raises:
        InvalidIR: kind, attributes, buffers and body contradict each other.
    """
    verify_meaning(op, table, Known())
    assert op.body is not None
    body = table[symbol_name(op.body)]
    assert isinstance(body, BodyOp)
    code = fresh_symbol(code_symbol(op.instruction.data), program, table)
    prologue = fresh_symbol(prologue_symbol(op.instruction.data), program, table)
    return workload_of_instruction(op, body.body.block, code, prologue, may_prepare)


class Filler:
    """Completes the instructions of one module in one pass."""

    def __init__(self, module: ModuleOp, target: TargetAttr, pass_name: str):
        self.module = module
        self.pass_name = pass_name
        self.table = symbols(module)
        self.prepare = Prepare(module, target, pass_name)

    # What the instruction says

    def give_body(self, program: ProgramOp, op: ResolvedOp) -> None:
        """Adds the body of the instruction's kind if it states none.

        Raises:
            InvalidIR: its kind does not say what it computes on its buffers.
        """
        if op.body is not None:
            return
        op.verify()
        symbol = fresh_symbol(body_symbol(op.instruction.data), program, self.table)
        request = Request(
            symbol.removesuffix(body_symbol("")),
            tuple(source.data for source in op.src),
            op.kind.data,
            op.attrs.data,
            tuple(tensor_of(value.type) for value in op.ins),
            tuple(tensor_of(value.type) for value in op.outs),
        )
        try:
            block = kind_body(request)
        except NoBody as reason:
            name = op.instruction.data
            raise invalid(op, f"instruction '{name}' has no body: {reason}; give body(@symbol)") from reason
        for argument, value in zip(block.args, op.ins, strict=True):
            argument.name_hint = value.name_hint
        self._add_body(program, op, BodyOp(symbol, Region(block)))

    def _add_body(self, program: ProgramOp, op: ResolvedOp, body: BodyOp) -> None:
        symbol = body.sym_name.data
        self.module.body.block.insert_op_before(body, program)
        self.table[symbol] = body
        op.properties["body"] = SymbolRefAttr(symbol)
        because = f"the kind table's body of {op.kind.data}"
        record_decision(self.module, self.pass_name, [op.instruction.data], f"body @{symbol}", because)

    # What a kernel may be

    def work(self, program: ProgramOp, op: ResolvedOp) -> GroupWorkload:
        """What a kernel is asked to run.

        Raises:
            InvalidIR: the instruction contradicts its body, or reads a prepared layout that only a record explains.
        """
        for index, value in enumerate(op.ins):
            if (layout := buffer_of(value).get_layout()) is not None:
                raise invalid(
                    op,
                    f"instruction '{op.instruction.data}': operand {index} is prepared as '{layout.layout.data}', "
                    "but no kernel record says for which kernel; give kernel(...), or bind the parameter itself",
                )
        allowed = execution_of(self.module).prepared_weights
        may_prepare = allowed and self.prepare.is_open and program.sym_name.data != PREPARE
        return instruction_work(program, op, self.table, may_prepare)

    def refuse_constrained(self, op: ResolvedOp) -> Callable[[KernelAttr], str | None]:
        """Refuses kernels that do not permit the overlaps that the instruction has or states, or take more workspace
        than it allows."""
        overlaps, most = self._refuse_overlap(op), most_workspace(op.constraints.data)

        def reason(kernel: KernelAttr) -> str | None:
            needed = take_apart(kernel).workspace_bytes
            if most is not None and needed > most:
                return f"it needs {needed} bytes of workspace, max_workspace allows {most}"
            return overlaps(kernel)

        return reason

    def _refuse_overlap(self, op: ResolvedOp) -> Callable[[KernelAttr], str | None]:
        """Refuses kernels that do not permit the overlaps that the instruction has or states."""
        regions = [region_of(value) for value in op.ins]
        needed = set(may_alias_pairs(op))
        for number, out in enumerate(op.outs):
            needed |= {
                (number, index) for index, region in enumerate(regions) if region_of(out).overlaps(region)
            }

        def reason(kernel: KernelAttr) -> str | None:
            missing = sorted(needed - set(i64_pairs(kernel.record.data.get("may_alias")) or ()))
            return f"result {missing[0][0]} may not overwrite operand {missing[0][1]}" if missing else None

        return reason

    # What the kernel asks for

    def give_kernel(
        self,
        program: ProgramOp,
        op: ResolvedOp,
        work: Workload,
        kernel: KernelAttr,
        cost: FloatAttr[Float64Type],
    ) -> None:
        """Writes the record into the instruction, and prepared weights and workspace into the program."""
        parts = take_apart(kernel)
        op.properties["kernel"] = parts.kernel
        op.properties["constraints"] = DictionaryAttr({**parts.constraints, **op.constraints.data})
        op.properties["expected_us"] = cost
        ins = list(op.ins)
        for index, layout in enumerate(parts.layouts):
            if layout is not None:
                ins[index] = self._prepared(program, op, work, kernel, index, layout)
        ws = self._workspace(program, op, parts.workspace(), parts.workspace_bytes)
        outs = list(op.outs)
        op.operands = [*ins, *outs, *ws]
        op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [len(ins), len(outs), len(ws)])

    def _prepared(
        self,
        program: ProgramOp,
        op: ResolvedOp,
        work: Workload,
        kernel: KernelAttr,
        index: int,
        layout: LayoutAttr,
    ) -> SSAValue:
        param = op.ins[index].owner
        assert isinstance(param, BindOp)
        view = View.whole(buffer_of(param.buffer).get_shape())
        src = tuple(source.data for source in op.src)
        name, type_ = param.bind_name.data, tensor_of(param.buffer.type)
        made = self.prepare.bind_for(Packing(name, type_, view, layout, work, kernel, index, src))
        known = {bind.bind_name.data: bind for bind in program.binds if bind.role.data == "derived"}
        if (bind := known.get(made.bind_name.data)) is None:
            bind = BindOp("derived", made.bind_name.data, buffer_of(made.buffer))
            bind.buffer.name_hint = value_hint(bind.bind_name.data)
            program.body.block.insert_op_after(bind, program.binds[-1])
        return bind.buffer

    def _workspace(
        self, program: ProgramOp, op: ResolvedOp, slot: SlotOp | None, size: int
    ) -> Sequence[SSAValue]:
        stated = sum(buffer_of(value).span_bytes for value in op.ws)
        if stated and stated < size:
            name = op.instruction.data
            raise invalid(
                op, f"instruction '{name}': its kernel needs {size} bytes of workspace, ws has {stated}"
            )
        if op.ws or slot is None:
            return list(op.ws)
        program.body.block.insert_op_before(slot, op)
        if program.phase_index >= PHASES.index("planned"):
            _place_at_end(program, slot)
        return [slot.buffer]

    def finish(self, open_programs: Sequence[ProgramOp]) -> None:
        """Adds `@prepare` if a weight is prepared, and drops the binds of parameters that only it reads."""
        self.prepare.finish()
        for program in open_programs:
            if program is not self.prepare.program:
                drop_prepared_params(program, self.prepare)


def _place_at_end(program: ProgramOp, slot: SlotOp) -> None:
    """Gives the slot an offset in a program whose memory is planned: after all slots that have one."""
    start = aligned(0 if program.arena_bytes is None else program.arena_bytes.value.data)
    size = aligned(buffer_of(slot.buffer).span_bytes)
    for key, value in (("offset", start), ("size", size), ("align", ARENA_ALIGN)):
        slot.properties[key] = IntegerAttr(value, i64)
    program.properties["arena_bytes"] = IntegerAttr(start + size, i64)
