"""Every decision about a scatter that sorts: its launches, and where in the workspace they leave what. No code is made.

Indices are sorted stably by their rows, in passes of one digit of 8 bits each, the lowest first; then every row takes
its updates in their order. What is sorted are *entries* of 8 bytes: a row in the upper half, the number of the index in
the lower. Launches: one that clears where the list of each row begins; two a pass, which count digits and place
entries; and one that adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, RecordCodec, Whole, powers_of_two
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch

THREADS = 256
"""Of a block; as many as a digit has values."""
DIGITS = 256
DIGIT_BITS = 8
ITEMS = {False: 4, True: 8}
"""Entries of a thread that are placed together, by whether there are enough of them for all blocks: else more would
make fewer blocks, which are what hides how long a pass waits."""
LONG_LIST = 8
"""Updates of a row, on the average, from which on so many are read together."""
SHORT_LOOKS = 2
"""How many else: one or two are the whole list then, and registers are few enough to fill the device."""
ENTRY_BYTES = 8


@dataclass(frozen=True)
class SortSpec:
    """The decisions about one scatter.

    Args:
        rows, columns: Of the result.
        count: Indices.
        vector: Neighbouring columns that a thread has.
        lanes: Threads that share a row.
        blocks: That share the sorting.
        items: Entries of a thread that are placed together.
    """

    rows: int
    columns: int
    count: int
    vector: Annotated[int, Entry(powers_of_two(1, PIECE_BYTES))]
    lanes: Annotated[int, Entry(powers_of_two(1, THREADS))]
    blocks: Annotated[int, Entry(Whole(1))]
    items: Annotated[int, Entry(OneOf(tuple(ITEMS.values())))]

    @property
    def passes(self) -> int:
        """Digits that tell rows apart."""
        return max(1, -(-(self.rows - 1).bit_length() // DIGIT_BITS))

    @property
    def looks(self) -> int:
        """Entries of a row's list that are read at a time."""
        return LONG_LIST if self.count >= LONG_LIST * self.rows else SHORT_LOOKS

    @property
    def span(self) -> int:
        """Entries of a block: whole tiles."""
        tile = THREADS * self.items
        return -(-self.count // (self.blocks * tile)) * tile

    @property
    def grids(self) -> list[tuple[int, int]]:
        """Of each launch."""
        sorting = [(self.blocks, 1)] * (2 * self.passes)
        rows = -(-self.rows // (THREADS // self.lanes))
        return [
            (-(-self.rows // THREADS), 1),
            *sorting,
            (rows, -(-self.columns // (self.lanes * self.vector))),
        ]

    # The workspace

    @property
    def counts_at(self) -> int:
        """Byte at which the table of counts begins: after a word for each row."""
        return -(-4 * self.rows // PIECE_BYTES) * PIECE_BYTES

    def entries_at(self, after: int) -> int:
        """Byte at which the entries lie after so many passes, two buffers in turn."""
        both = self.counts_at + 4 * DIGITS * self.blocks
        return both + (after - 1) % 2 * ENTRY_BYTES * self.count

    @property
    def workspace_bytes(self) -> int:
        """Of all of it."""
        return self.entries_at(min(2, self.passes)) + ENTRY_BYTES * self.count


CODEC = RecordCodec(SortSpec)


def decide(
    operand: OperandInfo, indices: OperandInfo, updates: OperandInfo, result: OperandInfo, arch: GpuArch
) -> SortSpec:
    """The decisions for these operands."""
    rows, columns, count = operand.shape[0], prod(operand.shape[1:]), indices.shape[0]
    vector = PIECE_BYTES // ELEMENT_BYTES[operand.dtype]
    while vector > 1 and not all(_has_vectors(each, vector) for each in (operand, updates, result)):
        vector //= 2
    lanes = min(THREADS, 1 << (-(-columns // vector) - 1).bit_length())
    most = 2 * arch.multiprocessors
    items = ITEMS[count >= most * THREADS * ITEMS[True]]
    blocks = max(1, min(most, -(-count // (THREADS * items))))
    return SortSpec(rows, columns, count, vector, lanes, blocks, items)


def _has_vectors(operand: OperandInfo, vector: int) -> bool:
    """Whether every row lies in one piece that so many elements divide, from aligned places on."""
    dense = 1
    for size, stride in zip(reversed(operand.shape[1:]), reversed(operand.strides[1:]), strict=True):
        if size > 1 and stride != dense:
            return False
        dense *= size
    return all(value % vector == 0 for value in (dense, operand.strides[0], operand.offset))
