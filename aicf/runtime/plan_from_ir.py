"""Reads final emit IR: graphs, capture plans, and the code units that a backend compiles.

A pure function of the module. It decides nothing: whatever is undecided or cannot be captured is a blocker,
and all blockers of a program come in one PlanError, each with its fix. Whether the decisions are *right*
(overlaps, missing edges) is checked by `verify-emit` and `verify-order`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import (
    DictionaryAttr,
    ModuleOp,
    SymbolRefAttr,
)
from xdsl.ir import Operation, SSAValue

from aicf.backends.base import BoundaryBackend, BufferRef, CodeUnit
from aicf.backends.base import Launch as CodeLaunch
from aicf.backends.common.kernel import AnyKernel
from aicf.backends.native import ProgramNeeds
from aicf.backends.registry import get_backend, get_kernels, why_no_kernel
from aicf.dialects.body_text import body_text
from aicf.dialects.emit import (
    PREPARE,
    BindOp,
    BodyOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    buffer_of,
    root_buffer,
    symbols,
)
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.host_formulas import FORMULA, NEXT, OF
from aicf.dialects.json_values import json_value
from aicf.dialects.logical import DispatchOp
from aicf.dialects.types import dense_array, element_of
from aicf.errors import PlanError
from aicf.runtime.capture_plan import ARENA, CapturePlan, Launch, ModulePlan, OperandRef, Row, contradictions
from aicf.runtime.graph import Bind, Counted, Edge, Graph, HostValue, Node

TARGET = "aicf.target"
"""Module attribute that says what the module is compiled for."""

_BASE_ALIGN = 64
"""Bytes; the arena starts on a cache line even if no slot asks for it."""


def target_of(module: ModuleOp) -> TargetAttr:
    """The target of `module`. Raises PlanError if it has none."""
    target = module.attributes.get(TARGET)
    if not isinstance(target, TargetAttr):
        raise PlanError(
            'the module has no target; run set-target, for instance set-target{target="cpu:x86-64-v3"}'
        )
    return target


def programs_of(module: ModuleOp) -> tuple[ProgramOp, ...]:
    """All emit programs of `module`, `@prepare` included, in text order."""
    return tuple(op for op in module.body.block.ops if isinstance(op, ProgramOp))


def read_module(module: ModuleOp) -> ModulePlan:
    """The plans of all programs of `module`, with the dispatch table.

    Raises:
        PlanError: a program is not ready; the message lists every blocker of every program with its fix.
    """
    target = target_of(module)
    programs = programs_of(module)
    if blockers := [line for program in programs for line in find_blockers(module, program)]:
        listing = "; ".join(f"({number}) {line}" for number, line in enumerate(blockers, 1))
        raise PlanError(f"{len(blockers)} blocker{'s' if len(blockers) > 1 else ''} to capture: {listing}")
    plans = {program.sym_name.data: read_program(program) for program in programs}
    prepare = plans.pop(PREPARE, None)
    dims, rows = _read_dispatch(module, list(plans))
    plan = ModulePlan(
        backend=target.backend.data,
        arch=target.arch.data,
        threads=target.threads,
        dims=dims,
        rows=rows,
        programs=tuple(plans.values()),
        prepare=prepare,
    )
    for problem in contradictions(plan):
        raise PlanError(problem)
    return plan


def read_graph(program: ProgramOp) -> Graph:
    """Operations, order and boundary of `program`, which may be in any phase."""
    module = program.parent_op()
    bodies: Mapping[str, Operation] = {}
    if isinstance(module, ModuleOp) and program.sym_name.data == PREPARE:
        bodies = symbols(module)
    return Graph(
        name=program.sym_name.data,
        binds=tuple(_read_bind(bind) for bind in program.binds),
        nodes=tuple(_read_node(instruction, bodies) for instruction in program.instructions),
    )


def read_program(program: ProgramOp) -> CapturePlan:
    """The plan of one program that has no blockers."""
    addresses = _Addresses.of(program)
    return CapturePlan(
        entry=entry_symbol(program),
        graph=read_graph(program),
        launches=tuple(_read_launch(instruction, addresses) for instruction in program.instructions),
        arena_bytes=0 if program.arena_bytes is None else program.arena_bytes.value.data,
        arena_align=max(
            [_BASE_ALIGN, *(slot.align.value.data for slot in program.slots if slot.align is not None)]
        ),
    )


def code_units(module: ModuleOp) -> tuple[CodeUnit, ...]:
    """What the backend compiles: one unit per program. The module has no blockers (see `read_module`)."""
    table = symbols(module)
    return tuple(_code_unit(program, table) for program in programs_of(module))


def program_needs(module: ModuleOp) -> tuple[ProgramNeeds, ...]:
    """What the code of each program takes for granted, from the operands of its instructions."""
    threads = target_of(module).threads
    return tuple(
        ProgramNeeds(entry_symbol(program), threads, len(program.instructions), _reached_bytes(program))
        for program in programs_of(module)
    )


def _reached_bytes(program: ProgramOp) -> tuple[int, ...]:
    """How far instructions reach past each pointer of the table."""
    addresses = _Addresses.of(program)
    reached = [0] * (ARENA + 1 + len(program.binds))
    for instruction in program.instructions:
        for value in (*instruction.ins, *instruction.outs, *instruction.ws):
            base, offset = addresses.at[value]
            type_ = buffer_of(value)
            size = type_.reach[1] * type_.element_bytes if type_.get_layout() is None else type_.span_bytes
            reached[base] = max(reached[base], offset + size if size else 0)
    return tuple(reached)


def entry_symbol(program: ProgramOp) -> str:
    """Symbol of the native entry: the program's name in letters that every linker takes."""
    letters = (c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in program.sym_name.data)
    return "aicf_" + "".join(letters)


