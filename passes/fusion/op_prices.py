"""What lowered ops take before groups are formed, as the kernels predict that would run them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from aicf.dialects.emit import YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.passes.analysis.work_done import operations_of
from aicf.passes.bodies.outlining import id_of, is_rematerializable, outline
from aicf.passes.bodies.workload import TARGET_ATTR, workload_of_body
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.fusion.profitability import Profitability
from aicf.passes.support.policy import policy_of


class OpPrices:
    """Prices of ops of one function: microseconds on the module's target, or scalar operations if it has none yet.

    Each is worked out once: the function must not change while it is asked.

    Args:
        unit: Which of the two, as in the keys of the ledger.
    """

    def __init__(self, module: ModuleOp, function: func.FuncOp) -> None:
        target = module.attributes.get(TARGET_ATTR)
        self._context = None
        if isinstance(target, TargetAttr):
            self._context = FusionContext(module, function, target, policy_of(module))
        self.unit = "operations" if self._context is None else "us"
        self._known: dict[tuple[Operation, ...], float] = {}

    def __call__(self, ops: Sequence[Operation]) -> float:
        """The price of ops in text order, the last of which gives the result: as one kernel, else one by one."""
        key = tuple(ops)
        if key not in self._known:
            self._known[key] = self._price([op for op in ops if not is_rematerializable(op)])
        return self._known[key]

    def _price(self, ops: Sequence[Operation]) -> float:
        if self._context is None:
            return sum(map(operations_of, ops))
        whole = inf if not ops else self._predicted(ops, self._context)
        return whole if whole < inf else sum(self._alone(op, self._context) for op in ops)

    def _alone(self, op: Operation, context: FusionContext) -> float:
        """Microseconds of one op; of its operands as they are in memory, where no kernel reads them through views."""
        if (us := self._predicted([op], context)) < inf:
            return us
        block = Block(arg_types=op.operand_types)
        block.add_op(copy := op.clone(dict(zip(op.operands, block.args, strict=True))))
        block.add_op(YieldOp(copy.results))
        work = workload_of_body(id_of(op), block, [("temp", False)] * len(block.args))
        profitability = Profitability.of(work, context.target, context.policy)
        return profitability.fused_us if profitability.legal else inf

    @staticmethod
    def _predicted(ops: Sequence[Operation], context: FusionContext) -> float:
        """Microseconds of ops as one kernel; infinite if there is none for them."""
        profitability = context.profitability(outline(ops, id_of(ops[-1]), [ops[-1].results[0]]))
        return profitability.fused_us if profitability.legal else inf
