"""A candidate as a program of its own: one instruction, compiled to native code. Needs no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, OpResult, Region, SSAValue

from aicf.backends.base import CodeUnit
from aicf.backends.common.kernel import EARLY_READS, TRIGGERS
from aicf.backends.registry import get_backend
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr
from aicf.passes.bodies.workload import TARGET_ATTR, origin_of, target_of
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.kernels.generate_kernels import GenerateKernelsPass
from aicf.passes.pipelines.aicf_inference import emit_passes
from aicf.passes.pipelines.text import apply_pass
from aicf.passes.support.policy import POLICY_ATTR
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, entry_symbol, programs_of, read_program
from aicf.tuning.candidates import Candidate
from aicf.tuning.cases import NUMBERS, Case, Memory
from aicf.tuning.index_ranges import index_ranges

_PROGRAM = "tune"
_FIXED = ("param", "const", "derived")
"""Roles of binds that no instruction of the one-instruction program writes."""


def compiled(candidate: Candidate, module: ModuleOp, context: Context) -> Case:
    """The candidate as native code that runs its one instruction; needs no device.

    Args:
        module: Where its group is, for target and policy.
    """
    target = target_of(module)
    alone = _alone(candidate, module)
    for module_pass in (GenerateKernelsPass(), LowerToEmitPass(), *emit_passes()):
        apply_pass(module_pass, context, alone)
    program = next(program for program in programs_of(alone) if program.sym_name.data == _PROGRAM)
    plan = read_program(program)
    unit = next(unit for unit in code_units(alone) if unit.entry == entry_symbol(program))
    native = get_backend(target.backend.data).build(alone, [_one_launch(unit, candidate)], target)
    kernel = candidate.kernel
    return Case(
        candidate.group.id.data,
        candidate.work,
        kernel.id,
        kernel.version,
        candidate.spec,
        tuple(kernel.device_fields),
        starts_early(candidate.record),
        unit.entry,
        _memory(plan, candidate.group),
        native,
    )


def starts_early(record: KernelAttr) -> bool:
    """Whether the kernel waits for its predecessors inside, and lets its successors start early."""
    entries = record.record.data
    return EARLY_READS in entries and entries.get(TRIGGERS) == BoolAttr.from_bool(True)


def _one_launch(unit: CodeUnit, candidate: Candidate) -> CodeUnit:
    """The unit with the candidate's instruction alone: copies at the boundary are not what is measured."""
    launch = next(launch for launch in unit.launches if launch.name == candidate.group.id.data)
    return replace(unit, launches=(replace(launch, waits_for=(), programmatic=()),))


def _memory(plan: CapturePlan, group: GroupOp) -> tuple[Memory, ...]:
    ranges, arguments = index_ranges(group), _arguments(group)
    reach = {_name(index): ranges.get(value, NUMBERS) for index, value in enumerate(arguments)}
    binds = (
        Memory(bind.nbytes, bind.dtype, bind.role in _FIXED, reach.get(bind.name, NUMBERS))
        for bind in plan.graph.binds
    )
    return (Memory(plan.arena_bytes, "u8"), *binds)


# A module with one group


def _alone(candidate: Candidate, module: ModuleOp) -> ModuleOp:
    """A module with one function, whose one group is a copy of the candidate's and has its kernel."""
    group = candidate.group
    values, arguments = list(dict.fromkeys(group.ins)), _arguments(group)
    block = Block(arg_types=[value.type for value in arguments])
    inner: dict[SSAValue, SSAValue] = dict(zip(arguments, block.args, strict=True))
    for value in values:
        if (constant := _constant(value)) is not None:
            copy = constant.clone()
            block.add_op(copy)
            inner[value] = copy.results[0]
    clone = group.clone(inner)
    clone.properties["kernel"] = candidate.record
    block.add_ops([clone, func.ReturnOp(*clone.results)])
    function = func.FuncOp(
        _PROGRAM,
        ([value.type for value in arguments], list(group.result_types)),
        Region(block),
        arg_attrs=ArrayAttr([_argument(index, value) for index, value in enumerate(arguments)]),
        res_attrs=ArrayAttr([_named(f"out{index}") for index in range(len(group.results))]),
    )
    kept = {name: module.attributes[name] for name in (TARGET_ATTR, POLICY_ATTR) if name in module.attributes}
    return ModuleOp([function], kept)


def _arguments(group: GroupOp) -> list[SSAValue]:
    """What the group reads that is no constant, each once."""
    return [value for value in dict.fromkeys(group.ins) if _constant(value) is None]


def _constant(value: SSAValue) -> logical.ConstantOp | None:
    return value.op if isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp) else None


def _argument(index: int, value: SSAValue) -> DictionaryAttr:
    """Weights stay weights, so that they may be prepared; all else is an input."""
    role, updated = origin_of(value)
    kept = "param" if role in ("param", "derived") and not updated else "input"
    return _named(_name(index), {logical.ROLE_ATTR: StringAttr(kept)})


def _name(index: int) -> str:
    """Of an argument."""
    return f"in{index}"


def _named(name: str, entries: Mapping[str, Attribute] | None = None) -> DictionaryAttr:
    return DictionaryAttr({logical.NAME_ATTR: StringAttr(name), **(entries or {})})
