"""What was decided about emit programs, read back as policies: groups, layouts, kernels, records, streams.

`raise-emit` leaves them in the module for another try, `aicf policy extract` writes them to a file. Which kernel record
entries a policy may ask for is settled in `select-kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, BindOp, ProgramOp, ResolvedOp, buffer_of, symbols
from aicf.dialects.emit_types import KernelAttr
from aicf.dialects.json_values import json_value
from aicf.dialects.kinds import KINDS
from aicf.passes.analysis.accesses import region_of
from aicf.passes.bodies.workload import body_of
from aicf.passes.emit.constraint_decisions import keeps_text_order, refuse_unsaid
from aicf.passes.layout.layout_graph import lies_last, multiplies
from aicf.passes.layout.select_pitches import GAP
from aicf.passes.support.identity import derived_id
from aicf.passes.support.policy import execution_of, lowered_precision_of, policy_of, without_bucket
from aicf.passes.support.programs import programs
from aicf.policies.kernel_policy import CHANNELS_LAST, EVERY_VALUE, EXPECTED_US, PITCHED, ROW_MAJOR
from aicf.policies.policy import Policy

_OWN_ENTRIES = ("version", "determinism")
"""Entries of a record that the kernel's descriptor says of every record."""


@dataclass(frozen=True)
class Pins:
    """Which decisions a policy gets: the groups and how their results lie, and with them the kernels, and with these
    their records."""

    groups: bool = True
    kernels: bool = True
    records: bool = True


def decisions_of(module: ModuleOp, pins: Pins = Pins()) -> Policy:
    """The policy that pins what the module's programs are, with what its own policies still say of them.

    Raises InvalidIR for a constraint of an instruction that a policy cannot say.
    """
    refuse_unsaid(module, pins.records)
    groups: dict[ResolvedOp, tuple[str, ...]] = {}
    kernels: dict[str, str] = {}
    records: dict[str, Mapping[str, object]] = {}
    for instruction, members in members_by_instruction(module).items():
        if instruction.kind.data == "pack":
            continue  # the kernel that reads it asks for it
        if members:
            groups[instruction] = members
        if instruction.kernel is not None and not _is_update(instruction):
            kernels[instruction.instruction.data] = instruction.kernel.kernel.data
            records[instruction.instruction.data] = _entries(instruction.kernel) | _expected(instruction)
    # Kernels say by their keys what groups are called. Without them, of the groups that begin with ops of one source,
    # the first has its name.
    order = groups if pins.kernels else sorted(groups, key=_has_other_name)
    kernel = replace(
        policy_of(module),
        groups=tuple(groups[instruction] for instruction in order) if pins.groups else (),
        layouts=_layouts(module) if pins.groups else {},
        kernels=kernels if pins.kernels else {},
        records=records if pins.records else {},
    )
    streams, streams_of = _streams(module)
    execution = replace(
        execution_of(module), streams=streams, streams_of=streams_of, bindings=_staged(module)
    )
    if keeps_text_order(module):
        execution = replace(execution, order="text")
    return Policy(kernel, execution, lowered_precision_of(module))


def members_by_instruction(module: ModuleOp) -> dict[ResolvedOp, tuple[str, ...]]:
    """The ids of the ops that each instruction computes, of all programs in text order; none where it moves data."""
    table = symbols(module)
    return {op: _members(op, table) for program in programs(module) for op in program.instructions}


def _members(instruction: ResolvedOp, table: Mapping[str, Operation]) -> tuple[str, ...]:
    """The ids of the ops in an instruction's body; a constant feeds any number of groups and counts for none."""
    if (body := body_of(instruction, table)) is None:
        return ()
    ops = (op for op in body.body.block.ops if not isinstance(op, logical.ConstantOp))
    ids = (op.attributes.get(logical.ID_ATTR) for op in ops)
    return tuple(id_.data for id_ in ids if isinstance(id_, StringAttr))


def _has_other_name(instruction: ResolvedOp) -> bool:
    """Whether an instruction is not called by its first source."""
    return without_bucket(instruction.instruction.data) != without_bucket(instruction.src.data[0].data)


def _layouts(module: ModuleOp) -> dict[str, str]:
    """The instructions that write channels-last, or rows with gaps, and that all others do not; nothing where none
    could."""
    table, last, could = symbols(module), dict[str, str](), False
    for program in programs(module):
        names = {op.instruction.data for op in program.instructions}
        for op in program.instructions if program.sym_name.data != PREPARE else ():
            could |= KINDS[op.kind.data].is_windowed
            if derived_id(op.instruction.data, GAP) in names:
                last[op.instruction.data] = PITCHED
            body = body_of(op, table)
            if body is not None and not multiplies(body.body.block) and any(map(_is_written_last, op.outs)):
                last[op.instruction.data] = CHANNELS_LAST
    return {EVERY_VALUE: ROW_MAJOR, **last} if could or last else {}


def _is_written_last(out: SSAValue) -> bool:
    """Whether an instruction writes all of a bind or slot, in channels-last order."""
    type_, whole = buffer_of(out), buffer_of(region_of(out).root.buffer)
    return type_.element_count == whole.element_count and lies_last(type_.get_shape(), type_.get_strides())


def _is_update(instruction: ResolvedOp) -> bool:
    """Whether this is the copy of a new value into its parameter or state, which `lower-to-emit` adds by itself."""
    root = region_of(instruction.outs[0]).root
    return instruction.kind.data == "copy" and isinstance(root, BindOp) and root.updated is not None


def _entries(kernel: KernelAttr) -> dict[str, object]:
    return {name: json_value(value) for name, value in kernel.record.data.items() if name not in _OWN_ENTRIES}


def _expected(instruction: ResolvedOp) -> dict[str, object]:
    us = instruction.expected_us
    return {} if us is None else {EXPECTED_US: json_value(us)}


def _staged(module: ModuleOp) -> dict[str, str]:
    """The inputs and outputs that every program stages. Where only some do, a kernel of these embeds the address, and
    will again; the others are direct by default."""
    bindings: dict[str, set[str]] = {}
    for program in programs(module):
        for bind in program.binds:
            if bind.binding is not None:
                bindings.setdefault(bind.bind_name.data, set()).add(bind.binding.data)
    return {name: "staged" for name, found in bindings.items() if found == {"staged"}}


def _streams(module: ModuleOp) -> tuple[int, dict[str, int]]:
    """The number of streams that all programs have, or of each program where they differ."""
    counts = {program.sym_name.data: _streams_in(program) for program in programs(module)}
    if len(set(counts.values())) <= 1:
        return next(iter(counts.values()), 1), {}
    return 0, counts


def _streams_in(program: ProgramOp) -> int:
    stated = (op.stream.value.data + 1 for op in program.instructions if op.stream is not None)
    return max(stated, default=1)
