"""Lays codes, scales and zero points of a matrix out as rows of blocks; the schemes say what the bytes mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aicf.dialects.block_schemes import Scheme, scheme_of_groups
from aicf.runtime.tensors import Array

_HALF = 16
"""Columns whose codes are the low bits of bytes; the high ones are those of as many after them."""


@dataclass(frozen=True)
class BlockLayout:
    """How a matrix lies in blocks.

    Args:
        codes: Type of its codes: u4, u8 or f8E4M3FN.
        scheme: Of the blocks.
        group: Columns of a group of the scheme.
        times: Groups of the scheme in one of the matrix.
    """

    codes: str
    scheme: Scheme
    group: int
    times: int

    @staticmethod
    def of(codes: str, group: int, columns: int) -> BlockLayout | None:
        """That of groups that share a scale in rows of so many columns; None if there is none."""
        found = scheme_of_groups(codes, group, columns)
        return None if found is None else BlockLayout(codes, *found, group // found[1])

    def rows(self, codes: Array, scales: Array, zeros: Array | None = None) -> Array:
        """Rows of ``scale * (code - zero)``: u8[rows, bytes of a row].

        Args:
            codes: u8[rows, columns]; a byte each, also of 4 bits.
            scales: Floats [rows, groups], the last of which may have fewer columns; or [1, groups], of all rows.
            zeros: u8 in the shape of the scales, of codes that are whole numbers.
        """
        scales = scales.astype(np.float32)
        factors = [scales] if zeros is None else [scales, -(scales * zeros.astype(np.float32))]
        parts = [self._by_block(each, *codes.shape) for each in factors]
        if self.codes == "u4":
            halves = codes.reshape(len(codes), -1, 2, _HALF)
            codes = halves[:, :, 0] | halves[:, :, 1] << 4
        blocks = parts[0].shape[1]
        return np.concatenate([*parts, codes.reshape(len(codes), blocks, -1)], 2).reshape(len(codes), -1)

    def _by_block(self, factors: Array, rows: int, columns: int) -> Array:
        """The bytes of a factor of the scheme's groups: u8[rows, blocks, bytes]."""
        spread = np.repeat(factors, self.times, axis=1)[:, : columns // self.group]
        every = np.ascontiguousarray(np.broadcast_to(spread, (rows, spread.shape[1])))
        return every.view(np.uint8).reshape(rows, columns // self.scheme.length, -1)


def unpacked(words: Array, bits: int) -> Array:
    """The codes that i32 hold, the lowest bits first: i32[..., words] to u8[..., codes]."""
    data = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return data
    return np.stack([data & 15, data >> 4], -1).reshape(*words.shape[:-1], -1)
