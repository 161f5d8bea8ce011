"""How a block-quantised weight lies in tiles, the order in which warps read it. Imports no code generator.

A panel has 16 rows of the weight, the rows of a tensor-core product (mma.m16n8k16). Along K it is a sequence of tiles,
and a warp reads a tile with one load of up to 16 bytes for each piece: all lanes of a piece lie side by side. What a
lane reads is what it multiplies, so nothing is exchanged and no byte is read twice:

- Words of codes. Lane ``4 g + t`` has columns ``16 s + 4 t + 2 j + e`` (s, j, e each 0 or 1) of every chunk of 32 for
  rows g and g + 8. Bits ``4 i + 16 e`` on of a word, with ``i = 2 s + j``, are the low four bits of such a code: so a
  shift and a mask give the two halves of a register of the product. Bits above the lower four have words of their own,
  in the same order. Codes that are floats stay whole: bits ``8 (i % 2) + 16 e`` on of word ``i // 2`` are one. `fields`
  says it as a table.
- Words of factors, which the four lanes of rows g and g + 8 share: floats as the scheme stores them, then the whole
  numbers of parts, a byte each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    """A float of a factor, for both rows of a lane.

    Args:
        factor: 0 for the scale, 1 for the minimum.
        part: The first part of the tile that it is for.
        word: The word with that of row g, in its low half if it has 16 bits.
        stored: Its type. That of row g + 8 is in the high half, or the next word.
    """

    factor: int
    part: int
    word: int
    stored: str

    @property
    def words(self) -> int:
        """How many it takes for both rows."""
        return 1 if self.stored == "f16" else 2


@dataclass(frozen=True)
class Field:
    """Bits of two codes in a word of a lane, as bits of the halves of a factor.

    Args:
        word: Number of the word.
        shift: To the right; to the left if it is negative.
        mask: What is kept.
    """

    word: int
    shift: int
    mask: int


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

    @cached_property
    def high_bits(self) -> int:
        """Bits that a code has room for above the lower four, in words of their own: 0, 1, 2 or 4."""
        if self.bits.floats is not None:
            return 0
        return next(room for room in (0, 1, 2, 4) if self.bits.code_bits - _LOW_BITS <= room)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The scale, and the minimum if there is one."""
        minimum = self.bits.minimum
        return (self.bits.scale,) if minimum is None else (self.bits.scale, minimum)

    @property
    def low_words(self) -> int:
        """Words of a lane with low bits, one for each chunk and each of its two rows; of whole floats two."""
        return (4 if self.bits.floats is not None else 2) * self.chunks

    @property
    def high_words(self) -> int:
        """Words of a lane with high bits: each has those of ``4 / high_bits`` words of low bits, in order."""
        return self.low_words * self.high_bits // 4

    @property
    def block_parts(self) -> int:
        """Parts of a block."""
        return self.stored.length // self.bits.part

    def fields(self, chunk: int, half: int, pair: int) -> list[Field]:
        """Of pair `i` of a chunk of row g (half 0) or g + 8: whole numbers are the lowest bits of halves, floats lie as
        halves have them, whose exponents have a bit more."""
        unit, low, high = 2 * chunk + half, 4 * pair, 0
        if self.bits.floats is not None:
            word, byte = float_place(unit, pair)
            return [
                Field(word, 8 * byte - 7, _twice(0b1111111 << 7)),
                Field(word, 8 * byte - 8, _twice(1 << 15)),
            ]
        if self.high_bits:
            place = unit % (4 // self.high_bits)
            high = self.high_bits * (4 * place + pair)
        high_word = self.low_words + unit * self.high_bits // 4
        found = [Field(unit, low, _twice(0b1111))]
        if self.high_bits:
            found.append(Field(high_word, high - _LOW_BITS, _twice(((1 << self.high_bits) - 1) << _LOW_BITS)))
        return found

    @property
    def code_unit(self) -> float:
        """What a code of 1 is as a half."""
        return 2.0**-8 if self.bits.floats is not None else 2.0**-24

    @cached_property
    def floats(self) -> list[Float]:
        """All floats, in the order of their words."""
        found: list[Float] = []
        word = self.low_words + self.high_words
        for number, factor in enumerate(self.factors):
            for part in range(0, self.parts, 1 if factor.step else self.block_parts):
                found.append(Float(number, part, word, factor.stored))
                word += found[-1].words
        return found

    def float_of(self, factor: int, part: int) -> Float:
        """The float of a factor of a part."""
        return max((each for each in self.floats if each.factor == factor and each.part <= part), key=_part)

    @cached_property
    def numbers(self) -> list[Number]:
        """All numbers of parts, in the order of their bytes."""
        last = self.floats[-1]
        first = last.word + last.words
        kept = [
            (factor, part, half)
            for part in range(self.parts)
            for factor, each in enumerate(self.factors)
            if each.number is not None
            for half in range(2)
        ]
        return [Number(*key, first + index // 4, index % 4) for index, key in enumerate(kept)]

    @cached_property
    def words(self) -> int:
        """Words that a lane reads of a tile."""
        last = self.floats[-1]
        return last.word + last.words + -(-len(self.numbers) // 4)

    @cached_property
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

    @cached_property
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


def float_place(unit: int, pair: int) -> tuple[int, int]:
    """The word of a pair of whole floats of a chunk of a row, and the byte of the first one; the second is two after
    it."""
    return 2 * unit + pair // 2, pair % 2


def _part(each: Float) -> int:
    return each.part


def _twice(mask: int) -> int:
    """In both halves of a word."""
    return mask | mask << 16


def _loads(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """First words and counts of loads of 4, 2 and 1 words."""
    while start < stop:
        count = next(width for width in (4, 2, 1) if start + width <= stop)
        yield start, count
        start += count


def has_tiles(scheme: str) -> str | None:
    """Why the weights of a scheme have no tiles; None if they have."""
    bits = BLOCK_BITS[scheme]
    if bits.floats not in (None, "f8E4M3FN"):
        return f"codes of {scheme} are {bits.floats}, tiles take f8E4M3FN and whole numbers"
    if bits.part % RUN or not _LOW_BITS <= bits.code_bits <= _MOST_BITS:
        return f"{scheme} has parts of {bits.part} codes of {bits.code_bits} bits; tiles take 4 to 8 bits, in sixteens"
    return odd_reason(scheme)


def odd_reason(scheme: str) -> str | None:
    """Why no two bytes of a block can be loaded at once; None if they can."""
    nbytes = BLOCK_SCHEMES[scheme].nbytes
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
