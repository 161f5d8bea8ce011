"""`keep-whole`: ops that kernels of packages run in one piece are not lowered where such a kernel is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Region
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.user_kernel import UserKernelBase
from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PolicyError
from aicf.passes.bodies.outlining import id_of
from aicf.passes.bodies.workload import (
    TARGET_ATTR,
    GroupWorkload,
    legal_kernels,
    target_of,
    workload_of_body,
)
from aicf.passes.fusion.op_prices import OpPrices
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.support.identity import position_of, set_identity, sources
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import policy_of, without_bucket
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.kernel_policy import KernelPolicy


@dataclass(frozen=True)
class KeepWholePass(ModulePass):
    """Writes `logical.custom "logical.rms_norm"` in place of `logical.rms_norm` where a kernel that a package defines
    for that op is pinned by the policy, or predicted to take no longer than the kernels of what the op is lowered to.

    Does nothing where no package defines such a kernel for the target. What is kept is fused with nothing; an op that
    no kernel runs in the end is lowered by `legalize-for-target` after all.
    """

    name = "keep-whole"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if TARGET_ATTR not in op.attributes or not (runnable := _runnable(target_of(op))):
            return
        chooser = _Chooser(op, target_of(op), policy_of(op))
        for function in functions(op):
            for each in list(function.body.block.ops):
                if isinstance(each, logical.LogicalOp) and each.name in runnable:
                    chooser.decide(each)


def _runnable(target: TargetAttr) -> Mapping[str, Sequence[AnyKernel]]:
    """The ops of the dialect that kernels of packages run in one piece."""
    found: dict[str, list[AnyKernel]] = {}
    for kernel in get_kernels(target.backend.data).values():
        if isinstance(kernel, UserKernelBase) and kernel.spec.runs.startswith("logical."):
            found.setdefault(kernel.spec.runs, []).append(kernel)
    return found


@dataclass(frozen=True)
class _Chooser:
    module: ModuleOp
    target: TargetAttr
    policy: KernelPolicy

    def decide(self, op: logical.LogicalOp) -> None:
        """Replaces the op where a kernel runs it in one piece; the ledger says why, or why not."""
        whole = logical.CustomOp.of_whole(op)
        set_identity(whole, id_of(op), sources(op))
        whole.location = op.location
        legal, rejected = self._legal(whole)
        pinned = self._pinned(op, legal, rejected)
        parts_us = self._parts_us(op)
        costs = {kernel.id: kernel.cost_us(self._work(whole).work, self.target) for kernel in legal}
        best = pinned or min(costs, key=lambda kernel: costs[kernel], default=None)
        if best is None or (pinned is None and costs[best] > parts_us):
            why = {kernel: f"predicted {us:.3g} us" for kernel, us in costs.items()}
            because = (
                f"its parts are predicted to take {parts_us:.3g} us" if costs else "no kernel runs it whole"
            )
            self._record(op, "lowered", because, {**rejected, **why}, parts_us)
            whole.erase()
            return
        because = "the policy pins it" if pinned else f"its parts are predicted to take {parts_us:.3g} us"
        self._record(op, f"whole, for {best}", because, rejected, costs[best])
        whole.result.name_hint = op.results[0].name_hint
        Rewriter.replace_op(op, whole)

    def _legal(self, whole: logical.CustomOp) -> tuple[list[AnyKernel], dict[str, str]]:
        legal, rejected = legal_kernels(self._work(whole), self.target, frozenset(self.policy.forbid))
        if self.policy.determinism == "any":
            return legal, rejected
        unordered = [kernel for kernel in legal if kernel.determinism != "bitwise"]
        rejected |= {kernel.id: f"its results are {kernel.determinism} (determinism)" for kernel in unordered}
        return [kernel for kernel in legal if kernel not in unordered], rejected

    def _work(self, whole: logical.CustomOp) -> GroupWorkload:
        """The work of the op of operands that lie in memory as they are."""
        block = Block(arg_types=whole.operand_types)
        copy = whole.clone(dict(zip(whole.operands, block.args, strict=True)))
        block.add_ops([copy, YieldOp(copy.results)])
        origins = [("temp", False)] * len(block.args)
        return workload_of_body(id_of(whole), block, origins).under(self.policy)

    def _pinned(
        self, op: logical.LogicalOp, legal: Sequence[AnyKernel], rejected: Mapping[str, str]
    ) -> str | None:
        """The kernel of a package that the policy names for the op. Raises PolicyError if it cannot run it."""
        keys = (id_of(op), without_bucket(id_of(op)))
        key = next((key for key in keys if key in self.policy.kernels), None)
        if key is None:
            return None
        wanted = self.policy.kernels[key]
        if wanted in rejected:
            raise PolicyError(
                f"kernels.{key}: '{wanted}' cannot run it: {rejected[wanted]}", location=position_of(op)
            )
        return wanted if wanted in {kernel.id for kernel in legal} else None

    def _parts_us(self, op: logical.LogicalOp) -> float:
        """Predicted microseconds of what the op is lowered to, as one kernel if there is one, else one by one."""
        block = Block(arg_types=op.operand_types)
        copy = op.clone(dict(zip(op.operands, block.args, strict=True)))
        block.add_ops([copy, func.ReturnOp(*copy.results)])
        names = [f"x{index}" for index in range(len(block.args))]
        function = func.FuncOp(
            "parts",
            (list(op.operand_types), list(op.result_types)),
            Region(block),
            arg_attrs=ArrayAttr([_input(name) for name in names]),
        )
        module = ModuleOp([function], attributes=dict(self.module.attributes))
        LowerLogicalPass().apply(Context(), module)
        *parts, _ = function.body.block.ops
        return OpPrices(module, function)(parts)

    def _record(
        self, op: logical.LogicalOp, choice: str, because: str, rejected: Mapping[str, str], us: float
    ) -> None:
        cost = {"expected_us": microseconds(us)}
        record_decision(self.module, KeepWholePass.name, [id_of(op)], choice, because, rejected, cost)


def _input(name: str) -> DictionaryAttr:
    return DictionaryAttr(
        {logical.NAME_ATTR: StringAttr(name), logical.ROLE_ATTR: StringAttr("input")},
    )
