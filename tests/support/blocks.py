"""Random block-quantised weights, and what each element is, told in Python's own arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np

from aicf.dialects.block_schemes import Scheme


def half(block: bytes, at: int) -> float:
    return struct.unpack_from("<e", block, at)[0]


def single(block: bytes, at: int) -> float:
    return struct.unpack_from("<f", block, at)[0]


def nibble(codes: bytes, number: int) -> int:
    """Of 32 elements in 16 bytes: the low bits of all bytes come first."""
    return codes[number] & 15 if number < 16 else codes[number - 16] >> 4


def fifth(bits: bytes, number: int) -> int:
    return (int.from_bytes(bits, "little") >> number & 1) << 4


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def six_bits(block: bytes, part: int) -> tuple[int, int]:
    """Scale and minimum of a part of a block of 256, from its 12 bytes."""
    s = block[4:16]
    if part < 4:
        return s[part] & 63, s[part + 4] & 63
    return s[part + 4] & 15 | s[part - 4] >> 6 << 4, s[part + 4] >> 4 | s[part] >> 6 << 4


def nested(block: bytes, number: int, code: int) -> float:
    scale, minimum = six_bits(block, number // 32)
    return half(block, 0) * scale * code - half(block, 2) * minimum


def four_of_256(codes: bytes, number: int) -> int:
    part, element = divmod(number, 32)
    byte = codes[32 * (part // 2) + element]
    return byte >> 4 if part % 2 else byte & 15


def q5_k(block: bytes, number: int) -> float:
    part, element = divmod(number, 32)
    code = four_of_256(block[48:], number) | (block[16 + element] >> part & 1) << 4
    return nested(block, number, code)


def q6_k(block: bytes, number: int) -> float:
    upper, place = divmod(number, 128)
    quarter, element = divmod(place, 32)
    low = block[64 * upper + element + 32 * (quarter % 2)]
    low = low >> 4 if quarter > 1 else low & 15
    high = block[128 + 32 * upper + element] >> 2 * quarter & 3
    scale = signed(block[192 + number // 16])
    return half(block, 208) * scale * ((low | high << 4) - 32)


def u4_16(block: bytes, number: int) -> float:
    group = number // 16
    return single(block, 4 * group) * nibble(block[16:], number) + single(block, 8 + 4 * group)


def u4_128(block: bytes, number: int) -> float:
    code = nibble(block[8 + 16 * (number // 32) :], number % 32)
    return single(block, 0) * code + single(block, 4)


def u8(block: bytes, number: int) -> float:
    return single(block, 0) * block[8 + number] + single(block, 4)


def e4m3(byte: int) -> float:
    """A sign, four bits of exponent with a bias of 7, and three of mantissa; no infinities, and one NaN."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    sign = -1.0 if byte & 128 else 1.0
    if byte & 127 == 127:
        return math.nan
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def scaled_e4m3(block: bytes, number: int) -> float:
    return single(block, 0) * e4m3(block[4 + number])


MEANINGS: dict[str, Callable[[bytes, int], float]] = {
    "F32": lambda block, number: struct.unpack("<f", block)[0],
    "F16": lambda block, number: half(block, 0),
    "BF16": lambda block, number: struct.unpack("<f", b"\0\0" + block)[0],
    "Q4_0": lambda block, number: half(block, 0) * (nibble(block[2:], number) - 8),
    "Q4_1": lambda block, number: half(block, 0) * nibble(block[4:], number) + half(block, 2),
    "Q5_0": lambda block, number: (
        half(block, 0) * ((nibble(block[6:], number) | fifth(block[2:6], number)) - 16)
    ),
    "Q5_1": lambda block, number: (
        half(block, 0) * (nibble(block[8:], number) | fifth(block[4:8], number)) + half(block, 2)
    ),
    "Q8_0": lambda block, number: half(block, 0) * signed(block[2 + number]),
    "Q4_K": lambda block, number: nested(block, number, four_of_256(block[16:], number)),
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "U4": lambda block, number: single(block, 0) * nibble(block[8:], number) + single(block, 4),
    "U4_16": u4_16,
    "U4_128": u4_128,
    "U8_16": u8,
    "U8_32": u8,
    "U8_128": u8,
    "E4M3_32": scaled_e4m3,
    "E4M3_128": scaled_e4m3,
}
"""Element `number` of a block, in f64."""

SCALES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "F32": (),
    "BF16": (),
}
"""Where a block has numbers of f16; the first two bytes if not listed."""

SINGLES = {
    "U4": 2,
    "U4_16": 4,
    "U4_128": 2,
    "U8_16": 2,
    "U8_32": 2,
    "U8_128": 2,
    "E4M3_32": 1,
    "E4M3_128": 1,
}
"""How many numbers of f32 a block starts with."""


def random_blocks(random: np.random.Generator, scheme: Scheme, count: int) -> np.ndarray:
    """Any bits but in scales, which are finite, and without NaN in codes that are floats."""
    blocks = random.integers(0, 256, (count, scheme.nbytes), dtype=np.uint8)
    singles = SINGLES.get(scheme.name, 0)
    if scheme.name.startswith("E4M3"):
        blocks[blocks & 127 == 127] ^= 1  # no NaN
    blocks[:, : 4 * singles] = random.standard_normal((count, singles), dtype=np.float32).view(np.uint8)
    for at in () if singles else SCALES.get(scheme.name, (0,)):
        scales = random.standard_normal(count).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if scheme.name in ("F32", "BF16"):
        values = random.standard_normal(count, dtype=np.float32).view(np.uint8).reshape(-1, 4)
        blocks = np.ascontiguousarray(values[:, 4 - scheme.nbytes :])
    return blocks


def random_rows(random: np.random.Generator, scheme: Scheme, rows: int, columns: int) -> np.ndarray:
    """u8[rows, bytes of a row]."""
    return random_blocks(random, scheme, rows * columns // scheme.length).reshape(rows, -1)


def widened(scheme: Scheme, packed: np.ndarray) -> np.ndarray:
    """f64[..., columns] of rows of bytes, element by element."""
    blocks = packed.reshape(-1, scheme.nbytes)
    meaning = MEANINGS[scheme.name]
    elements = [[meaning(block.tobytes(), number) for number in range(scheme.length)] for block in blocks]
    return np.array(elements).reshape(*packed.shape[:-1], -1)
