"""How the CPU kernel that keeps the best of boxes goes about a class, and its workspace. Imports no code generator.

`codegen.py` and `ranking.py` emit what is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from xdsl.ir import Attribute

from aicf.backends.common.record import Entry, Record, RecordCodec, integer, powers_of_two
from aicf.backends.cpu.target import ELEMENT_BYTES

KEYS = {"f32": "i32", "f64": "i64"}
"""Element types of scores to those of the whole numbers in their order; see `ranking.py`."""
BOX_NUMBERS = 5
"""Of a kept box: low and high along two dimensions, and the area."""
FAN_OUT = 32
"""Keys of a node: of 16, 32 and 64 the fastest or next to it, whatever the width of a vector."""
_LINE_BYTES = 64

_SCORES_CYCLES = 4
"""Of a vector of scores, read once and ranked."""
_TAKE_CYCLES = 60
"""Of a level of the tree, the scores one of them, for a box that is taken from it: one waits for the other."""
_OVERLAP_CYCLES = 13
"""Of a box compared with a vector of others; a division is most of it."""
_TAKEN = 2
"""Boxes that are taken for one that is kept. It hangs on the boxes, of which nothing is known."""


@dataclass(frozen=True)
class SuppressionSpec:
    """Sizes of the suppression in one class, and what a thread has in the workspace for it.

    Args:
        boxes: How many there are, at least one.
        limit: How many of them are kept at most.
        dtype: Of boxes and scores.
        fan_out: Keys of a node of the tree that ranks the boxes.
        lanes: Kept boxes that a box is compared with at a time.
    """

    boxes: int
    limit: int
    dtype: str
    fan_out: Annotated[int, Entry(powers_of_two(2, 64))]
    lanes: Annotated[int, Entry(powers_of_two(2, 16))]

    @property
    def key(self) -> str:
        """Element type of the keys."""
        return KEYS[self.dtype]

    @property
    def levels(self) -> tuple[tuple[int, int], ...]:
        """Of each level of the tree, the one above the scores first: its first key, and how many nodes it has.

        A level has a key for each node of the level below it, in whole nodes; the last has one node.
        """
        levels, start, below = list[tuple[int, int]](), 0, -(-self.boxes // self.fan_out)
        while not levels or below > 1:
            nodes = -(-below // self.fan_out)
            levels.append((start, nodes))
            start, below = start + nodes * self.fan_out, nodes
        return tuple(levels)

    @property
    def tree_keys(self) -> int:
        """Of all levels."""
        start, nodes = self.levels[-1]
        return start + nodes * self.fan_out

    @property
    def row(self) -> int:
        """Elements from one number of all kept boxes to the next: a whole vector is written from the last box on."""
        return -(-(self.limit + self.lanes - 1) // self.lanes) * self.lanes

    @property
    def share_bytes(self) -> int:
        """Of the workspace of one thread: the kept boxes, then the tree; in whole cache lines."""
        bytes_ = (BOX_NUMBERS * self.row + self.tree_keys) * ELEMENT_BYTES[self.dtype]
        return -(-bytes_ // _LINE_BYTES) * _LINE_BYTES

    @property
    def cycles(self) -> float:
        """Of a class: the tree, and the boxes that are taken, each compared with half of what is kept in the end."""
        ranking = self.boxes / self.lanes * _SCORES_CYCLES
        taking = (len(self.levels) + 1) * _TAKE_CYCLES
        comparing = -(-self.limit // self.lanes) / 2 * _OVERLAP_CYCLES
        return ranking + min(self.boxes, _TAKEN * self.limit) * (taking + comparing)


_CODEC = RecordCodec(SuppressionSpec)


def suppression_record(spec: SuppressionSpec, threads: int) -> dict[str, Attribute]:
    """Every decision of a suppression that `threads` share."""
    return {
        "threads": integer(threads),
        **_CODEC.entries(spec),
        "workspace_bytes": integer(threads * spec.share_bytes),
    }


def suppression_spec(record: Record, boxes: int, limit: int, dtype: str) -> SuppressionSpec:
    """The decisions of a record. Raises RecordError if they are none."""
    return SuppressionSpec(boxes, limit, dtype, **_CODEC.values(record))