# Addresses


@dataclass(frozen=True)
class _Addresses:
    """Where each buffer of a program lies."""

    at: Mapping[SSAValue, tuple[int, int]]

    @staticmethod
    def of(program: ProgramOp) -> _Addresses:
        at: dict[SSAValue, tuple[int, int]] = {}
        for index, bind in enumerate(program.binds):
            at[bind.buffer] = (ARENA + 1 + index, 0)
        for op in program.body.block.ops:
            if isinstance(op, SlotOp):
                at[op.buffer] = (ARENA, 0 if op.offset is None else op.offset.value.data)
            elif isinstance(op, ViewOp):
                base, offset = at[op.source]
                at[op.buffer] = (base, offset + op.offset.value.data * buffer_of(op.source).element_bytes)
        return _Addresses(at)

    def operand(self, value: SSAValue) -> OperandRef:
        """The form for the plan."""
        ref = self.ref(value)
        layout = None if ref.layout is None else str(ref.layout)
        return OperandRef(ref.base, ref.offset, ref.shape, ref.strides, ref.dtype, layout)

    def ref(self, value: SSAValue) -> BufferRef:
        """The form for code generators."""
        base, offset = self.at[value]
        type_ = buffer_of(value)
        name = element_of(type_.element_type).name
        return BufferRef(base, offset, type_.get_shape(), type_.get_strides(), name, type_.get_layout())


# Reading ops


def _read_bind(op: BindOp) -> Bind:
    type_ = buffer_of(op.buffer)
    layout = type_.get_layout()
    return Bind(
        name=op.bind_name.data,
        role=op.role.data,
        shape=type_.get_shape(),
        strides=type_.get_strides(),
        dtype=element_of(type_.element_type).name,
        nbytes=max(type_.span_bytes, type_.element_count * type_.element_bytes)
        if layout
        else type_.span_bytes,
        binding=None if op.binding is None else op.binding.data,
        align=None if op.align is None else op.align.value.data,
        updated=op.updated is not None,
        layout=None if layout is None else str(layout),
        value=None if op.value is None else dense_array(op.value).tobytes().hex(),
        host=None if op.host is None else _read_host(op.host),
        counts=() if op.counts is None else _read_counts(op.counts),
    )


def _read_counts(counts: DictionaryAttr) -> tuple[Counted, ...]:
    axes = {name: json_value(axis) for name, axis in counts.data.items()}
    return tuple(Counted(name, axis) for name, axis in axes.items() if isinstance(axis, int))


def _read_host(host: DictionaryAttr) -> HostValue:
    entries = {key: json_value(value) for key, value in host.data.items()}
    formula, of, next_ = (entries.pop(key, None) for key in (FORMULA, OF, NEXT))
    assert formula is None or isinstance(formula, str)
    assert next_ is None or isinstance(next_, str)
    return HostValue(formula, tuple(cast("Sequence[str | int | float]", of or ())), entries, next_)


