"""Descriptor of the kernel that keeps the best of boxes that overlap. No code generator is imported.

`codegen.py` turns its record into a launch.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.scatter.kernel import LAUNCH_US, THREADS, IndexedKernel, launch_entries
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import TargetAttr

PLACE_BYTES = 4
"""Of a box in the list of a thread."""
_ROUND_US = 1.0
"""Of one box that is kept: the best of all threads, and what follows from it. A guess, not measured."""
_OVERLAPS_PER_US = 200_000
"""Comparisons of two boxes, of all blocks together. A guess, not measured."""


class NonMaxSuppressionKernel(IndexedKernel):
    """A block a class: threads with lists of their own, and the best of all of them round by round."""

    id = "cuda.non_max_suppression"
    kinds = frozenset({"non_max_suppression"})

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: rounds follow each other; half of the boxes are taken to be gone meanwhile."""
        classes, boxes = _classes(work), work.operands[1].shape[2]
        kept = work.results[0].shape[2]
        waves = -(-classes // arch_named(target.arch.data).multiprocessors)
        compared = classes * boxes * kept / 2 / _OVERLAPS_PER_US
        return LAUNCH_US + waves * kept * _ROUND_US + compared

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        classes = _classes(work)
        return {
            "centred": work.attrs["centred"],
            "workspace_bytes": integer(classes * list_bytes(work.operands[1].shape[2])),
            **launch_entries(work, target, (classes, 1)),
        }


def list_bytes(boxes: int) -> int:
    """Of the lists of a block: as many entries for each thread."""
    return -(-boxes // THREADS) * THREADS * PLACE_BYTES


def _classes(work: Workload) -> int:
    """Of all samples."""
    return prod(work.operands[1].shape[:2])


KERNELS = (NonMaxSuppressionKernel(),)
"""The kernels of this family."""
