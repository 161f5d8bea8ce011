"""`select-kernels`: each group and instruction gets the kernel that runs it, and the record of all its launch needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.passes import ModulePass

from aicf.backends.base import KernelDescriptor, Work
from aicf.dialects.emit import GroupOp, ProgramOp, ResolvedOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.errors import PolicyError, UnsupportedOp
from aicf.passes.support.instructions import Filler
from aicf.passes.support.ledger import record
from aicf.passes.support.policy import check_formed, policy_of, with_stems, without_bucket
from aicf.passes.support.programs import programs
from aicf.passes.support.records import kernel_record
from aicf.passes.support.work import GroupWork, legal_kernels, target_of, work_of_group
from aicf.policies.kernel_policy import KernelPolicy

Refuse = Callable[[KernelAttr], str | None]
"""Why a legal kernel with this record cannot be taken where it would stand; None if it can."""


@dataclass(frozen=True)
class SelectKernelsPass(ModulePass):
    """Chooses among the legal kernels of each group and of each instruction that is open: policy first, then the
    predicted time.

    Ties go to the deterministic kernel, then to the simpler one. What has a kernel keeps it. The ledger gets the
    choice, the prediction, and the reason against every other kernel of the kind. An instruction of a program that
    is not final and states no body gets the body of its kind; one without a kernel gets a record, with prepared
    weights and workspace as it asks for them.
    """

    name = "select-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        chooser = _Chooser(op, target_of(op), policy_of(op))
        _check_policy(op, chooser.policy)
        for function in op.body.block.ops:
            if isinstance(function, func.FuncOp) and not function.is_declaration:
                chooser.choose_for_groups(function)
        chooser.choose_for_instructions(
            [program for program in programs(op) if program.phase.data != "final"]
        )


def _check_policy(module: ModuleOp, policy: KernelPolicy) -> None:
    """Raises PolicyError for a key of `kernels` that is no group or instruction of the module and no kind."""
    if policy.kernels:
        groups = [op.id.data for op in module.walk() if isinstance(op, GroupOp)]
        instructions = [op.instruction.data for program in programs(module) for op in program.instructions]
        policy.check_kernel_keys(with_stems([*groups, *instructions]))


@dataclass(frozen=True)
class _Choice:
    kernel: KernelDescriptor
    expected_us: float
    because: str


@dataclass(frozen=True)
class _Chooser:
    module: ModuleOp
    target: TargetAttr
    policy: KernelPolicy

    def choose_for_groups(self, function: func.FuncOp) -> None:
        """Gives each group of a function its kernel record."""
        groups = [op for op in function.body.block.ops if isinstance(op, GroupOp)]
        check_formed(self.policy, groups)
        for group in groups:
            if group.kernel is None:
                what = f"group '{group.id.data}'"
                way_out = "split the group or choose another target"
                group.properties["kernel"], _ = self._choose(work_of_group(group), what, way_out)

    def choose_for_instructions(self, open_programs: Sequence[ProgramOp]) -> None:
        """Completes the instructions of programs that are not final."""
        filler = Filler(self.module, self.target, SelectKernelsPass.name)
        for program in open_programs:
            for instruction in program.instructions:
                filler.give_body(program, instruction)
                if instruction.kernel is None:
                    self._choose_for(program, instruction, filler)
        filler.finish(open_programs)

    def _choose_for(self, program: ProgramOp, op: ResolvedOp, filler: Filler) -> None:
        work = filler.work(program, op)
        refuse, what = filler.refuse_overlap(op), f"instruction '{op.instruction.data}'"
        kernel, cost = self._choose(
            work, what, "write it as other instructions or choose another target", refuse
        )
        filler.give_kernel(program, op, work.work, kernel, cost)

    def _choose(
        self, group_work: GroupWork, what: str, way_out: str, refuse: Refuse | None = None
    ) -> tuple[KernelAttr, FloatAttr]:
        """The record of the kernel that runs the work, and its predicted microseconds; writes the ledger."""
        work = group_work.work
        legal, rejected = legal_kernels(group_work, self.target, frozenset(self.policy.forbid))
        legal, rejected = _deterministic(legal, rejected, self.policy)
        if refuse is not None:
            refused = {k.id: why for k in legal if (why := refuse(self._record(k, work))) is not None}
            legal, rejected = (
                [kernel for kernel in legal if kernel.id not in refused],
                {**rejected, **refused},
            )
        if not legal:
            reasons = "; ".join(f"{kernel}: {why}" for kernel, why in rejected.items())
            raise UnsupportedOp(
                f"no kernel of target {self.target.backend.data} runs {what} of kind {work.kind}: "
                f"{reasons or 'none has this kind'}; {way_out}"
            )
        costs = {kernel.id: kernel.cost_us(work, self.target) for kernel in legal}
        choice = _best(work, legal, costs, self.policy, rejected)
        for kernel in legal:
            if kernel.id != choice.kernel.id:
                rejected[kernel.id] = _slower(costs[kernel.id], choice.expected_us)
        cost = FloatAttr(round(choice.expected_us, 3), f64)
        name = SelectKernelsPass.name
        record(
            self.module, name, [work.id], choice.kernel.id, choice.because, rejected, {"expected_us": cost}
        )
        return self._record(choice.kernel, work), cost

    def _record(self, kernel: KernelDescriptor, work: Work) -> KernelAttr:
        return kernel_record(kernel, kernel.record(work, self.target))


def _slower(cost_us: float, best_us: float) -> str:
    """The reason against a legal kernel; three digits, or a word where they would not differ."""
    if f"{cost_us:.3g}" == f"{best_us:.3g}":
        return f"predicted the same {best_us:.3g} us, and it goes later in the order of ties"
    return f"predicted {cost_us:.3g} us, not {best_us:.3g}"


def _deterministic(
    legal: Sequence[KernelDescriptor], rejected: dict[str, str], policy: KernelPolicy
) -> tuple[list[KernelDescriptor], dict[str, str]]:
    if policy.determinism != "bitwise":
        return list(legal), rejected
    kept = [kernel for kernel in legal if kernel.determinism == "bitwise"]
    dropped = {
        k.id: f"its results are {k.determinism}, the policy wants bitwise" for k in legal if k not in kept
    }
    return kept, {**rejected, **dropped}


def _best(
    work: Work,
    legal: Sequence[KernelDescriptor],
    costs: Mapping[str, float],
    policy: KernelPolicy,
    rejected: Mapping[str, str],
) -> _Choice:
    for key in (work.id, without_bucket(work.id), work.kind):
        if (wanted := policy.kernels.get(key)) is not None:
            return _Choice(
                _pinned(wanted, key, legal, rejected), costs[wanted], f"policy pins it for '{key}'"
            )
    best = min(legal, key=lambda k: (costs[k.id], k.determinism != "bitwise", k.simplicity, k.id))
    because = "the only legal kernel" if len(legal) == 1 else "lowest predicted time; unmeasured"
    return _Choice(best, costs[best.id], because)


def _pinned(
    wanted: str, key: str, legal: Sequence[KernelDescriptor], rejected: Mapping[str, str]
) -> KernelDescriptor:
    for kernel in legal:
        if kernel.id == wanted:
            return kernel
    why = rejected.get(wanted, "it does not run this kind" if wanted else "")
    raise PolicyError(
        f"kernels.{key}: '{wanted}' cannot run it: {why}; legal: {', '.join(kernel.id for kernel in legal)}"
    )
