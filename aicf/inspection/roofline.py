"""How fast each instruction could be at best: its arithmetic and its bytes, against the peaks of the target.

The roofline model of Williams, Waterman and Patterson (Communications of the ACM 52(4), 2009). An estimate for reports:
peaks are those that the cost models of the backend assume. No decision depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from aicf.backends.base import PACKED, Peaks, RooflineBackend
from aicf.backends.registry import get_backend
from aicf.dialects import logical
from aicf.dialects.emit import ResolvedOp, symbols
from aicf.dialects.traits import Unpacking
from aicf.dialects.types import tensor_info
from aicf.inspection.attribution import arithmetic
from aicf.passes.bodies.workload import body_of
from aicf.runtime.capture_plan import ModulePlan

OTHER = ""
"""In place of an element type: arithmetic outside products."""


@dataclass(frozen=True)
class Roofline:
    """The bound of one instruction.

    Args:
        operations: Scalar operations; a multiply and an add are two.
        arithmetic_us: Microseconds that these take at the peak.
        memory_us: Microseconds to move its operands and results once at the peak.
    """

    operations: int
    arithmetic_us: float
    memory_us: float

    @property
    def least_us(self) -> float:
        """The longer of the two: no implementation takes less on a target with these peaks."""
        return max(self.arithmetic_us, self.memory_us)


def peaks_of(plan: ModulePlan) -> Peaks | None:
    """The peaks of a plan's target; None if its backend does not say them."""
    backend = get_backend(plan.backend)
    return backend.peaks(plan.arch, plan.threads) if isinstance(backend, RooflineBackend) else None


def rooflines(module: ModuleOp, bytes_moved: Mapping[str, int], peaks: Peaks) -> dict[str, Roofline]:
    """The bounds of the instructions of final emit IR by name; of those without a body only that of their bytes.

    Args:
        bytes_moved: Bytes of the operands and results of each instruction.
    """
    table = symbols(module)
    found: dict[str, Roofline] = {}
    for op in module.walk():
        if isinstance(op, ResolvedOp):
            body = body_of(op, table)
            done = Counter[str]() if body is None else operations_by_type(body.body.block)
            name = op.instruction.data
            memory_us = peaks.memory_us(bytes_moved.get(name, 0))
            found[name] = Roofline(done.total(), _arithmetic_us(done, peaks), memory_us)
    return found


def operations_by_type(body: Block) -> Counter[str]:
    """Scalar operations of a body: of products by the element type of their left operand, or as `PACKED` where the
    right one is packed, of the rest as `OTHER`."""
    done = Counter[str]()
    for op in body.ops:
        done[_multiplied(op)] += arithmetic(op)
    return done


def _multiplied(op: Operation) -> str:
    """By what an op's operations are counted."""
    if not op.has_trait(logical.Contraction):
        return OTHER
    return PACKED if op.has_trait(Unpacking) else tensor_info(op.operands[0].type).element.name


def _arithmetic_us(done: Mapping[str, int], peaks: Peaks) -> float:
    return sum(count / peaks.products.get(dtype, peaks.operations) for dtype, count in done.items())
