"""Where the codes and factors of each scheme lie in the bits of a block, as a table. Imports no code generator.

Says for code generators what the definitions in `dialects/block_schemes.py` say in NumPy: element `i` of a part is
``scale * (code - offset)``, plus or minus the part's minimum if it has one. A code is a whole number, or a float of 8
bits, which has no offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

RUN = 16
"""Neighbouring elements whose codes lie in one way, in every scheme."""
LEAST_MAGNITUDE = 2.0**-100
"""The least that the step of activations of 8 bits follows from, which so is no subnormal number."""


@dataclass(frozen=True)
class Bits:
    """Where some bits of a number lie, or of each code of a run.

    Args:
        byte: In the block: of the number, or of the run's first code.
        shift, width: The bits of that byte.
        to: The position of the lowest one in the number.
        by_bit: Whether the codes of a run have a bit each of the two bytes, in place of those of a byte each.
    """

    byte: int
    shift: int
    width: int
    to: int = 0
    by_bit: bool = False


@dataclass(frozen=True)
class Factor:
    """A factor of each part: a float of the block, times a whole number of the part if there is one.

    Args:
        byte: Where the float starts.
        number: Where the number of a part lies.
        signed: Whether it is an i8.
        stored: Type of the float, f16 or f32.
        step: Bytes from the float of a part to that of the next; 0 if all parts share it.
    """

    byte: int
    number: Callable[[int], tuple[Bits, ...]] | None = None
    signed: bool = False
    stored: str = "f16"
    step: int = 0

    @property
    def dtype(self) -> str:
        """The narrowest type that holds it exactly."""
        return self.stored if self.number is None else "f32"


@dataclass(frozen=True)
class BlockBits:
    """A scheme.

    Args:
        part: Elements that share their factors.
        code_bits: Of a code.
        codes: By the number of a run in the block.
        offset: What is taken off a code.
        scale, minimum: Factors of a part; a minimum of `sign` is added.
        flips: Bits of a code that are flipped first: the sign of i8, which makes it a u8 that is 128 larger.
        floats: Type of codes that are floats; None if they are whole numbers.
    """

    part: int
    code_bits: int
    codes: Callable[[int], tuple[Bits, ...]]
    offset: int
    scale: Factor
    minimum: Factor | None = None
    sign: int = 1
    flips: int = 0
    floats: str | None = None

    @property
    def rounded_together(self) -> int:
        """Neighbours in a row of the other operand that share a step where that is rounded to 8 bits."""
        return min(self.part, 32)


def _nibbles(start: int) -> Callable[[int], tuple[Bits, ...]]:
    """16 bytes for two runs: the low bits are the first one, the high ones the second."""
    return lambda run: (Bits(start + RUN * (run // 2), 4 * (run % 2), 4),)


def _bytes(start: int) -> Callable[[int], tuple[Bits, ...]]:
    return lambda run: (Bits(start + RUN * run, 0, 8),)


def _fifths(start: int, nibbles: int) -> Callable[[int], tuple[Bits, ...]]:
    """As `_nibbles`, with bit 4 of the 32 codes in the bits of four bytes."""
    return lambda run: (Bits(nibbles, 4 * run, 4), Bits(start + 2 * run, 0, 1, 4, by_bit=True))


def _q4_k(run: int) -> tuple[Bits, ...]:
    part, half = divmod(run, 2)
    return (Bits(16 + 32 * (part // 2) + RUN * half, 4 * (part % 2), 4),)


def _q5_k(run: int) -> tuple[Bits, ...]:
    part, half = divmod(run, 2)
    low = Bits(48 + 32 * (part // 2) + RUN * half, 4 * (part % 2), 4)
    return (low, Bits(16 + RUN * half, part, 1, 4))


def _q6_k(run: int) -> tuple[Bits, ...]:
    half, rest = divmod(run, 8)
    quarter, place = divmod(rest, 2)
    low = Bits(64 * half + 32 * (quarter % 2) + RUN * place, 4 * (quarter // 2), 4)
    return (low, Bits(128 + 32 * half + RUN * place, 2 * quarter, 2, 4))


def _nested(first: int, nibble: int) -> Callable[[int], tuple[Bits, ...]]:
    """Numbers of 6 bits of 8 parts: in the low bits of four bytes, then in nibbles and the high bits of those bytes."""

    def number(part: int) -> tuple[Bits, ...]:
        if part < 4:
            return (Bits(first + part, 0, 6),)
        return (Bits(12 + part - 4, nibble, 4), Bits(first + part - 4, 6, 2, 4))

    return number


def _group(step: int = 0, groups: int = 1) -> tuple[Factor, Factor]:
    """Scales of f32, then minima."""
    return Factor(0, stored="f32", step=step), Factor(4 * groups, stored="f32", step=step)


_NESTED = Factor(0, _nested(4, 0)), Factor(2, _nested(8, 4)), -1

BLOCK_BITS: Mapping[str, BlockBits] = {
    "Q4_0": BlockBits(32, 4, _nibbles(2), 8, Factor(0)),
    "Q4_1": BlockBits(32, 4, _nibbles(4), 0, Factor(0), Factor(2)),
    "Q5_0": BlockBits(32, 5, _fifths(2, 6), 16, Factor(0)),
    "Q5_1": BlockBits(32, 5, _fifths(4, 8), 0, Factor(0), Factor(2)),
    "Q8_0": BlockBits(32, 8, _bytes(2), 128, Factor(0), flips=128),
    "Q4_K": BlockBits(32, 4, _q4_k, 0, *_NESTED),
    "Q5_K": BlockBits(32, 5, _q5_k, 0, *_NESTED),
    "Q6_K": BlockBits(16, 6, _q6_k, 32, Factor(208, lambda part: (Bits(192 + part, 0, 8),), signed=True)),
    "U4": BlockBits(32, 4, _nibbles(8), 0, *_group()),
    "U4_16": BlockBits(16, 4, _nibbles(16), 0, *_group(step=4, groups=2)),
    "U4_128": BlockBits(128, 4, _nibbles(8), 0, *_group()),
    "U8_16": BlockBits(16, 8, _bytes(8), 0, *_group()),
    "U8_32": BlockBits(32, 8, _bytes(8), 0, *_group()),
    "U8_128": BlockBits(128, 8, _bytes(8), 0, *_group()),
    "E4M3_32": BlockBits(32, 8, _bytes(4), 0, Factor(0, stored="f32"), floats="f8E4M3FN"),
    "E4M3_128": BlockBits(128, 8, _bytes(4), 0, Factor(0, stored="f32"), floats="f8E4M3FN"),
}
"""By the name of the scheme."""
