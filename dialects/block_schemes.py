"""How files store numbers: one table of schemes, each with the NumPy lines that are its definition.

A row of a tensor is a sequence of blocks. A block holds some elements with few bits each, and what they share: scales,
and offsets or minima, in blocks of 256 nested ones of 6 bits. A new scheme is a row of the table and its lines.

Source: the layouts of ggml (`ggml-common.h`) in words; elements of `q` are unsigned unless said otherwise.

Formats that keep scales and zero points in tensors of their own (AWQ, GPTQ, compressed-tensors, fp8, MatMulNBits) have
schemes of ours, in which their weights are laid out once, when they are read: a kernel then reads one stream, as it
does for ggml's, and needs no more operands. Scales are f32, which holds those of every format. Zero points, which
formats store as integers or floats, become a minimum, ``-scale * zero``, which is exact for scales of f16 and bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Scheme:
    """One way to store numbers.

    Args:
        name: As llama.cpp calls it, if it has it.
        number: Of the type in a GGUF file; None if these have none.
        length: Elements of a block.
        nbytes: Bytes of a block.
        widen: u8[blocks, nbytes] to f32[blocks, length].
    """

    name: str
    number: int | None
    length: int
    nbytes: int
    widen: Callable[[Array], Array]

    def array(self, data: Array, shape: tuple[int, ...]) -> Array:
        """The f32 array of a tensor.

        Args:
            data: u8 of all its blocks.
            shape: Its sizes, row-major; the last one is a multiple of `length`.
        """
        return self.widen(data.reshape(-1, self.nbytes)).reshape(shape)

    def rows(self, data: Array) -> Array:
        """The f32 numbers of rows of bytes: u8[..., bytes] to f32[..., columns], whole blocks to a row."""
        columns = data.shape[-1] // self.nbytes * self.length
        return self.array(data, (*data.shape[:-1], columns))


def _halves(block: Array, start: int) -> Array:
    """f32[blocks, 1] from the f16 at a byte of each block."""
    return block[:, start : start + 2].copy().view(np.float16).astype(np.float32)


def _nibbles(codes: Array) -> tuple[Array, Array]:
    """The low and the high four bits of bytes."""
    return codes & 15, codes >> 4


def _f32(block: Array) -> Array:
    return np.ascontiguousarray(block).view(np.float32)


def _f16(block: Array) -> Array:
    return _halves(block, 0)


def _bf16(block: Array) -> Array:
    wide = np.ascontiguousarray(block).view(np.uint16).astype(np.uint32) << 16
    return wide.view(np.float32)


def _four_bits(codes: Array) -> Array:
    """32 elements of 16 bytes: the low bits of all, then the high ones."""
    return np.concatenate(_nibbles(codes), 1)


def _fifth_bits(block: Array, start: int) -> Array:
    """Bit 4 of 32 elements, which are the bits of four bytes."""
    return np.unpackbits(block[:, start : start + 4], axis=1, bitorder="little") << 4


def _q4_0(block: Array) -> Array:
    """scale f16; x = scale (q - 8)."""
    return _halves(block, 0) * (_four_bits(block[:, 2:]).astype(np.float32) - 8)


def _q4_1(block: Array) -> Array:
    """scale f16, minimum f16; x = scale q + minimum."""
    return _halves(block, 0) * _four_bits(block[:, 4:]) + _halves(block, 2)


def _q5_0(block: Array) -> Array:
    """scale f16; x = scale (q - 16)."""
    codes = _four_bits(block[:, 6:]) | _fifth_bits(block, 2)
    return _halves(block, 0) * (codes.astype(np.float32) - 16)


def _q5_1(block: Array) -> Array:
    """scale f16, minimum f16; x = scale q + minimum."""
    codes = _four_bits(block[:, 8:]) | _fifth_bits(block, 4)
    return _halves(block, 0) * codes + _halves(block, 2)


def _q8_0(block: Array) -> Array:
    """scale f16; x = scale q, q signed."""
    return _halves(block, 0) * np.ascontiguousarray(block[:, 2:]).view(np.int8)


def _in_groups(block: Array, codes: Array, groups: int) -> Array:
    """scale f32 of each group, then minimum f32 of each; x = scale q + minimum, of codes u8[blocks, elements]."""
    scales, minima = (_f32(block[:, start : start + 4 * groups])[:, :, None] for start in (0, 4 * groups))
    grouped = codes.reshape(len(block), groups, -1)
    return (scales * grouped + minima).reshape(len(block), -1)


def _u4_16(block: Array) -> Array:
    """Two groups of 16; q has 4 bits."""
    return _in_groups(block, _four_bits(block[:, 16:]), 2)


def _u4(block: Array) -> Array:
    """A group of 32; q has 4 bits."""
    return _in_groups(block, _four_bits(block[:, 8:]), 1)


def _u4_128(block: Array) -> Array:
    """A group of 128; q has 4 bits, 32 elements after another."""
    return _in_groups(block, _four_bits(block[:, 8:].reshape(-1, 16)), 1)


def _u8(block: Array) -> Array:
    """A group; q has 8 bits."""
    return _in_groups(block, block[:, 8:], 1)


def _e4m3(block: Array) -> Array:
    """scale f32; x = scale q, q a float of 8 bits: f8E4M3FN."""
    return _f32(block[:, :4]) * block[:, 4:].view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def _nested(block: Array) -> tuple[Array, Array]:
    """Scales and minima of the 8 parts of a block of 256: f16 each, times 6 bits, in 12 bytes.

    Bytes 0 to 3 and 4 to 7 have the scales and minima of the first four parts in their low six bits; bytes 8 to 11 the
    low four bits of those of the others, whose high two bits are the high ones of bytes 0 to 3 and 4 to 7.
    """
    first, second, third = (block[:, start : start + 4] for start in (4, 8, 12))
    low, high = _nibbles(third)
    scales = np.concatenate([first & 63, low | (first >> 6 << 4)], 1)
    minima = np.concatenate([second & 63, high | (second >> 6 << 4)], 1)
    return _halves(block, 0) * scales, _halves(block, 2) * minima


def _in_parts(block: Array, codes: Array) -> Array:
    """256 elements of codes u8[blocks, 8, 32]: scale q - minimum, by parts."""
    scales, minima = _nested(block)
    return (scales[:, :, None] * codes - minima[:, :, None]).reshape(len(block), 256)


def _parts_of_four_bits(codes: Array) -> Array:
    """u8[blocks, 8, 32] of 128 bytes: of each 32 bytes, the low bits are a part and the high ones the next."""
    grouped = codes.reshape(-1, 4, 32)
    return np.stack(_nibbles(grouped), 2).reshape(-1, 8, 32)


def _q4_k(block: Array) -> Array:
    """scale, minimum f16; 8 nested scales and minima; x = scale q - minimum."""
    return _in_parts(block, _parts_of_four_bits(block[:, 16:]))


def _q5_k(block: Array) -> Array:
    """As Q4_K; bit 4 of element i of part p is bit p of byte i of 32."""
    high = (block[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1) << 4
    return _in_parts(block, _parts_of_four_bits(block[:, 48:]) | high)


def _q6_k(block: Array) -> Array:
    """16 scales of i8, scale f16; x = scale scale_i (q - 32), in two halves of 128.

    A half has 64 bytes of low bits, whose low and then high nibbles are its four quarters, and 32 bytes of high bits,
    two for each quarter.
    """
    low = np.stack(_nibbles(block[:, :128].reshape(-1, 2, 1, 64)), 2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = (block[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3) << 4
    codes = (low | high).astype(np.float32).reshape(-1, 16, 16) - 32
    scales = _halves(block, 208) * np.ascontiguousarray(block[:, 192:208]).view(np.int8)
    return (scales[:, :, None] * codes).reshape(len(block), 256)


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("F32", 0, 1, 4, _f32),
        Scheme("F16", 1, 1, 2, _f16),
        Scheme("BF16", 30, 1, 2, _bf16),
        Scheme("Q4_0", 2, 32, 18, _q4_0),
        Scheme("Q4_1", 3, 32, 20, _q4_1),
        Scheme("Q5_0", 6, 32, 22, _q5_0),
        Scheme("Q5_1", 7, 32, 24, _q5_1),
        Scheme("Q8_0", 8, 32, 34, _q8_0),
        Scheme("Q4_K", 12, 256, 144, _q4_k),
        Scheme("Q5_K", 13, 256, 176, _q5_k),
        Scheme("Q6_K", 14, 256, 210, _q6_k),
        Scheme("U4", None, 32, 24, _u4),
        Scheme("U4_16", None, 32, 32, _u4_16),
        Scheme("U4_128", None, 128, 72, _u4_128),
        Scheme("U8_16", None, 16, 24, _u8),
        Scheme("U8_32", None, 32, 40, _u8),
        Scheme("U8_128", None, 128, 136, _u8),
        Scheme("E4M3_32", None, 32, 36, _e4m3),
        Scheme("E4M3_128", None, 128, 132, _e4m3),
    )
}
"""By name."""

BLOCK_SCHEMES = {name: scheme for name, scheme in SCHEMES.items() if scheme.length > 1}
"""Those whose elements share scales, by name; the others are element types. Their order is that of
codes in emit IR: new ones go to the end."""

BY_NUMBER = {scheme.number: scheme for scheme in SCHEMES.values() if scheme.number is not None}

GROUPED = {
    "u4": {128: "U4_128", 32: "U4", 16: "U4_16"},
    "u8": {128: "U8_128", 32: "U8_32", 16: "U8_16"},
    "f8E4M3FN": {128: "E4M3_128", 32: "E4M3_32"},
}
"""Type of codes to the schemes whose groups have so many elements."""


def scheme_of_groups(codes: str, group: int, columns: int) -> tuple[Scheme, int] | None:
    """The scheme for groups that share a scale, and the elements of its own groups, of which a longer one becomes
    several with equal scales; None if no scheme's groups and blocks divide them.

    Args:
        codes: Their type.
        group: Elements of a group.
        columns: Elements of a row.
    """
    for own, name in GROUPED[codes].items():
        if group % own == 0 and columns % SCHEMES[name].length == 0:
            return SCHEMES[name], own
    return None