def _read_node(op: ResolvedOp, bodies: Mapping[str, Operation]) -> Node:
    """The operation that an instruction is; `bodies`: symbols by name, where what it means is to be known."""
    return Node(
        name=op.instruction.data,
        kind=op.kind.data,
        src=tuple(source.data for source in op.src),
        after=tuple(Edge(edge.source.data, edge.kind.data) for edge in op.after),
        meaning=_read_meaning(op, bodies),
    )


def _read_meaning(op: ResolvedOp, bodies: Mapping[str, Operation]) -> str | None:
    body = None if op.body is None else bodies.get(op.body.root_reference.data)
    if not isinstance(body, BodyOp):
        return None
    return hashlib.sha256(body_text(body.body.block).encode()).hexdigest()


def _read_launch(op: ResolvedOp, addresses: _Addresses) -> Launch:
    assert op.kernel is not None and op.stream is not None
    record = {key: json_value(value) for key, value in op.kernel.record.data.items()}
    return Launch(
        name=op.instruction.data,
        kernel=op.kernel.kernel.data,
        record=record,
        stream=op.stream.value.data,
        ins=tuple(addresses.operand(value) for value in op.ins),
        outs=tuple(addresses.operand(value) for value in op.outs),
        ws=tuple(addresses.operand(value) for value in op.ws),
    )


def _code_unit(program: ProgramOp, table: Mapping[str, Operation]) -> CodeUnit:
    addresses = _Addresses.of(program)
    launches = tuple(_code_launch(op, addresses, table) for op in program.instructions)
    return CodeUnit(entry_symbol(program), program, launches, 1 + len(program.binds))


def _code_launch(op: ResolvedOp, addresses: _Addresses, table: Mapping[str, Operation]) -> CodeLaunch:
    assert op.kernel is not None and op.body is not None
    body = table[op.body.root_reference.data]
    assert isinstance(body, BodyOp)
    return CodeLaunch(
        name=op.instruction.data,
        kind=op.kind.data,
        kernel=op.kernel.kernel.data,
        record=op.kernel.record.data,
        ins=tuple(addresses.ref(value) for value in op.ins),
        outs=tuple(addresses.ref(value) for value in op.outs),
        ws=tuple(addresses.ref(value) for value in op.ws),
        body=body.body.block,
        code=_generated(op.code, table),
        waits_for=tuple(edge.source.data for edge in op.after),
        programmatic=tuple(edge.source.data for edge in op.after if edge.kind.data == "programmatic"),
        prologue=_generated(op.prologue, table),
    )


def _generated(reference: SymbolRefAttr | None, table: Mapping[str, Operation]) -> KernelOp | None:
    if reference is None:
        return None
    code = table[reference.root_reference.data]
    assert isinstance(code, KernelOp)
    return code


