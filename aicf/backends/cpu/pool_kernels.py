"""The descriptor of the CPU kernel of poolings. No code generator is imported."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.legality import (
    DETERMINISM,
    PlainOperands,
    level_of,
    strided,
    threads_of,
)
from aicf.backends.cpu.pool_spec import (
    PoolSpec,
    choose,
    pool_record,
    read_pool,
    refusal,
)
from aicf.dialects.emit_types import TargetAttr


@dataclass(frozen=True)
class PoolKernel(PlainOperands):
    """The rows of a window into one row in cache, with what lies around it, and then its columns; or, where channels
    lie side by side, vectors of those over all elements of a window."""

    id: str = "cpu.pool"
    version: int = 2
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"pool"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        return refusal(read_pool(work.attrs, strided(work.operands[0]), strided(work.results[0])))

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return self._choose(work, target).cost_us()

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        return {**pool_record(self._choose(work, target)), **work.attrs}

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: one order for each window, whatever the batch."""
        return self._choose(work, target).combination_order

    def _choose(self, work: Work, target: TargetAttr) -> PoolSpec:
        problem = read_pool(work.attrs, strided(work.operands[0]), strided(work.results[0]))
        return choose(problem, level_of(target), threads_of(target))
