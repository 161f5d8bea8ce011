"""The problem of a product with a block-quantised weight, and how its panels lie. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.target import ELEMENT_BYTES
from aicf.dialects.block_bits import BLOCK_BITS, BlockBits
from aicf.dialects.block_schemes import BLOCK_SCHEMES

GROUP = 4
"""Neighbouring columns whose codes are the bytes of a word."""
WORD_ORDER = (0, 2, 1, 3)
"""Columns of a group in the order in which pairs of them are the even bytes of a word, and then the odd ones."""
_CHUNK = 32
"""Columns whose codes lie together; a part has as many, fewer, or several times as many."""


@dataclass(frozen=True)
class BlocksProblem:
    """``result = x @ weight.T`` for a packed weight of `n` rows and `k` columns.

    Args:
        scheme: Of the weight.
        x: f32[..., M, K].
        result: f32[..., M, N].
        indices: Of the matrix of each row of x, [..., M]; None if all rows have the same one.
        matrices: That there are.
    """

    scheme: str
    x: Strided
    result: Strided
    indices: Strided | None = None
    matrices: int = 1

    @property
    def m(self) -> int:
        """Rows of x, batches included."""
        return prod(self.x.shape[:-1])

    @property
    def n(self) -> int:
        """Rows of the weight."""
        return self.result.shape[-1]

    @property
    def k(self) -> int:
        """Columns of the weight."""
        return self.x.shape[-1]

    @property
    def bits(self) -> BlockBits:
        """Of the scheme."""
        return BLOCK_BITS[self.scheme]

    @property
    def readings(self) -> int:
        """How many times panels of a matrix are read for so many rows of x that are prepared at a time."""
        return 1 if self.indices is None else self.m

    @property
    def parts(self) -> int:
        """Parts of a row of the weight."""
        return self.k // self.bits.part


def problem_of(
    scheme: str, x: Strided, result: Strided, weight: Sequence[int], indices: Strided | None = None
) -> BlocksProblem:
    """The problem of a product with a weight u8[N, bytes of a row], or u8[E, N, bytes of a row] and indices."""
    return BlocksProblem(scheme, x, result, indices, 1 if indices is None else weight[0])


@dataclass(frozen=True)
class PanelLayout:
    """A panel: `lanes` rows of the weight side by side, part after part, padded with rows of zeros.

    A part has the codes of chunks of columns, and then the scales and the minima of the rows. Codes of 8 bits that are
    floats lie column by column, a byte for each row. Others are words, vectors of a u32 for each row. Byte `i` of a
    word has codes of columns ``4 g + i``: those of a group `g` if they have 8 bits; else first words with the low four
    bits of two groups each, then words with the high bits of as many groups as fit.

    Args:
        scheme: Of the weight.
        lanes: Rows of a panel.
    """

    scheme: str
    lanes: int

    @property
    def bits(self) -> BlockBits:
        """Of the scheme."""
        return BLOCK_BITS[self.scheme]

    @property
    def chunk(self) -> int:
        """Columns of a chunk."""
        return min(self.bits.part, _CHUNK)

    @property
    def chunks(self) -> int:
        """Chunks of a part."""
        return self.bits.part // self.chunk

    @property
    def groups(self) -> int:
        """Groups of columns of a chunk."""
        return self.chunk // GROUP

    @property
    def low_bits(self) -> int:
        """Bits of a code in the first words of a chunk."""
        return 8 if self.bits.code_bits == 8 else 4

    @property
    def high_bits(self) -> int:
        """Those in the words after them."""
        return self.bits.code_bits - self.low_bits

    @property
    def low_words(self) -> int:
        """Words of a chunk with the low bits."""
        return self.groups * self.low_bits // 8

    @property
    def words(self) -> int:
        """Words of a chunk."""
        return self.low_words + self.groups * self.high_bits // 8

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk."""
        return 4 * self.lanes * self.words

    @property
    def scales(self) -> int:
        """Byte of a part where its scales start."""
        return self.chunks * self.chunk_bytes

    @property
    def minima(self) -> int:
        """Byte of a part where its minima start."""
        return self.scales + self.lanes * ELEMENT_BYTES[self.bits.scale.dtype]

    @property
    def part_bytes(self) -> int:
        """Bytes of a part."""
        minimum = self.bits.minimum
        return self.minima + (self.lanes * ELEMENT_BYTES[minimum.dtype] if minimum is not None else 0)

    def row_parts(self, row_bytes: int) -> int:
        """Parts of a row of so many bytes."""
        scheme = BLOCK_SCHEMES[self.scheme]
        return row_bytes // scheme.nbytes * (scheme.length // self.bits.part)

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of all panels of a weight u8[..., rows, bytes of a row]: panels of a matrix after those of another."""
        *matrices, rows, row_bytes = shape
        return prod(matrices) * self.panels(rows) * self.row_parts(row_bytes) * self.part_bytes

    def panels(self, rows: int) -> int:
        """Panels of a matrix."""
        return -(-rows // self.lanes)
