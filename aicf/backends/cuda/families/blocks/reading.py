"""Text that reads codes and factors out of a block as it lies in a file, by the table of `dialects/block_bits.py`.

Blocks start at even addresses, and no better: what a block holds is read in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects.block_bits import Bits, BlockBits, Factor

_BYTES = 0x01010101
"""One in each byte of a word."""


def codes_text(bits: BlockBits, run: int, block: str, quarter: str) -> str:
    """A u32 with four neighbouring codes of a run, a byte each.

    Args:
        bits: Of the scheme.
        run: Number of the 16 codes in the block.
        block: The address of the block (u64).
        quarter: Which four of them: an i32 from 0 to 3.
    """
    fields = [
        _single_bits(each, block, quarter) if each.by_bit else _fields(each, block, quarter)
        for each in bits.codes(run)
    ]
    joined = f"u32({' | '.join(fields)})"
    return f"u32({joined} ^ u32({bits.flips * _BYTES}))" if bits.flips else joined


def _fields(bits: Bits, block: str, quarter: str) -> str:
    """Bits of four neighbouring bytes."""
    return _taken(_word(f"{block} + u64({bits.byte}) + u64({quarter} * i32(4))"), bits, _BYTES)


def _single_bits(bits: Bits, block: str, quarter: str) -> str:
    """Four bits of two bytes, each moved to the start of a byte."""
    both = f"u32(load_u16({block} + u64({bits.byte})))"
    four = f"u32(u32({both} >> u32({quarter} * i32(4))) & u32(15))"
    # A bit at 0, 7, 14 and 21 of the product is at the start of a byte; no two copies of the four bits meet there.
    spread = f"u32(u32({four} * u32({1 | 1 << 7 | 1 << 14 | 1 << 21})) & u32({_BYTES}))"
    return f"u32({spread} << u32({bits.to}))"


def _taken(word: str, bits: Bits, ones: int) -> str:
    """A field of each byte of a word, moved to where it belongs in the number."""
    down = f"u32({word} >> u32({bits.shift}))" if bits.shift else word
    kept = f"u32({down} & u32({((1 << bits.width) - 1) * ones}))"
    return f"u32({kept} << u32({bits.to}))" if bits.to else kept


def _word(address: str) -> str:
    """Four bytes at an even address."""
    return f"u32(u32(load_u16({address})) | u32(u32(load_u16({address} + u64(2))) << u32(16)))"


def float_text(factor: Factor, part: int, block: str) -> str:
    """The bits of the float of a part, as a u32."""
    address = f"{block} + u64({factor.byte + part * factor.step})"
    return f"u32(load_u16({address}))" if factor.stored == "f16" else _word(address)


def number_text(factor: Factor, part: int, block: str) -> str:
    """The whole number of a part, as a u32 from 0 to 255: 128 more than it is if it is an i8."""
    assert factor.number is not None, "only nested factors have numbers"
    fields = [_taken(f"load_u8({block} + u64({each.byte}))", each, 1) for each in factor.number(part)]
    joined = f"u32({' | '.join(fields)})"
    return f"u32({joined} ^ u32(128))" if factor.signed else joined


def widened_factor_text(factor: Factor, part: int, block: str) -> str:
    """A factor of a part, as f32."""
    stored = float_text(factor, part, block)
    value = f"f16_to_f32(u16({stored}))" if factor.stored == "f16" else f"bits_to_f32({stored})"
    if factor.number is None:
        return value
    number = f"i32({number_text(factor, part, block)})"
    whole = f"i32({number} - i32(128))" if factor.signed else number
    # No part of a fused multiply-add, which would not round it.
    return f"cuda.libdevice.fmul_rn({value}, f32({whole}))"


def value_text(bits: BlockBits, code: str, scale: str, minimum: str) -> str:
    """An element: ``scale * (code - offset)``, and its minimum; `code` is an i32."""
    value = f"{scale} * f32(i32({code} - i32({bits.offset})))" if bits.offset else f"{scale} * f32({code})"
    if bits.minimum is None:
        return value
    # Rounded twice, as the definition of the scheme is.
    return f"f32(cuda.libdevice.fmul_rn({scale}, f32({code})) {'+' if bits.sign > 0 else '-'} {minimum})"


def row_text(shape: Sequence[int], strides: Sequence[int], number: str) -> str:
    """The element (i64) at which a row of a tensor starts, by its number over all dims but the last."""
    terms: list[str] = []
    inner = 1
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        index = number if inner == 1 else f"i32({number} // i32({inner}))"
        outermost = inner * size == _rows(shape)
        index = index if outermost else f"i32({index} % i32({size}))"
        if size > 1:
            terms.append(f"i64({index}) * i64({stride})")
        inner *= size
    return f"i64({' + '.join(terms)})" if terms else "i64(0)"


def _rows(shape: Sequence[int]) -> int:
    count = 1
    for size in shape[:-1]:
        count *= size
    return count
