"""The descriptor of a gradient whose K is cut into parts: what its kernels have in common.

A kernel adds the decisions about a tile, which is that of a product. The parts lie in a workspace, and a second launch
adds them in ascending order; where there is one part and its columns lie evenly in the result, the product stores them
there itself. No code generator is imported here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any, Generic, TypeVar

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record, Whole, integer, read_entry
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.problem import windows_of
from aicf.backends.cuda.families.conv.weight_grad.problem import (
    WeightGradProblem,
    weight_grad_of_work,
    weight_grad_reason,
)
from aicf.backends.cuda.families.conv.weight_grad.sums import schedule as sums
from aicf.backends.cuda.families.conv.windows import KOrder
from aicf.backends.cuda.families.records import CudaKernel, Triple, integers, start_entries
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

MOST_PARTS = 512
"""Of K. A sum waits for all of its parts."""
PARTS = Whole(1, MOST_PARTS)
_FEW_PARTS = 2
"""Numbers of parts that are offered of one tile."""
_MOST_WORKSPACE = 1 << 30
"""Bytes of all parts."""

Tile = TypeVar("Tile")


@dataclass(frozen=True)
class Parted(Generic[Tile]):
    """Every decision about one gradient.

    Args:
        tile: Those about the product of a part.
        parts: Of K.
    """

    tile: Tile
    parts: int


class PartedKernel(CudaKernel[Parted[Tile]]):
    """Gradients of weights, by the product of each part."""

    kinds = frozenset({"conv_weight_grad"})

    # What a kernel adds

    @abstractmethod
    def dtype_reason(self, work: Workload) -> str | None:
        """Why operands of this type are not multiplied as the work asks, None if they are."""

    @abstractmethod
    def order(self, problem: WeightGradProblem) -> KOrder:
        """The columns of the product."""

    @abstractmethod
    def k_of(self, problem: WeightGradProblem, tile: Tile) -> int:
        """Pixels of a stage."""

    @abstractmethod
    def tiles(self, problem: WeightGradProblem, arch: GpuArch) -> Iterable[Tile]:
        """The tiles worth measuring, whatever the number of parts."""

    @abstractmethod
    def reason(self, schedule: Parted[Tile], problem: WeightGradProblem, arch: GpuArch) -> str | None:
        """Why a part cannot be summed so, None if it can."""

    @abstractmethod
    def wave(self, problem: WeightGradProblem, tile: Tile, arch: GpuArch) -> tuple[int, int]:
        """Tiles of one part of all groups, and how many run at a time."""

    @abstractmethod
    def part_us(self, schedule: Parted[Tile], problem: WeightGradProblem, arch: GpuArch) -> float:
        """Predicted microseconds of the product."""

    @abstractmethod
    def entries(
        self, schedule: Parted[Tile], problem: WeightGradProblem, arch: GpuArch
    ) -> dict[str, Attribute]:
        """What a record says of the product and its launch."""

    @abstractmethod
    def read_tile(self, record: Record) -> Tile:
        """The tile of a record. Raises RecordError if it holds none."""

    # What it may add

    def channels_reason(self, problem: WeightGradProblem) -> str | None:
        """Why the channels of a group are too few or too many, None if they are not."""
        is_single = problem.windows.channels == 1 and problem.groups > 1
        return (
            "it has one input channel a group: tiles would hold next to nothing else" if is_single else None
        )

    def memory_reason(self, problem: WeightGradProblem) -> str | None:
        """Why the operands cannot be read where they lie, None if they can."""
        return None

    def steps(self, problem: WeightGradProblem, tile: Tile) -> int:
        """Stages of all pixels."""
        return problem.steps(self.k_of(problem, tile))

    # What follows

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := self.dtype_reason(work) or weight_grad_reason(work)) is not None:
            return reason
        problem, arch = weight_grad_of_work(work), arch_named(target.arch.data)
        if (reason := self.channels_reason(problem) or self.memory_reason(problem)) is not None:
            return reason
        return None if _ranked(self, problem, arch) else "no tile fits"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._ranked_of(work, target)[0][0]

    def schedule(self, work: Workload, target: TargetAttr) -> Parted[Tile]:
        """See `Kernel`: the tile and the parts that the prior prefers."""
        return self._ranked_of(work, target)[0][1]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: all tiles, each with the few numbers of parts that the prior prefers."""
        return [self.record_of(work, target, schedule) for _, schedule in self._ranked_of(work, target)]

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Parted[Tile]:
        return self.read_schedule(record)

    def read_schedule(self, record: Record) -> Parted[Tile]:
        """The decisions of a record. Raises RecordError that names the entry if it holds none."""
        return Parted(self.read_tile(record), read_entry(record, "parts", PARTS))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Parted[Tile]) -> str | None:
        problem = weight_grad_of_work(work)
        steps = self.steps(problem, schedule.tile)
        if schedule.parts != even_parts(steps, schedule.parts):
            return f"{steps} stages of K do not come in {schedule.parts} parts of which none is empty"
        return self.reason(schedule, problem, arch_named(target.arch.data))

    def record_of(self, work: Workload, target: TargetAttr, schedule: Parted[Tile]) -> dict[str, Attribute]:
        problem, arch, parts = weight_grad_of_work(work), arch_named(target.arch.data), schedule.parts
        columns, adds = self.order(problem).k, not self.is_direct(problem, schedule)
        order = "" if parts == 1 else f"; {sums.order_text(problem, columns, parts)}"
        entries = self.entries(schedule, problem, arch)
        inner = entries["combination_order"]
        assert isinstance(inner, StringAttr)
        return {
            **entries,
            "parts": integer(parts),
            "combination_order": StringAttr(inner.data + order),
            "workspace_bytes": integer(problem.parts_bytes(columns, parts) if adds else 0),
            "sum_grid": integers(sums.grid(problem, columns, parts) if adds else ()),
            "sum_block": integers((sums.THREADS, 1, 1) if adds else ()),
            **windows_of(work),
            "rounding": StringAttr(work.rounding),
            "may_alias": ArrayAttr([]),
            **start_entries(arch),
        }

    def is_direct(self, problem: WeightGradProblem, schedule: Parted[Tile]) -> bool:
        """Whether the product stores the gradient itself."""
        return schedule.parts == 1 and problem.result_access(self.order(problem)) is not None

    def part_k(self, problem: WeightGradProblem, schedule: Parted[Tile]) -> int:
        """Pixels of a part, whole stages of them."""
        k = self.k_of(problem, schedule.tile)
        return ceil(problem.steps(k) / schedule.parts) * k

    def predicted_us(self, schedule: Parted[Tile], problem: WeightGradProblem, arch: GpuArch) -> float:
        """Of both launches."""
        us, columns = self.part_us(schedule, problem, arch), self.order(problem).k
        if self.is_direct(problem, schedule):
            return us
        return us + sums.sum_us(problem, columns, schedule.parts, arch)

    def _ranked_of(self, work: Workload, target: TargetAttr) -> Sequence[tuple[float, Parted[Tile]]]:
        return _ranked(self, weight_grad_of_work(work), arch_named(target.arch.data))


