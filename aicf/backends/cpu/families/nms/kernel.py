"""Descriptor of the CPU kernel that keeps the best of boxes that overlap. No code generator is imported.

`codegen.py` turns its record into code.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ
from aicf.backends.cpu.families.legality import level_of, read_threads, threads_of
from aicf.backends.cpu.families.nms.schedule import (
    FAN_OUT,
    SuppressionSpec,
    suppression_record,
    suppression_spec,
)
from aicf.dialects.emit_types import TargetAttr


@dataclass(frozen=True)
class Suppression:
    """How a class is worked on, and by how many threads."""

    spec: SuppressionSpec
    threads: int


class NonMaxSuppressionKernel(CpuKernel[Suppression]):
    """The boxes of a class one by one from a tree of their scores, each compared with those that were kept before."""

    id = "cpu.non_max_suppression"
    version = 2
    """2 brought the tree of scores, and boxes compared a vector at a time."""
    kinds = frozenset({"non_max_suppression"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        cycles = _classes(work) * _spec(work, target).cycles
        return cycles / NOMINAL_GHZ / 1000 / _threads(work, target)

    def schedule(self, work: Workload, target: TargetAttr) -> Suppression:
        return Suppression(_spec(work, target), _threads(work, target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: Suppression) -> dict[str, Attribute]:
        return {
            "centred": work.attrs["centred"],
            **suppression_record(schedule.spec, schedule.threads),
            "combination_order": StringAttr("falling scores, then rising places"),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Suppression:
        scores, (kept,) = work.operands[1], work.results
        spec = suppression_spec(record, scores.shape[2], kept.shape[2], scores.dtype)
        return Suppression(spec, read_threads(record, target))


def _classes(work: Workload) -> int:
    """Of all samples."""
    return prod(work.operands[1].shape[:2])


def _spec(work: Workload, target: TargetAttr) -> SuppressionSpec:
    scores, (kept,) = work.operands[1], work.results
    lanes = level_of(target).lanes(scores.dtype)
    return SuppressionSpec(scores.shape[2], kept.shape[2], scores.dtype, FAN_OUT, lanes)


def _threads(work: Workload, target: TargetAttr) -> int:
    """All, if each has a class and what they save pays for their meeting."""
    classes, threads = _classes(work), threads_of(target)
    saved = classes * _spec(work, target).cycles * (1 - 1 / threads)
    return threads if classes >= threads and saved > MEETING_CYCLES else 1


KERNELS = (NonMaxSuppressionKernel(),)
"""The kernels of this family."""
