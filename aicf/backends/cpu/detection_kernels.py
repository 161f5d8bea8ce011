"""Descriptor of the CPU kernel that keeps the best of boxes that overlap. No code generator is imported.

`detection_code.py` turns its record into code.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ
from aicf.backends.cpu.legality import DETERMINISM, VERSION, PlainOperands, threads_of
from aicf.backends.cpu.records import integer
from aicf.backends.cpu.target import ELEMENT_BYTES
from aicf.dialects.emit_types import TargetAttr

_VISIT_CYCLES = 3
"""Of one score, read once."""
_OVERLAP_CYCLES = 14
"""Of one comparison of two boxes; a division is most of it."""
_SHARED_FROM = 4096
"""Fewest scores for which a meeting of threads pays."""


@dataclass(frozen=True)
class NonMaxSuppressionKernel(PlainOperands):
    """The boxes of a class that may be kept as a list, which shrinks in place with each box that is kept."""

    id: str = "cpu.non_max_suppression"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"non_max_suppression"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: half of the boxes of a class are taken to be gone while the kept ones are found."""
        classes, boxes = prod(work.operands[1].shape[:2]), work.operands[1].shape[2]
        kept = work.results[0].shape[2]
        cycles = classes * boxes * (_VISIT_CYCLES + kept / 2 * _OVERLAP_CYCLES)
        return cycles / NOMINAL_GHZ / 1000 / _threads(work, target)

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        threads = _threads(work, target)
        return {
            "centred": work.attrs["centred"],
            "threads": integer(threads),
            "workspace_bytes": integer(threads * work.operands[1].shape[2] * ELEMENT_BYTES["i64"]),
            "combination_order": StringAttr("falling scores, then rising places"),
        }


def _threads(work: Work, target: TargetAttr) -> int:
    """All, if each has classes enough for a barrier to pay."""
    scores, threads = work.operands[1].shape, threads_of(target)
    return threads if prod(scores[:2]) >= threads and prod(scores) >= _SHARED_FROM else 1


KERNELS = (NonMaxSuppressionKernel(),)
"""The kernels of this family."""
