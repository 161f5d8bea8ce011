"""`verify-emit`: what emit programs must hold across ops: fields of their phase, bodies that say what they claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from aicf.backends.common.record import RecordError
from aicf.backends.common.workload import Workload
from aicf.backends.registry import get_kernels, why_no_kernel
from aicf.dialects.emit import PHASES, KernelOp, ProgramOp, ResolvedOp, SlotOp, buffer_of, symbols
from aicf.dialects.emit_constraints import most_workspace
from aicf.dialects.emit_types import BufferType, TargetAttr, i64_pairs
from aicf.errors import InvalidIR, PlanError
from aicf.passes.analysis.accesses import Region, region_of
from aicf.passes.analysis.alignment import aligned_operands
from aicf.passes.analysis.programmatic_launch import early_operands
from aicf.passes.bodies.kernel_code import NoCode, derive_code, derive_prologue
from aicf.passes.bodies.kinds import Attrs, derive_kind
from aicf.passes.bodies.structure import (
    Structure,
    structure_of_body,
    structure_of_code,
    structure_of_workload,
)
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.workload import (
    TARGET_ATTR,
    body_of,
    buffer_info,
    descriptor,
    may_be_rounded,
    symbol_name,
)
from aicf.passes.emit.decide_inplace import may_alias_pairs
from aicf.passes.emit.records import RecordParts, kernel_record, take_apart
from aicf.passes.emit.weight_packing import tensor_of
from aicf.passes.support.identity import invalid
from aicf.passes.support.policy import policy_of
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class VerifyEmitPass(ModulePass):
    """Checks every program; raises InvalidIR naming the instruction and its source.

    Fields that the phase fixes are there; symbols exist; kind, attributes and generated code are those of the body;
    results overlap operands only where the kernel permits it; operands are aligned and the workspace is bounded as
    the constraints say; kernels belong to the target, and run the instruction by
    their records; slots lie in the arena. With `meaning=false` bodies are not compared: nothing after `lower-to-emit`
    touches them.
    """

    name = "verify-emit"
    works_on = PROGRAMS

    meaning: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        table = symbols(op)
        target = op.attributes.get(TARGET_ATTR)
        known = Known(policy_of(op).tf32)
        for program in programs(op):
            _verify_ops(program)
            for instruction in program.instructions:
                _verify_fields(instruction, program)
                _verify_overlap(instruction)
                _verify_alignment(instruction, program)
                _verify_workspace(instruction)
                _verify_kernel(instruction, target)
                if self.meaning:
                    verify_meaning(instruction, table, known)
                _verify_record(instruction, table, target, known)
            _verify_memory(program)


@dataclass(frozen=True)
class Known:
    """What one run of the pass has found right: it holds for all that is alike.

    Args:
        tf32: Whether the policy lets products round f32 operands to TF32. A record alone does not.
        kinds: Kind and attributes of a body.
        codes: Bodies with a program that is their code, and what derives it.
        records: Work with a record by which a kernel runs it: what that asks for.
    """

    tf32: bool = False
    kinds: dict[Structure, tuple[str, Attrs]] = field(default_factory=dict[Structure, tuple[str, Attrs]])
    codes: set[Structure] = field(default_factory=set[Structure])
    records: dict[Structure, RecordParts] = field(default_factory=dict[Structure, RecordParts])


def _verify_ops(program: ProgramOp) -> None:
    for op in (program, *program.body.block.ops):
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            raise invalid(op, str(error)) from error


def _at_least(program: ProgramOp, phase: str) -> bool:
    return program.phase_index >= PHASES.index(phase)


_SOURCES = 4
"""Most ops of the model that a message names."""


def _named(op: ResolvedOp) -> str:
    sources = [source.data for source in op.src]
    more = f" and {len(sources) - _SOURCES} more" if len(sources) > _SOURCES else ""
    return f"instruction '{op.instruction.data}' (from {', '.join(sources[:_SOURCES])}{more})"


def _refused(op: ResolvedOp, message: str) -> InvalidIR:
    return invalid(op, f"{_named(op)}: {message}")


def _verify_fields(op: ResolvedOp, program: ProgramOp) -> None:
    if _at_least(program, "scheduled") and op.stream is None:
        raise invalid(
            op, f"{_named(op)} has no stream, but the program is {program.phase.data}; run schedule"
        )
    if _at_least(program, "final") and op.kernel is None:
        raise invalid(op, f"{_named(op)} has no kernel, but the program is final; run select-kernels")


def _verify_overlap(op: ResolvedOp) -> None:
    """Results may share bytes with operands only element by element and by permission, and never with each other.

    An instruction without a kernel has no permission yet; `select-kernels` takes one that gives it.
    """
    pairs = frozenset(may_alias_pairs(op))
    ins, written = _by_space(op.ins), _by_space([*op.outs, *op.ws])
    for number, out in enumerate(map(region_of, op.outs)):
        space, _ = out.address()
        if not _is_injective(out.type):
            raise _refused(
                op,
                f"result {number} has strides {list(out.type.get_strides())}, by which elements of it "
                "share an address; give it strides that keep them apart",
            )
        if any(other.overlaps(out) for index, other in written[space] if index > number):
            raise _refused(op, f"result {number} overlaps another result or the workspace")
        for index, source in ins.get(space, ()):
            if not out.overlaps(source):
                continue
            if op.kernel is not None and (number, index) not in pairs:
                raise _refused(
                    op,
                    f"result {number} overlaps operand {index}, which its kernel does not permit; "
                    "give the result a slot of its own",
                )
            if not _same_bytes(out, source):
                raise _refused(
                    op,
                    f"result {number} overlaps operand {index} with another element-to-address map",
                )
    for workspace in map(region_of, op.ws):
        if any(workspace.overlaps(source) for _, source in ins.get(workspace.address()[0], ())):
            raise _refused(op, "the workspace overlaps an operand")


def _verify_alignment(op: ResolvedOp, program: ProgramOp) -> None:
    """Operands that the instruction wants aligned can be, and are once memory is planned."""
    for operand in aligned_operands(op):
        what = f"operand {operand.number} must be aligned to {operand.align} bytes"
        if (why := operand.problem()) is not None:
            raise _refused(op, f"{what}, but {why}")
        if _at_least(program, "planned") and not operand.is_given():
            root = operand.region.root
            kind = "slot" if isinstance(root, SlotOp) else f"{root.role.data} '{root.bind_name.data}'"
            stated = 1 if root.align is None else root.align.value.data
            raise _refused(
                op,
                f"{what}, its {kind} states {stated}; write align({operand.align}), or run plan-memory again",
            )


def _verify_workspace(op: ResolvedOp) -> None:
    """The workspace is not larger than the instruction allows, whichever kernel it was for."""
    most = most_workspace(op.constraints.data)
    needed = sum(buffer_of(value).span_bytes for value in op.ws)
    if op.kernel is not None:
        needed = max(needed, take_apart(op.kernel).workspace_bytes)
    if most is not None and needed > most:
        raise _refused(
            op,
            f"its kernel and ws take {needed} bytes of workspace, max_workspace allows {most}; leave kernel(...) and "
            "ws out for select-kernels, or allow more",
        )


def _is_injective(type_: BufferType) -> bool:
    """Whether each element has an address of its own: every dim steps over all that those of smaller strides reach."""
    if type_.element_count == 0:
        return True
    reached = 0
    dims = zip(type_.get_shape(), type_.get_strides(), strict=True)
    for step, size in sorted((abs(step), size) for size, step in dims if size > 1):
        if step <= reached:
            return False
        reached += step * (size - 1)
    return True


def _by_space(values: Sequence[SSAValue]) -> dict[object, list[tuple[int, Region]]]:
    """Numbers and regions of values by the space they lie in: an update of many tensors has one for each of them."""
    found: dict[object, list[tuple[int, Region]]] = {}
    for number, value in enumerate(values):
        region = region_of(value)
        found.setdefault(region.address()[0], []).append((number, region))
    return found


def _same_bytes(out: Region, source: Region) -> bool:
    if out.same_elements(source):
        return True
    contiguous = out.type.is_contiguous and source.type.is_contiguous
    return (
        contiguous
        and out.address() == source.address()
        and out.type.element_count == source.type.element_count
    )


def _verify_kernel(op: ResolvedOp, target: Attribute | None) -> None:
    if op.kernel is None or not isinstance(target, TargetAttr):
        return
    known = get_kernels(target.backend.data)
    if op.kernel.kernel.data not in known:
        raise _refused(
            op,
            f"backend {why_no_kernel(target.backend.data, op.kernel.kernel.data)}",
        )


def _verify_record(
    op: ResolvedOp, table: Mapping[str, Operation], target: Attribute | None, known: Known
) -> None:
    """Asks the kernel whether it runs the instruction by its record, which may have been edited by hand."""
    if op.kernel is None or op.body is None or not isinstance(target, TargetAttr):
        return
    kernel = descriptor(op.kernel, target)
    work = _recorded_work(op, table, known.tf32)
    key = (op.kernel, *structure_of_workload(work), *map(structure_of_code, (work.code, work.prologue)))
    if (parts := known.records.get(key)) is None:
        reason = (
            f"it runs no {op.kind.data}" if op.kind.data not in kernel.kinds else kernel.legal(work, target)
        )
        try:
            if reason is not None:
                raise RecordError(reason)
            record = kernel.checked_record(work, op.kernel.record.data, target)
            parts = known.records[key] = take_apart(kernel_record(kernel, record))
        except PlanError as error:
            raise _refused(
                op,
                f"kernel '{kernel.id}' cannot run it as its record says: {error.message}; correct the "
                "record, or leave kernel(...) out for select-kernels",
            ) from error
    _verify_demands(op, work, parts)


def _verify_demands(op: ResolvedOp, work: Workload, parts: RecordParts) -> None:
    """Checks what a record asks of the program around its instruction: prepared operands, workspace, and that results
    overlap operands only where the kernel permits it."""
    for index, operand in enumerate(work.operands):
        if operand.layout != parts.layout_at(index):
            raise _refused(
                op,
                f"operand {index} lies in {operand.layout or 'plain memory'}, its kernel record asks for "
                f"{parts.layout_at(index) or 'plain memory'}; run lower-to-emit again",
            )
    workspace = sum(buffer_of(value).span_bytes for value in op.ws)
    if workspace < parts.workspace_bytes:
        raise _refused(
            op,
            f"its kernel needs {parts.workspace_bytes} bytes of workspace, ws has {workspace}; run "
            "lower-to-emit again",
        )
    permitted = i64_pairs(parts.constraints.get("may_alias")) or ()
    if beyond := sorted(set(may_alias_pairs(op)) - set(permitted)):
        raise _refused(
            op,
            f"may_alias lets result {beyond[0][0]} overwrite operand {beyond[0][1]}, which its kernel "
            f"does not permit; it permits {sorted(permitted) or 'none'}",
        )


def _recorded_work(op: ResolvedOp, table: Mapping[str, Operation], tf32: bool) -> Workload:
    """What the kernel is asked to run. An operand that the record reads early is taken to be constant: whether it is
    one, `verify-order` checks."""
    assert op.kernel is not None and op.body is not None
    body = body_of(op, table)
    if body is None:
        raise _refused(op, f"@{symbol_name(op.body)} is no emit.body")
    early = set(early_operands(op))
    operands = [
        buffer_info(value, "const" if index in early else "temp") for index, value in enumerate(op.ins)
    ]
    code, prologue = (
        None if reference is None else _kernel_named(op, reference, table)
        for reference in (op.code, op.prologue)
    )
    rounding = op.kernel.record.data.get("rounding")
    return Workload(
        op.instruction.data,
        op.kind.data,
        op.attrs.data,
        tuple(operands),
        tuple(buffer_info(value, "temp") for value in op.outs),
        body.body.block,
        code,
        prologue,
        rounding.data if isinstance(rounding, StringAttr) else "fused",
        tf32=tf32 and may_be_rounded(op.kind.data, operands),
    )


def verify_meaning(op: ResolvedOp, table: Mapping[str, Operation], known: Known) -> None:
    """Checks that body and code of an instruction exist, fit its buffers, and say what it states.

    Args:
        table: The module's symbols.
        known: What was found right before, by the same pass; gets what is found here.

    Raises:
        InvalidIR: they do not; an instruction without a body states nothing to compare.
    """
    body = body_of(op, table)
    if op.body is not None and body is None:
        raise _refused(op, f"@{symbol_name(op.body)} is no emit.body")
    codes = [(_kernel_named(op, reference, table), derive) for reference, derive in _derivations(op)]
    if body is None:
        return
    _verify_signature(op, body.body.block)
    structure = structure_of_body(body.body.block)
    if op.kind.data != "pack":
        if (kind := known.kinds.get(structure)) is None:
            kind = known.kinds[structure] = derive_kind(body.body.block)
        _verify_kind(op, *kind)
    for code, derive in codes:
        pair = (derive, structure, structure_of_code(code))
        if pair not in known.codes:
            _verify_code(op, body.body.block, code, derive)
            known.codes.add(pair)


_Derive = Callable[[Block, str], KernelOp | None]


def _derivations(op: ResolvedOp) -> list[tuple[SymbolRefAttr, _Derive]]:
    """The generated programs that an instruction names, each with what derives it from a body."""
    found: list[tuple[SymbolRefAttr | None, _Derive]] = [
        (op.code, derive_code),
        (op.prologue, derive_prologue),
    ]
    return [(reference, derive) for reference, derive in found if reference is not None]


def _kernel_named(op: ResolvedOp, reference: SymbolRefAttr, table: Mapping[str, Operation]) -> KernelOp:
    code = table.get(symbol_name(reference))
    if not isinstance(code, KernelOp):
        raise _refused(op, f"@{symbol_name(reference)} is no emit.kernel")
    return code


def _verify_signature(op: ResolvedOp, body: Block) -> None:
    wanted = [tensor_of(value.type) for value in (*op.ins, *op.outs)]
    given = [*body.arg_types, *(value.type for value in yielded(body))]
    if wanted != given:
        raise _refused(op, "its body is for other shapes or types than its buffers")


def _verify_kind(op: ResolvedOp, kind: str, attrs: Attrs) -> None:
    if (kind, dict(attrs)) != (op.kind.data, dict(op.attrs.data)):
        raise _refused(
            op,
            f"it says {op.kind.data} {op.attrs}, but its body @{_body_name(op)} is {kind} "
            f"{ {key: str(value) for key, value in attrs.items()} }; the body is authoritative",
        )


def _body_name(op: ResolvedOp) -> str:
    return "" if op.body is None else symbol_name(op.body)


def _verify_code(op: ResolvedOp, body: Block, code: KernelOp, derive: _Derive) -> None:
    try:
        derived = derive(body, code.sym_name.data)
    except NoCode as reason:
        raise _refused(op, f"its body has no generated code: {reason}") from reason
    if derived is None:
        raise _refused(op, "its body computes no left operand of a product in rows")
    if not derived.is_structurally_equivalent(code):
        raise _refused(op, f"@{code.sym_name.data} is not the code of its body; run generate-kernels again")


def _verify_memory(program: ProgramOp) -> None:
    if not _at_least(program, "planned"):
        return
    arena = program.arena_bytes
    if arena is None:
        raise InvalidIR(f"program @{program.sym_name.data} is {program.phase.data} but states no arena_bytes")
    for slot in program.slots:
        _verify_slot(slot, arena.value.data)


def _verify_slot(slot: SlotOp, arena: int) -> None:
    if slot.offset is None or slot.size is None or slot.align is None:
        raise invalid(slot, "a slot of a planned program needs offset, size and align; run plan-memory")
    assert isinstance(slot.buffer.type, BufferType)
    offset, size = slot.offset.value.data, slot.size.value.data
    if size < slot.buffer.type.span_bytes:
        raise invalid(slot, f"slot of {size} bytes holds a buffer of {slot.buffer.type.span_bytes}")
    if offset < 0 or offset + size > arena:
        raise invalid(slot, f"slot at {offset} of {size} bytes leaves the arena of {arena}")
    if offset % slot.align.value.data:
        raise invalid(slot, f"slot at {offset} is not aligned to {slot.align.value.data}")
