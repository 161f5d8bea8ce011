"""What the kernels of a target say of a possible group: who runs it, and whether it would take less time apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isinf

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.workload import Workload
from aicf.dialects.emit_types import TargetAttr
from aicf.passes.bodies.workload import GroupWorkload, legal_kernels
from aicf.policies.kernel_policy import KernelPolicy

SAME_TIME = 1 + 1e-6
"""Two predicted times with a smaller ratio are one time, rounded differently."""


def slower(fused_us: float, unfused_us: float) -> str:
    """The reason against a fusion that is predicted to take longer than its parts, and what forces it."""
    return f"predicted {fused_us:.3g} us fused and {unfused_us:.3g} us unfused; {LIST_THEM}"


LIST_THEM = "to fuse them anyway, list them in one of the policy's groups"


@dataclass(frozen=True)
class Profitability:
    """What kernels say of a piece of work; it holds for all work of the same structure.

    Times are cost priors: what groups form never depends on a tuning table.

    Args:
        legal: The kernels that run it.
        rejected: Why the others of its kind do not.
        no_code: Why there is no generated code, if the kind would need it.
        determinism: What the policy asks of results.
    """

    work: Workload
    target: TargetAttr
    legal: Sequence[AnyKernel]
    rejected: Mapping[str, str]
    no_code: str | None
    determinism: str

    @staticmethod
    def of(group_work: GroupWorkload, target: TargetAttr, policy: KernelPolicy) -> Profitability:
        """The profitability under a policy."""
        under_policy = group_work.under(policy)
        legal, rejected = legal_kernels(under_policy, target, frozenset(policy.forbid))
        return Profitability(
            under_policy.work, target, legal, rejected, group_work.no_code, policy.determinism
        )

    @cached_property
    def unfused_us(self) -> float:
        """Predicted microseconds of the parts; infinite where that does not matter, or a kernel does not say it."""
        times = [kernel.unfused_us(self.work, self.target) for kernel in self.legal]
        known = [us for us in times if us is not None]
        return min(known) if len(known) == len(times) else inf

    @cached_property
    def fused_us(self) -> float:
        """Predicted microseconds of the group."""
        return min(kernel.cost_us(self.work, self.target) for kernel in self.legal)

    @cached_property
    def least_us(self) -> float:
        """As `fused_us`, of the kernels whose results the policy permits, if there are any."""
        permitted = [k for k in self.legal if self.determinism == "any" or k.determinism == "bitwise"]
        return min(kernel.cost_us(self.work, self.target) for kernel in permitted or self.legal)

    def against(self, loss: str | None) -> str | None:
        """The loss, or that the parts are predicted to take less time; None if neither is so, or nothing is known."""
        if isinf(self.unfused_us):
            return None
        if loss is not None:
            return loss
        if self.work.batch_invariant:
            return None  # times depend on the batch, so what is one instruction may not depend on them
        if self.fused_us <= self.unfused_us * SAME_TIME:
            return None
        return slower(self.fused_us, self.unfused_us)
