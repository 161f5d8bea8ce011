"""What lowered ops take before groups are formed, as the kernels predict that would run them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf.dialects.emit_types import TargetAttr
from aicf.passes.analysis.cost import operations_of
from aicf.passes.support.fusion import FusionContext
from aicf.passes.support.identity import op_id
from aicf.passes.support.outlining import is_feeder, outline
from aicf.passes.support.policy import policy_of
from aicf.passes.support.work import TARGET_ATTR


class OpPrices:
    """Prices of ops of one function: microseconds on the module's target, or scalar operations if it has none yet.

    Args:
        unit: Which of the two, as in the keys of the ledger.
    """

    def __init__(self, module: ModuleOp, function: func.FuncOp) -> None:
        target = module.attributes.get(TARGET_ATTR)
        self._context = None
        if isinstance(target, TargetAttr):
            self._context = FusionContext(module, function, target, policy_of(module))
        self.unit = "operations" if self._context is None else "us"

    def __call__(self, ops: Sequence[Operation]) -> float:
        """The price of ops in text order, the last of which gives the result: as one kernel, else one by one."""
        ops = [op for op in ops if not is_feeder(op)]
        if self._context is None:
            return sum(map(operations_of, ops))
        whole = inf if not ops else self._predicted(ops, self._context)
        return (
            whole if whole < inf or len(ops) == 1 else sum(self._predicted([op], self._context) for op in ops)
        )

    @staticmethod
    def _predicted(ops: Sequence[Operation], context: FusionContext) -> float:
        """Microseconds of ops as one kernel; infinite if there is none for them."""
        plan = outline(ops, op_id(ops[-1]) or ops[-1].name, [ops[-1].results[0]])
        verdict = context.verdict(plan)
        return verdict.whole_us if verdict.legal else inf
