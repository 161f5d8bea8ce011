"""What is measured for a model: every kernel and variant that could run each of its groups, compiled alone.

Two groups that do the same work are one case. Which of them runs in the end is decided by `select-kernels`, from the
times; here nothing is left out but what the policy forbids, and the variants behind the most promising ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, OpResult, Region, SSAValue

from aicf.backends.base import CodeUnit, DeviceGivenKernel, KernelDescriptor
from aicf.backends.native import NativeCode
from aicf.backends.registry import get_backend, get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.passes.aicf_inference import emit_passes
from aicf.passes.generate_kernels import GenerateKernelsPass
from aicf.passes.lower_to_emit import LowerToEmitPass
from aicf.passes.support.measured import records_of, specs_of
from aicf.passes.support.pipeline import apply_pass
from aicf.passes.support.policy import POLICY_ATTR, policy_of
from aicf.passes.support.records import kernel_record
from aicf.passes.support.work import (
    TARGET_ATTR,
    GroupWork,
    legal_kernels,
    origin_of,
    target_of,
    work_of_group,
)
from aicf.passes.support.work_key import key_of
from aicf.policies.tuning_table import WorkKey
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, entry_symbol, programs_of, read_program

_PROGRAM = "tune"


@dataclass(frozen=True)
class Memory:
    """What lies behind one entry of the pointer table: its bytes, and the element type of its data (`u8` for none)."""

    nbytes: int
    dtype: str


@dataclass(frozen=True)
class Case:
    """One kernel in one variant on one piece of work, compiled.

    Args:
        group: A group that does this work, for messages.
        work: What is run.
        kernel, version: Which kernel.
        spec: The entries that tell this variant from the kernel's others.
        device_fields: Entries of the record that only the device can give; then `native` cannot run yet, and the
            device makes its variants from it.
        entry: Symbol of the program.
        memory: What the pointer table points to: the arena, then the binds.
        native: Its code: one program with one instruction.
    """

    group: str
    work: WorkKey
    kernel: str
    version: int
    spec: dict[str, object]
    device_fields: tuple[str, ...]
    entry: str
    memory: tuple[Memory, ...]
    native: NativeCode

    @property
    def label(self) -> str:
        """The case in words."""
        variant = " ".join(f"{key}={value}" for key, value in self.spec.items())
        return f"{self.group}: {self.kernel} {variant}".strip()


@dataclass(frozen=True)
class Candidate:
    """A case that is not compiled yet: a group, a kernel and its record."""

    group: GroupOp
    work: WorkKey
    kernel: KernelDescriptor
    record: KernelAttr
    spec: dict[str, object]

    @property
    def label(self) -> str:
        """The candidate in words."""
        return f"{self.group.id.data}: {self.kernel.id}"


def candidates(module: ModuleOp, variants: int) -> list[Candidate]:
    """What there is to measure in a module whose groups have no kernels yet, each piece of work once.

    Args:
        variants: Most variants of one kernel on one piece of work.
    """
    target, policy = target_of(module), policy_of(module)
    found: list[Candidate] = []
    seen: set[str] = set()
    for group in _groups(module):
        group_work = work_of_group(group)
        key = key_of(group_work.work)
        if key.digest in seen:
            continue
        seen.add(key.digest)
        forbidden = frozenset(policy.forbid)
        legal, _ = legal_kernels(group_work, target, forbidden, get_kernels(target.backend.data))
        for kernel in legal:
            if policy.determinism != "bitwise" or kernel.determinism == "bitwise":
                found += _variants_of(group, group_work, key, kernel, target, variants)
    return found


def _groups(module: ModuleOp) -> Iterator[GroupOp]:
    for function in module.body.block.ops:
        if isinstance(function, func.FuncOp) and not function.is_declaration:
            yield from (op for op in function.body.block.ops if isinstance(op, GroupOp))


def _variants_of(
    group: GroupOp,
    group_work: GroupWork,
    key: WorkKey,
    kernel: KernelDescriptor,
    target: TargetAttr,
    variants: int,
) -> list[Candidate]:
    records = records_of(kernel, group_work.work, target)
    pairs = list(zip(specs_of(records), records, strict=True))[:variants]
    given: Mapping[str, Attribute] = {}
    if isinstance(kernel, DeviceGivenKernel):
        given = kernel.device_fields
    return [
        Candidate(group, key, kernel, kernel_record(kernel, {**record, **given}), spec)
        for spec, record in pairs
    ]


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
        tuple(kernel.device_fields) if isinstance(kernel, DeviceGivenKernel) else (),
        unit.entry,
        _memory(plan),
        native,
    )


def _one_launch(unit: CodeUnit, candidate: Candidate) -> CodeUnit:
    """The unit with the candidate's instruction alone: copies at the boundary are not what is measured."""
    launch = next(launch for launch in unit.launches if launch.name == candidate.group.id.data)
    return replace(unit, launches=(replace(launch, waits_for=(), programmatic=()),))


def _memory(plan: CapturePlan) -> tuple[Memory, ...]:
    return (Memory(plan.arena_bytes, "u8"), *(Memory(bind.nbytes, bind.dtype) for bind in plan.graph.binds))


# A module with one group


def _alone(candidate: Candidate, module: ModuleOp) -> ModuleOp:
    """A module with one function, whose one group is a copy of the candidate's and has its kernel."""
    group = candidate.group
    values = list(dict.fromkeys(group.ins))
    arguments = [value for value in values if _constant(value) is None]
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
        arg_attrs=ArrayAttr([_argument(place, value) for place, value in enumerate(arguments)]),
        res_attrs=ArrayAttr([_named(f"out{place}") for place in range(len(group.results))]),
    )
    kept = {name: module.attributes[name] for name in (TARGET_ATTR, POLICY_ATTR) if name in module.attributes}
    return ModuleOp([function], kept)


def _constant(value: SSAValue) -> logical.ConstantOp | None:
    return value.op if isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp) else None


def _argument(place: int, value: SSAValue) -> DictionaryAttr:
    """Weights stay weights, so that they may be prepared; all else is an input."""
    role, updated = origin_of(value)
    kept = "param" if role == "param" and not updated else "input"
    return _named(f"in{place}", {logical.ROLE_ATTR: StringAttr(kept)})


def _named(name: str, entries: Mapping[str, Attribute] | None = None) -> DictionaryAttr:
    return DictionaryAttr({logical.NAME_ATTR: StringAttr(name), **(entries or {})})
