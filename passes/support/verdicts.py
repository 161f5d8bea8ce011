"""What the kernels of a target say of a possible group: who runs it, and whether it would take less time apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isinf

from aicf.backends.base import FusedKernel, KernelDescriptor, Work
from aicf.dialects.emit_types import TargetAttr
from aicf.passes.support.work import GroupWork, legal_kernels
from aicf.policies.kernel_policy import KernelPolicy

SAME_TIME = 1 + 1e-6
"""Two predicted times with a smaller ratio are one time, rounded differently."""


@dataclass(frozen=True)
class Verdict:
    """What kernels say of a piece of work; it holds for all work of the same structure.

    Times are cost priors: what groups form never depends on a tuning table.

    Args:
        legal: The kernels that run it.
        rejected: Why the others of its kind do not.
    """

    work: Work
    target: TargetAttr
    legal: Sequence[KernelDescriptor]
    rejected: Mapping[str, str]

    @staticmethod
    def of(group_work: GroupWork, target: TargetAttr, policy: KernelPolicy) -> Verdict:
        """The verdict under a policy."""
        asked = group_work.under(policy)
        legal, rejected = legal_kernels(asked, target, frozenset(policy.forbid))
        return Verdict(asked.work, target, legal, rejected)

    @cached_property
    def apart_us(self) -> float:
        """Predicted microseconds of the parts; infinite where that does not matter, or a kernel does not say it."""
        priced = [kernel for kernel in self.legal if isinstance(kernel, FusedKernel)]
        if len(priced) < len(self.legal):
            return inf
        return min(kernel.apart_us(self.work, self.target) for kernel in priced)

    @cached_property
    def whole_us(self) -> float:
        """Predicted microseconds of the group."""
        return min(kernel.cost_us(self.work, self.target) for kernel in self.legal)

    def against(self, loss: str | None) -> str | None:
        """The loss, or that the parts are predicted to take less time; None if neither is so, or nothing is known."""
        if isinf(self.apart_us):
            return None
        if loss is not None:
            return loss
        if self.work.batch_invariant:
            return None  # times depend on the batch, so what is one instruction may not depend on them
        if self.whole_us <= self.apart_us * SAME_TIME:
            return None
        return f"predicted {self.whole_us:.3g} us, and {self.apart_us:.3g} us apart"
