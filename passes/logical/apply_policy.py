"""`apply-policy`: writes the policy into the module, where every later pass reads it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels, libraries_by_family
from aicf.dialects.emit import GroupOp, ProgramOp
from aicf.errors import PolicyError
from aicf.passes.bodies.workload import target_of
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import (
    EXECUTION_ATTR,
    POLICY_ATTR,
    PRECISION_ATTR,
    READ_FROM_ATTR,
    asks_for_precision,
)
from aicf.passes.support.works_on import ANYTHING, IS_FINAL, is_final
from aicf.policies.policy import AUTO, resolve_policy


@dataclass(frozen=True)
class ApplyPolicyPass(ModulePass):
    """Sets the module attributes `aicf.policy` (what runs) and `aicf.execution` (how it is executed), and
    `aicf.precision` (in which element types it computes) if the policy says anything of that.

    `policy` is `auto` (the passes choose freely), a JSON object, or the path of a JSON or YAML file. The kernels and
    libraries it names must exist on the module's target, so `set-target` comes first; the ids it names are checked by
    the passes that use them. What is decided once a program is final is spent, and `plan-capture` drops it from the
    attributes.
    """

    name = "apply-policy"
    works_on = ANYTHING

    policy: str = AUTO

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if is_final(op):
            raise PolicyError(f"{IS_FINAL}: a policy changes nothing of it; run raise-emit first")
        backend = target_of(op).backend.data
        policy = resolve_policy(self.policy)
        policy.kernel.check_kernels(get_kernels(backend), backend)
        policy.kernel.check_libraries(libraries_by_family(backend), backend)
        policy.execution.check_compile()
        asks = asks_for_precision(op, policy.precision)
        if asks and any(isinstance(inner, ProgramOp | GroupOp) for inner in op.walk()):
            raise PolicyError(
                "precision: the program has groups or instructions, whose element types are fixed; give the model that "
                "it was made from"
            )
        op.attributes[POLICY_ATTR] = policy.kernel.to_attr()
        op.attributes[EXECUTION_ATTR] = policy.execution.to_attr()
        op.attributes.pop(PRECISION_ATTR, None)
        op.attributes.pop(READ_FROM_ATTR, None)
        if asks:
            op.attributes[PRECISION_ATTR] = policy.precision.to_attr()
        source = "the default" if self.policy == AUTO else "given"
        stated = f": {', '.join(names)}" if (names := policy.stated()) else ""
        record_decision(op, self.name, ["module"], f"policy: {source}", f"option policy{stated}")
