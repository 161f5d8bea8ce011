"""The descriptor of the CPU kernel of poolings. No code generator is imported."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.legality import (
    DETERMINISM,
    VERSION,
    PlainOperands,
    level_of,
    strided,
    threads_of,
)
from aicf.backends.cpu.pool_spec import (
    COMBINATION_ORDER,
    MAX_ROW,
    PoolSpec,
    choose,
    pool_record,
    read_pool,
)
from aicf.dialects.emit_types import TargetAttr


@dataclass(frozen=True)
class PoolKernel(PlainOperands):
    """The rows of a window into one row in cache, with what lies around it, and then its columns."""

    id: str = "cpu.pool"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"pool"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        x, y = work.operands[0], work.results[0]
        if max(x.shape[-1], y.shape[-1]) > 1 and (x.strides[-1], y.strides[-1]) != (1, 1):
            return "the elements of its rows are not side by side"
        problem = read_pool(work.attrs, strided(x), strided(y))
        last = problem.axes[-1]
        if max(last.whole + last.low, last.length) > MAX_ROW:
            return f"its rows are longer than {MAX_ROW} elements"
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return self._choose(work, target).cost_us()

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        return {**pool_record(self._choose(work, target)), **work.attrs}

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: one order for each window, whatever the batch."""
        return COMBINATION_ORDER

    def _choose(self, work: Work, target: TargetAttr) -> PoolSpec:
        problem = read_pool(work.attrs, strided(work.operands[0]), strided(work.results[0]))
        return choose(problem, level_of(target), threads_of(target))
