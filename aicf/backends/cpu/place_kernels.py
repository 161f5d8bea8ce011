"""Descriptors of the CPU kernels that write at computed places or look for the largest. No code generator is imported.

`place_code.py` turns their records into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.common.kernel import Kernel
from aicf.backends.common.record import Record, illegal, integer
from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ
from aicf.backends.cpu.legality import (
    DETERMINISM,
    VERSION,
    level_of,
    read_threads,
    strided,
    threads_of,
)
from aicf.backends.cpu.loop_spec import LoopSpec, choose, cost_us
from aicf.backends.cpu.records import get_int, get_text, loop_record, read_loops
from aicf.backends.cpu.target import ELEMENT_BYTES, HALVES, REGISTERS
from aicf.backends.moves import copy_nest
from aicf.backends.nests import LoopNest, Strided
from aicf.backends.scatters import Scatter
from aicf.dialects.emit_types import TargetAttr

_LOOKUP_CYCLES = 6
"""Of one index: load, check, jump."""
_STEP_CYCLES = 3
"""Of one comparison of two elements."""


@dataclass(frozen=True)
class LastUpdateKernel(Kernel[None]):
    """One pass over the indices; later ones overwrite."""

    id: str = "cpu.last_update"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"last_update"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`."""
        cycles = work.operands[0].shape[0] * _LOOKUP_CYCLES + work.results[0].shape[0] / 4
        return cycles / NOMINAL_GHZ / 1000

    def schedule(self, work: Work, target: TargetAttr) -> None:
        """See `Kernel`: there is nothing to decide."""

    def record_of(self, work: Work, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        """See `Kernel`."""
        return {"threads": integer(1)}

    def read(self, work: Work, record: Record, target: TargetAttr) -> None:
        """See `Kernel`."""


@dataclass(frozen=True)
class ScatterKernel(Kernel[Sequence[LoopSpec]]):
    """A copy, then the updates in order, each combined into its row."""

    id: str = "cpu.scatter"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"scatter_combine"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`."""
        copy, row, *back = scatter_parts(_scatter(work))
        level = level_of(target)
        rows = work.operands[1].shape[0] * cost_us(row, choose(row, level, 1))
        return sum(cost_us(nest, choose(nest, level, 1)) for nest in (copy, *back)) + rows

    def schedule(self, work: Work, target: TargetAttr) -> Sequence[LoopSpec]:
        """See `Kernel`."""
        return [choose(nest, level_of(target), 1) for nest in scatter_parts(_scatter(work))]

    def record_of(self, work: Work, target: TargetAttr, schedule: Sequence[LoopSpec]) -> dict[str, Attribute]:
        """See `Kernel`."""
        scatter = _scatter(work)
        decided = zip(scatter_parts(scatter), schedule, strict=True)
        sums = summed_apart(scatter)
        return {
            "mode": StringAttr(scatter.mode),
            "threads": integer(1),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in decided]),
            "combination_order": StringAttr("the operand, then its updates ascending"),
            **({} if sums is None else {"workspace_bytes": integer(_bytes_of(sums.result))}),
        }

    def read(self, work: Work, record: Record, target: TargetAttr) -> Sequence[LoopSpec]:
        """See `Kernel`."""
        return read_loops(record, scatter_parts(_scatter(work)))

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: Sequence[LoopSpec]) -> str | None:
        """See `Kernel`: updates of one row may follow each other, so one thread does all."""
        shared = next((spec.threads for spec in schedule if spec.threads != 1), None)
        return None if shared is None else f"in its 'parts', its {illegal('threads', shared, 1)}"


def summed_apart(scatter: Scatter) -> Scatter | None:
    """The scatter into f32 in workspace, where sums and products of f16 and bf16 wait until all updates are in."""
    apart = scatter.mode in ("add", "mul") and scatter.result.dtype in HALVES
    return scatter.summed_in(REGISTERS[scatter.result.dtype]) if apart else None


def scatter_parts(scatter: Scatter) -> list[LoopNest]:
    """The loops: the copy, one update, and the way back from the workspace if there is one."""
    if (sums := summed_apart(scatter)) is None:
        return [scatter.copy(), scatter.row()]
    return [sums.copy(), sums.row(), copy_nest(sums.result, scatter.result)]


def _bytes_of(buffer: Strided) -> int:
    return prod(buffer.shape) * ELEMENT_BYTES[buffer.dtype]


def _scatter(work: Work) -> Scatter:
    operands = (strided(operand) for operand in (*work.operands, *work.results))
    return Scatter(*operands, mode=get_text(work.attrs, "mode"))


@dataclass(frozen=True)
class TopkKernel(Kernel[int]):
    """Each row once, with the best so far kept in order."""

    id: str = "cpu.topk"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"topk_indices"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`: an element of a random row enters the best k with k / i, and moves half of them."""
        axis = get_int(work.attrs, "axis")
        size, k = work.operands[0].shape[axis], work.results[0].shape[axis]
        rows = prod(work.operands[0].shape) // size
        entered = min(size, k * (1 + max(0.0, (size / k) - 1) ** 0.5))
        cycles = rows * (size + entered * k / 2) * _STEP_CYCLES
        return cycles / NOMINAL_GHZ / 1000 / self.schedule(work, target)

    def record_of(self, work: Work, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        """See `Kernel`."""
        return {
            "axis": work.attrs["axis"],
            "smallest": work.attrs["smallest"],
            "threads": integer(schedule),
        }

    def read(self, work: Work, record: Record, target: TargetAttr) -> int:
        """See `Kernel`."""
        return read_threads(record, target)

    def schedule(self, work: Work, target: TargetAttr) -> int:
        """See `Kernel`: all threads, if each has rows enough for a barrier to pay."""
        elements = prod(work.operands[0].shape)
        rows = elements // work.operands[0].shape[get_int(work.attrs, "axis")]
        threads = threads_of(target)
        return threads if rows >= threads and elements >= 16384 else 1


KERNELS = (LastUpdateKernel(), ScatterKernel(), TopkKernel())
"""The kernels of this family."""
