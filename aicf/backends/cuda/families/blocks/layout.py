"""How a block-quantised weight lies in tiles, the order in which warps read it. Imports no code generator.

A panel has 16 rows of the weight, the rows of a tensor-core product (mma.m16n8k16). Along K it is a sequence of tiles,
and a warp reads a tile with one load of up to 16 bytes for each piece: all lanes of a piece lie side by side. What a
lane reads is what it multiplies, so nothing is exchanged and no byte is read twice:

- Words of codes. Lane ``4 g + t`` has columns ``16 s + 4 t + 2 j + e`` (s, j, e each 0 or 1) of every chunk of 32 for
  rows g and g + 8. Bits ``4 i + 16 e`` on of a word, with ``i = 2 s + j``, are the low four bits of such a code: so a
  shift and a mask give the two halves of a register of the product. Bits above the lower four have words of their own,
  in the same order.
- Words of factors, which the four lanes of rows g and g + 8 share: floats as the scheme stores them, then the whole
  numbers of parts, a byte each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import OneOf, integer, read_entry
from aicf.dialects.block_bits import BLOCK_BITS, RUN, BlockBits, Factor
from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme
from aicf.dialects.emit_types import LayoutAttr

TILES = "tiles_of_blocks"
"""Name of the layout."""
PANEL_ROWS, CHUNK = 16, 32
"""Rows of a panel; columns whose codes of one row a quad of lanes has in one word of low bits each."""
_LOW_BITS = 4
_MOST_BITS = 8
_LEAST_COLUMNS = 64
"""Of a tile: so many have 16 bytes of low bits for each lane."""


@dataclass(frozen=True)
class Piece:
    """Neighbouring words that lanes load at once.

    Args:
        word: Number of the first one among the words of a lane.
        count: How many: 1, 2 or 4.
        byte: Where the piece starts in the tile.
        is_shared: Whether the four lanes of a row read the same words.
    """

    word: int
    count: int
    byte: int
    is_shared: bool


@dataclass(frozen=True)
class Float:
    """A float of a block, of a factor, for one or both rows of a lane.

    Args:
        factor: 0 for the scale, 1 for the minimum.
        block: Of the tile.
        word: The word with that of row g, in its low half if it has 16 bits.
        stored: Its type. That of row g + 8 is in the high half, or the next word.
    """

    factor: int
    block: int
    word: int
    stored: str


@dataclass(frozen=True)
class Number:
    """A whole number of a part: the byte of a word.

    Args:
        factor: As in `Float`.
        part: Of the tile.
        half: 0 for row g, 1 for row g + 8.
        word, byte: Where it is.
    """

    factor: int
    part: int
    half: int
    word: int
    byte: int


@dataclass(frozen=True)
class TileLayout:
    """Tiles of a weight of a scheme."""

    scheme: str

    @property
    def bits(self) -> BlockBits:
        """Where the bits of a block lie."""
        return BLOCK_BITS[self.scheme]

    @property
    def stored(self) -> Scheme:
        """The sizes of a block."""
        return BLOCK_SCHEMES[self.scheme]

    @property
    def columns(self) -> int:
        """Of a tile: whole blocks."""
        return lcm(_LEAST_COLUMNS, self.stored.length)

    @property
    def chunks(self) -> int:
        """Of a tile."""
        return self.columns // CHUNK

    @property
    def blocks(self) -> int:
        """Of a row of a tile."""
        return self.columns // self.stored.length

    @property
    def parts(self) -> int:
        """Of a row of a tile."""
        return self.columns // self.bits.part

    @property
    def high_bits(self) -> int:
        """Bits that a code has room for above the lower four: 0, 1, 2 or 4."""
        return next(room for room in (0, 1, 2, 4) if self.bits.code_bits - _LOW_BITS <= room)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The scale, and the minimum if there is one."""
        minimum = self.bits.minimum
        return (self.bits.scale,) if minimum is None else (self.bits.scale, minimum)

    @property
    def low_words(self) -> int:
        """Words of a lane with low bits, one for each chunk and each of its two rows."""
        return 2 * self.chunks

    @property
    def high_words(self) -> int:
        """Words of a lane with high bits: each has those of ``4 / high_bits`` words of low bits, in order."""
        return self.low_words * self.high_bits // 4

    @property
    def floats(self) -> list[Float]:
        """All floats, in the order of their words."""
        found: list[Float] = []
        word = self.low_words + self.high_words
        for number, factor in enumerate(self.factors):
            for block in range(self.blocks):
                found.append(Float(number, block, word, factor.stored))
                word += 1 if factor.stored == "f16" else 2
        return found

    @property
    def numbers(self) -> list[Number]:
        """All numbers of parts, in the order of their bytes."""
        last = self.floats[-1]
        first = last.word + (1 if last.stored == "f16" else 2)
        kept = [
            (factor, part, half)
            for part in range(self.parts)
            for factor, each in enumerate(self.factors)
            if each.number is not None
            for half in range(2)
        ]
        return [Number(*key, first + index // 4, index % 4) for index, key in enumerate(kept)]

    @property
    def words(self) -> int:
        """Words that a lane reads of a tile."""
        last = self.floats[-1]
        after = last.word + (1 if last.stored == "f16" else 2)
        return after + -(-len(self.numbers) // 4)

    @property
    def pieces(self) -> list[Piece]:
        """What lanes load, in order."""
        byte, found = 0, list[Piece]()
        codes = self.low_words + self.high_words
        regions = ((0, self.low_words, False), (self.low_words, codes, False), (codes, self.words, True))
        for start, stop, is_shared in regions:
            for word, count in _loads(start, stop):
                found.append(Piece(word, count, byte, is_shared))
                byte += 4 * count * (8 if is_shared else 32)
        return found

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile."""
        last = self.pieces[-1]
        used = last.byte + 4 * last.count * (8 if last.is_shared else 32)
        return -(-used // 16) * 16

    def row_tiles(self, columns: int) -> int:
        """Tiles of a row of so many columns."""
        return -(-columns // self.columns)

    def nbytes(self, rows: int, row_bytes: int) -> int:
        """Bytes of a weight of rows of so many bytes."""
        columns = row_bytes // self.stored.nbytes * self.stored.length
        return -(-rows // PANEL_ROWS) * self.row_tiles(columns) * self.tile_bytes


def _loads(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """First words and counts of loads of 4, 2 and 1 words."""
    while start < stop:
        count = next(width for width in (4, 2, 1) if start + width <= stop)
        yield start, count
        start += count


def has_tiles(scheme: str) -> str | None:
    """Why the weights of a scheme have no tiles; None if they have."""
    bits, nbytes = BLOCK_BITS.get(scheme), BLOCK_SCHEMES[scheme].nbytes
    if bits is None:
        return f"codes of {scheme} are no fields of bits"
    if bits.part % RUN or not _LOW_BITS <= bits.code_bits <= _MOST_BITS:
        return f"{scheme} has parts of {bits.part} codes of {bits.code_bits} bits; tiles take 4 to 8 bits, in sixteens"
    return f"blocks of {scheme} have {nbytes} bytes, an odd number" if nbytes % 2 else None


def tiles_layout(scheme: str, shape: Sequence[int]) -> LayoutAttr:
    """The layout of a weight of so many rows and bytes of a row."""
    entries: dict[str, Attribute] = {
        "bytes": integer(TileLayout(scheme).nbytes(*shape)),
        "scheme": StringAttr(scheme),
    }
    return LayoutAttr(TILES, entries)


def read_layout(layout: LayoutAttr) -> TileLayout:
    """The tiles of a layout. Raises RecordError if an entry is missing or not legal."""
    return TileLayout(read_entry(layout.parameters_.data, "scheme", OneOf(tuple(BLOCK_BITS))))
