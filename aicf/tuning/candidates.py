"""What is measured for a model: every kernel and variant that could run each of its groups, compiled alone.

Two groups that do the same work are one case. Which of them runs in the end is decided by `select-kernels`, from the
times. Left out here is only what the policy forbids, and variants that rank after the most promising ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.registry import get_kernels
from aicf.compilation.compiling import resolve_options
from aicf.compilation.record import Options
from aicf.compilation.sources import Model, read_model
from aicf.compilation.stages import passes_of
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.errors import PolicyError
from aicf.passes.bodies.buffer_aliasing import lies_alone
from aicf.passes.bodies.workload import GroupWorkload, legal_kernels, target_of, workload_of
from aicf.passes.emit.records import kernel_record
from aicf.passes.kernels.measured import specs_of
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.kernels.workload_key import key_of
from aicf.passes.pipelines.text import apply_pass
from aicf.passes.support.policy import policy_of
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.tuning_table import WorkloadKey
from aicf.support.progress import Step
from aicf.tuning.growing_table import GrowingTable


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
        variant = " ".join(f"{key}={value}" for key, value in self.spec.items())
        return f"{self.group.id.data}: {self.kernel.id} {variant}".strip()

    def is_in(self, table: GrowingTable) -> bool:
        """Whether a table knows it; if only the device completes its record, whether any variant of its kernel."""
        spec = None if self.kernel.device_fields else self.spec
        return table.has(self.work, self.kernel.id, self.kernel.version, spec)

    def us(self, target: TargetAttr, policy: KernelPolicy) -> float:
        """Microseconds that the kernel predicts of its best variant."""
        return self.kernel.cost_us(workload_of(self.group).under(policy).work, target)


def candidates(module: ModuleOp, variants: int | None) -> list[Candidate]:
    """What there is to measure in a module whose groups have no kernels yet, each piece of work once.

    A group that writes or reads a part of a concatenation where it lies is left to the predictions: it is not the same
    work alone.

    Args:
        variants: Most variants of one kernel on one piece of work; None for all.
    """
    target, policy = target_of(module), policy_of(module)
    found: list[Candidate] = []
    seen: set[str] = set()
    for group in groups_of(module):
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


def groups_of(module: ModuleOp) -> Iterator[GroupOp]:
    """All groups of all functions."""
    for function in module.body.block.ops:
        if isinstance(function, func.FuncOp) and not function.is_declaration:
            yield from (op for op in function.body.block.ops if isinstance(op, GroupOp))


def _variants_of(
    group: GroupOp,
    group_work: GroupWorkload,
    key: WorkloadKey,
    kernel: AnyKernel,
    target: TargetAttr,
    variants: int | None,
) -> list[Candidate]:
    records = kernel.variants(group_work.work, target)
    specs = specs_of(records)
    chosen = range(len(specs)) if variants is None else spread(specs, variants)
    pairs = [(specs[index], records[index]) for index in chosen]
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


# The whole model


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