@lru_cache(maxsize=4096)
def _ranked(
    kernel: PartedKernel[Any], problem: WeightGradProblem, arch: GpuArch
) -> Sequence[tuple[float, Parted[Any]]]:
    """Tiles with their best numbers of parts and predicted microseconds, the cheapest first."""
    found: list[tuple[float, Parted[Any]]] = []
    columns = kernel.order(problem).k
    for tile in kernel.tiles(problem, arch):
        steps = kernel.steps(problem, tile)
        each = [
            (kernel.predicted_us(schedule, problem, arch), schedule)
            for parts in part_counts(steps, *kernel.wave(problem, tile, arch))
            if problem.parts_bytes(columns, parts) <= _MOST_WORKSPACE
            and kernel.reason(schedule := Parted(tile, parts), problem, arch) is None
        ]
        found += sorted(each, key=lambda entry: entry[0])[:_FEW_PARTS]
    return sorted(found, key=lambda entry: entry[0])


def even_parts(steps: int, parts: int) -> int:
    """The number of parts of equally many stages of which none is empty, at most `parts`."""
    return ceil(steps / ceil(steps / parts))


def part_counts(steps: int, tiles: int, at_a_time: int) -> Sequence[int]:
    """Numbers of parts worth weighing: powers of two, and those that fill a GPU once or a few times."""
    wanted = [1 << shift for shift in range(MOST_PARTS.bit_length())]
    wanted += [max(1, waves * at_a_time // tiles) for waves in (1, 2, 3, 4)]
    return sorted({even_parts(steps, min(parts, steps, MOST_PARTS)) for parts in wanted})


def blocks(grid: Triple) -> int:
    """Of a grid."""
    return prod(grid)
