"""What is measured for a model: every kernel and variant that could run each of its groups, compiled alone.

Two groups that do the same work are one case. Which of them runs in the end is decided by `select-kernels`, from the
times. Left out here are only what the policy forbids, and variants that rank after the most promising ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, OpResult, Region, SSAValue

from aicf.arguments import check_function, instance_from
from aicf.artifact import toolchain_lock
from aicf.backends.base import CodeUnit
from aicf.backends.common.kernel import EARLY_READS, TRIGGERS, AnyKernel
from aicf.backends.registry import get_backend, get_kernels
from aicf.compiled import Options
from aicf.compiling import resolve_options
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.errors import PolicyError, quoted
from aicf.frontends.text import make_context
from aicf.passes.bodies.buffer_aliasing import lies_alone
from aicf.passes.bodies.workload import (
    TARGET_ATTR,
    GroupWorkload,
    legal_kernels,
    origin_of,
    target_of,
    workload_of,
)
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.emit.records import kernel_record
from aicf.passes.kernels.generate_kernels import GenerateKernelsPass
from aicf.passes.kernels.measured import libraries_of, specs_of
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.kernels.workload_key import key_of
from aicf.passes.pipelines.aicf_inference import emit_passes
from aicf.passes.pipelines.text import apply_pass
from aicf.passes.support.policy import POLICY_ATTR, policy_of
from aicf.policies.tuning_table import WorkloadKey
from aicf.progress import Step
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, entry_symbol, programs_of, read_program
from aicf.sources import Model, read_model
from aicf.stages import passes_of
from aicf.tuning.cases import NUMBERS, Case, Memory, Prepared
from aicf.tuning.index_ranges import index_ranges
from aicf.whole_numbers import is_whole

_PROGRAM = "tune"
_FIXED = ("param", "const", "derived")
"""Roles of binds that no instruction of the one-instruction program writes."""


@dataclass(frozen=True)
class Candidate:
    """A case that is not compiled yet: a group, a kernel and its record."""

    group: GroupOp
    work: WorkloadKey
    kernel: AnyKernel
    record: KernelAttr
    spec: dict[str, object]

    @property
    def label(self) -> str:
        """The candidate in words."""
        return f"{self.group.id.data}: {self.kernel.id}"

    def us(self, target: TargetAttr) -> float:
        """Microseconds that the kernel predicts of its best variant."""
        return self.kernel.cost_us(workload_of(self.group).work, target)


def candidates(module: ModuleOp, variants: int) -> list[Candidate]:
    """What there is to measure in a module whose groups have no kernels yet, each piece of work once.

    A group that writes or reads a part of a concatenation where it lies is left to the predictions: it is not the same
    work alone.

    Args:
        variants: Most variants of one kernel on one piece of work.
    """
    target, policy = target_of(module), policy_of(module)
    found: list[Candidate] = []
    seen: set[str] = set()
    for group in _groups(module):
        if not lies_alone((*group.ins, *group.results)):
            continue
        group_work = workload_of(group).under(policy)
        key = key_of(group_work.work)
        if key.digest in seen:
            continue
        seen.add(key.digest)
        forbidden = frozenset(policy.forbid)
        legal, _ = legal_kernels(group_work, target, forbidden, get_kernels(target.backend.data))
        for kernel in legal:
            if policy.determinism == "any" or kernel.determinism == "bitwise":
                found += _variants_of(group, group_work, key, kernel, target, variants)
    return found


def _groups(module: ModuleOp) -> Iterator[GroupOp]:
    for function in module.body.block.ops:
        if isinstance(function, func.FuncOp) and not function.is_declaration:
            yield from (op for op in function.body.block.ops if isinstance(op, GroupOp))


def _variants_of(
    group: GroupOp,
    group_work: GroupWorkload,
    key: WorkloadKey,
    kernel: AnyKernel,
    target: TargetAttr,
    variants: int,
) -> list[Candidate]:
    records = kernel.variants(group_work.work, target)
    specs = specs_of(records)
    pairs = [(specs[index], records[index]) for index in spread(specs, variants)]
    return [
        Candidate(group, key, kernel, kernel_record(kernel, {**record, **kernel.device_fields}), spec)
        for spec, record in pairs
    ]


def spread(specs: Sequence[Mapping[str, object]], count: int) -> list[int]:
    """The variants to measure: indices in `specs`, which lists the most promising first.

    A prior that is wrong about one entry, say about what a split costs, is wrong about many variants in a row. So a
    variant ranks lower for each entry that it has in common with those already chosen.
    """
    left = list(range(len(specs)))
    texts = [{(entry, str(value)) for entry, value in spec.items()} for spec in specs]
    taken: Counter[tuple[str, str]] = Counter()
    chosen: list[int] = []
    while left and len(chosen) < count:
        best = min(
            left, key=lambda index: (1 + index / count / 2) * (1 + sum(taken[e] for e in texts[index]))
        )
        left.remove(best)
        chosen.append(best)
        taken.update(texts[best])
    return chosen


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
        _starts_early(candidate.record),
        unit.entry,
        _memory(plan, candidate.group),
        native,
    )


def _starts_early(record: KernelAttr) -> bool:
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


# The whole model


def prepare(model: Model, options: Options, variants: int, step: Step) -> Prepared:
    """Compiles every candidate of a model.

    Args:
        options: Target, policy, dims and threads, as for `compile`.
        variants: Most variants of one kernel on one piece of work.
        step: Is told what is being done.

    Raises:
        PolicyError: an option or argument is not legal, or the model is an emit program, whose kernels are chosen.
        BackendUnavailable: what compiles for the target is missing.
    """
    instance_from(options, Options, PolicyError, "what to compile with", "aicf.compiled.Options")
    if not is_whole(variants, 1):
        raise PolicyError(
            f"the most variants of a kernel are {quoted(variants)}; give a whole number, 1 or more"
        )
    check_function(step, PolicyError, "what is told of progress")
    context = make_context()
    module = grouped(model, options, context, step)
    found = candidates(module, variants)
    cases: list[Case] = []
    for number, candidate in enumerate(found, 1):
        step(f"compiling {number} of {len(found)}: {candidate.label}")
        cases.append(compiled(candidate, module, context))
    target = target_of(module)
    return Prepared(
        target.backend.data,
        target.arch.data,
        target.threads,
        dict(libraries_of(target)),
        dict(toolchain_lock()),
        tuple(cases),
        _neighbour(found, cases, target),
    )


def grouped(model: Model, options: Options, context: Context, step: Step) -> ModuleOp:
    """The model as `select-kernels` sees it."""
    source = read_model(model, context, dims=options.dims)
    if source.has_sizes:
        options = replace(options, dims="")
    if source.is_emit:
        raise PolicyError(
            "aicf tune takes logical IR; the groups of an emit program are gone: run raise-emit"
        )
    for module_pass in passes_of(source, resolve_options(source, options)):
        if isinstance(module_pass, SelectKernelsPass):
            break
        step(module_pass.name)
        apply_pass(module_pass, context, source.module)
    return source.module


def _neighbour(found: Sequence[Candidate], cases: Sequence[Case], target: TargetAttr) -> Case | None:
    """What runs between two runs where instructions may start before their predecessor ends: the cheapest instruction
    of the model whose kernel has no variants, as a normalisation between two products. Two runs of one large kernel
    next to each other would be in each other's way, as instructions of such a model are not. None if the model has
    none: there large kernels do stand next to each other.
    """
    small = [
        (candidate.us(target), index)
        for index, (candidate, case) in enumerate(zip(found, cases, strict=True))
        if case.starts_early and not candidate.spec
    ]
    if not small or len({case.work.digest for case in cases}) == 1:
        return None
    return cases[min(small)[1]]