def _read_dispatch(module: ModuleOp, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    table = next((op for op in module.body.block.ops if isinstance(op, DispatchOp)), None)
    if table is not None:
        if unknown := sorted(set(table.table.values()) - set(names)):
            raise PlanError(
                f"the dispatch table names no emit.program: @{unknown[0]}; run specialize-shapes again"
            )
        return table.names, tuple(Row(sizes, program) for sizes, program in table.table.items())
    if len(names) != 1:
        found = ", ".join(f"@{name}" for name in names) or "none"
        raise PlanError(f"one program runs unless logical.dispatch names several; found {found}")
    return (), (Row((), names[0]),)


# Blockers


def find_blockers(module: ModuleOp, program: ProgramOp) -> list[str]:
    """Everything that keeps `program` from being captured, each with the way out; empty if it can be."""
    where = f"@{program.sym_name.data}"
    if program.phase.data != "final":
        return [f"{where} is in phase '{program.phase.data}', only 'final' runs: go on up to plan-capture"]
    table = symbols(module)
    backend = target_of(module).backend.data
    kernels = get_kernels(backend)
    found = [*_bind_blockers(program), *_binding_blockers(program, backend), *_slot_blockers(program)]
    seen: set[str] = set()
    for instruction in program.instructions:
        found += _field_blockers(instruction, table)
        found += _kernel_blockers(instruction, kernels, backend)
        found += _edge_blockers(instruction, program, seen)
        seen.add(instruction.instruction.data)
    return [f"{where}: {line}" for line in found]


def _bind_blockers(program: ProgramOp) -> Iterator[str]:
    written = {root_buffer(out) for instruction in program.instructions for out in instruction.outs}
    may_derive = program.sym_name.data == PREPARE
    for bind in program.binds:
        name, role = bind.bind_name.data, bind.role.data
        if role in ("input", "output") and bind.binding is None:
            yield f"{role} '{name}' has no binding: run lower-to-emit, or write binding(direct)"
        if role == "output" and bind not in written:
            yield f"output '{name}' is never written: add the instruction or drop the bind"
        if role == "derived" and may_derive and bind not in written:
            yield f"derived '{name}' is never written: add the instruction or drop the bind"


def _binding_blockers(program: ProgramOp, backend: str) -> Iterator[str]:
    """Where the boundary is bound in a way that the runtime could not obey."""
    traits = get_backend(backend)
    fixed = {root_buffer(value): op for op in program.instructions for value in op.fixed_operands}
    for bind in program.binds:
        what = f"{bind.role.data} '{bind.bind_name.data}'"
        if bind.role.data not in ("input", "output") or bind.binding is None:
            continue
        is_staged = bind.binding.data == "staged"
        align = 1 if bind.align is None else bind.align.value.data
        if not isinstance(traits, BoundaryBackend):
            if is_staged:
                yield f"{what} is staged, but {backend} uses callers' memory where it is: write binding(direct)"
        elif not is_staged and bind in fixed:
            name = fixed[bind].instruction.data
            yield f"{what} is direct, but '{name}' embeds its address: write binding(staged)"
        elif not is_staged and align < traits.bind_align:
            needed = f"binding(direct) align({traits.bind_align})"
            yield f"{what} is direct at any address, {backend} needs a multiple: write {needed}"


def _slot_blockers(program: ProgramOp) -> Iterator[str]:
    arena = program.arena_bytes
    if arena is None and program.slots:
        yield "arena_bytes is missing: run plan-memory"
    for number, slot in enumerate(program.slots):
        name = slot.buffer.name_hint or str(number)
        if slot.offset is None or slot.size is None:
            yield f"slot %{name} has no offset: run plan-memory"
            continue
        start, size = slot.offset.value.data, slot.size.value.data
        align = 1 if slot.align is None else slot.align.value.data
        if size < buffer_of(slot.buffer).span_bytes:
            needed = buffer_of(slot.buffer).span_bytes
            yield f"slot %{name} has {size} bytes and needs {needed}: run plan-memory again"
        if start < 0 or align < 1 or start % align:
            yield f"slot %{name} at {start} breaks its alignment of {align}: run plan-memory again"
        if arena is not None and start + size > arena.value.data:
            end = arena.value.data
            yield f"slot %{name} ends at {start + size}, the arena at {end}: run plan-memory again"


def _field_blockers(op: ResolvedOp, table: Mapping[str, Operation]) -> Iterator[str]:
    name = op.instruction.data
    if op.stream is None:
        yield f"instruction '{name}' has no stream: run schedule"
    if op.body is None:
        yield f"instruction '{name}' has no body: give body(@symbol) of an emit.body"
    symbols_of = (("body", op.body, BodyOp), ("code", op.code, KernelOp), ("prologue", op.prologue, KernelOp))
    for field, reference, wanted in symbols_of:
        if reference is None:
            continue
        symbol = reference.root_reference.data
        if not isinstance(table.get(symbol), wanted):
            yield f"instruction '{name}': {field} @{symbol} is no {wanted.name} of this module: define it"


def _kernel_blockers(op: ResolvedOp, kernels: Mapping[str, AnyKernel], backend: str) -> Iterator[str]:
    name = op.instruction.data
    if op.kernel is None:
        yield f"instruction '{name}' has no kernel record: run select-kernels"
        return
    kernel = op.kernel.kernel.data
    if (registered := kernels.get(kernel)) is None:
        yield f"instruction '{name}': {why_no_kernel(backend, kernel)}: run select-kernels"
        return
    version = json_value(op.kernel.record.data["version"])
    if version != registered.version:
        ours = f"'{kernel}' is version {registered.version} here"
        yield f"instruction '{name}': {ours}, the record has {version}: run select-kernels again"


def _edge_blockers(op: ResolvedOp, program: ProgramOp, seen: set[str]) -> Iterator[str]:
    name = op.instruction.data
    for edge in op.after:
        source = edge.source.data
        if source in seen:
            continue
        if any(other.instruction.data == source for other in program.instructions):
            yield f"instruction '{name}' stands before '{source}' and waits for it: order the text by edges"
        else:
            yield f"instruction '{name}' waits for the unknown '{source}': name one of this program"
