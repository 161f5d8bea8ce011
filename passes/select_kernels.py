"""`select-kernels`: each group gets the kernel that runs it, and the record of everything its launch needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr, f64, i64
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from aicf.backends.base import KernelDescriptor, Work
from aicf.backends.registry import get_kernels
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.errors import PolicyError, UnsupportedOp
from aicf.passes.support.ledger import record
from aicf.passes.support.policy import check_names, policy_of, without_bucket
from aicf.passes.support.work import legal_kernels, target_of, work_of_group
from aicf.policies.kernel_policy import KernelPolicy


@dataclass(frozen=True)
class SelectKernelsPass(ModulePass):
    """Chooses among the legal kernels of each group: policy first, then the predicted time.

    Ties go to the deterministic kernel, then to the simpler one. A group that has a kernel keeps it. The ledger gets
    the choice, the prediction, and the reason against every other kernel of the kind. A policy that names an op or a
    group that is not there, or a group that did not form, is a PolicyError.
    """

    name = "select-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target, policy = target_of(op), policy_of(op)
        functions = [
            _groups(f) for f in op.body.block.ops if isinstance(f, func.FuncOp) and not f.is_declaration
        ]
        if functions:
            check_names(policy, functions)
        for group in (group for groups in functions for group in groups):
            if group.kernel is None:
                _select(op, group, target, policy)


def _groups(function: func.FuncOp) -> list[GroupOp]:
    return [op for op in function.body.block.ops if isinstance(op, GroupOp)]


@dataclass(frozen=True)
class _Choice:
    kernel: KernelDescriptor
    expected_us: float
    because: str


def _select(module: ModuleOp, group: GroupOp, target: TargetAttr, policy: KernelPolicy) -> None:
    group_work = work_of_group(group)
    work = group_work.work
    legal, rejected = legal_kernels(group_work, target, frozenset(policy.forbid))
    legal, rejected = _deterministic(legal, rejected, policy)
    if not legal:
        reasons = "; ".join(f"{kernel}: {why}" for kernel, why in rejected.items())
        raise UnsupportedOp(
            f"no kernel of target {target.backend.data} runs group '{group.id.data}' of kind {work.kind}: "
            f"{reasons or 'none has this kind'}; split the group or choose another target"
        )
    costs = {kernel.id: kernel.cost_us(work, target) for kernel in legal}
    choice = _choose(work, legal, costs, policy, rejected)
    for kernel in legal:
        if kernel.id != choice.kernel.id:
            rejected[kernel.id] = f"predicted {costs[kernel.id]:.2f} us, not {choice.expected_us:.2f}"
    group.properties["kernel"] = kernel_record(choice.kernel, choice.kernel.record(work, target))
    cost = {"expected_us": FloatAttr(round(choice.expected_us, 3), f64)}
    record(module, SelectKernelsPass.name, [group.id.data], choice.kernel.id, choice.because, rejected, cost)


def kernel_record(kernel: KernelDescriptor, entries: Mapping[str, Attribute]) -> KernelAttr:
    """The record of `kernel` with its version and determinism class in front."""
    own: dict[str, Attribute] = {
        "version": IntegerAttr(kernel.version, i64),
        "determinism": StringAttr(kernel.determinism),
    }
    return KernelAttr(kernel.id, {**own, **entries})


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


def _choose(
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


def descriptor(record: KernelAttr, target: TargetAttr) -> KernelDescriptor:
    """The kernel a record names. Raises PolicyError if the target's backend has none of that id."""
    kernels = get_kernels(target.backend.data)
    if (kernel := kernels.get(record.kernel.data)) is None:
        raise PolicyError(
            f"kernel '{record.kernel.data}' is not one of backend '{target.backend.data}': {', '.join(kernels)}"
        )
    return kernel
