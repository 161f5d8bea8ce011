"""Loads and stores of several neighbouring elements as text: how wide an access may be, and what its words hold.

A *vector* is a run of elements along one dim of a loop nest. Each access of it is made of pieces of 16 bytes at most,
as alignment and strides allow; an operand that does not move along the dim is loaded once. *Words* are what a load
gives; they stay packed in registers until a value is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.common.loop_nest import Access, LoopNest
from aicf.backends.cuda.codegen.scalar import (
    float8_packed,
    float8_unpacked,
    load_text,
    store_text,
    wrapped_text,
)
from aicf.backends.cuda.target import (
    ELEMENT_BYTES,
    FLOAT8,
    HALVES,
    PIECE_BYTES,
    SHORT_INTEGERS,
)

_OF_BYTES = {1: "load_u8", 2: "load_u16", 4: "load_u32", 8: "load_u32x2", 16: "load_u32x4"}
_OF_PAIRS = {size // 2: load for size, load in _OF_BYTES.items() if size > 1}
_LOADS: dict[str, dict[int, str]] = {
    "f64": {1: "load_f64", 2: "load_f64x2"},
    "i64": {1: "load_i64", 2: "load_i64x2"},
    "f32": {1: "load_f32", 2: "load_f32x2", 4: "load_f32x4"},
    "i32": {1: "load_u32", 2: "load_u32x2", 4: "load_u32x4"},
    "f16": _OF_PAIRS,
    "bf16": _OF_PAIRS,
    **dict.fromkeys(FLOAT8, _OF_BYTES),
    "i16": _OF_PAIRS,
    "i8": _OF_BYTES,
    "u8": _OF_BYTES,
    "i1": _OF_BYTES,
}
"""Element type and elements of one piece to the instruction. Stores have the same names."""


@dataclass(frozen=True)
class VectorAccess:
    """How one access of a nest touches a vector.

    Args:
        access: Of the nest.
        count: Elements of the vector.
        step: Elements between neighbours; 0 for one element that all share.
        piece: Elements of one load or store.
    """

    access: Access
    count: int
    step: int
    piece: int

    @property
    def dtype(self) -> str:
        """Element type in memory."""
        return self.access.dtype

    @property
    def bytes(self) -> int:
        """Of one element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def pieces(self) -> int:
        """How many loads or stores the vector takes."""
        return 1 if self.step == 0 else self.count // self.piece

    @property
    def words(self) -> int:
        """Registers that the loaded vector takes, still packed."""
        return self.pieces * _words(self.dtype, self.piece)

    def load(self, base: str, element: str) -> list[str]:
        """One expression for each piece of the vector that starts at `element`; each gives its words."""
        return [
            f"{_LOADS[self.dtype][self.piece]}({self._address(base, element, number)})"
            for number in range(self.pieces)
        ]

    def _address(self, base: str, element: str, number: int) -> str:
        ahead = number * self.piece * self.step * self.bytes
        address = f"{base} + u64(i64({element}) * {self.bytes})"
        return f"{address} + u64({ahead})" if ahead else address

    def unpack(self, words: Sequence[str], lines: list[str], prefix: str) -> list[str]:
        """The values of the vector's elements in registers; adds what it takes to `lines`."""
        per_piece = _words(self.dtype, self.piece)
        values: list[str] = []
        for number in range(self.pieces):
            own = words[number * per_piece : (number + 1) * per_piece]
            values += _unpacked(self.dtype, self.piece, own, lines, f"{prefix}{number}_")
        return values * self.count if self.step == 0 else values

    def store(self, base: str, element: str, values: Sequence[str]) -> list[str]:
        """Statements that store the vector at `element`, rounded."""
        lines: list[str] = []
        for number in range(self.pieces):
            own = values[number * self.piece : (number + 1) * self.piece]
            address = self._address(base, element, number)
            if self.piece == 1:
                lines.append(store_text(self.dtype, address, own[0]))
                continue
            name = _LOADS[self.dtype][self.piece].replace("load", "store")
            lines.append(f"{name}({', '.join([address, *_packed(self.dtype, own)])})")
        return lines


def vector_access(
    nest: LoopNest, number: int, dim: int | None, count: int, offset: int, steps: Sequence[int] | None = None
) -> VectorAccess:
    """How access `number` touches a vector of `count` elements along `dim` (None: of one element).

    Args:
        offset: Elements from an aligned address to the start of the operand.
        steps: Elements by which vectors may start after a multiple of their size, and of which they move between other
            points; those of the offset and of all other dims by default.
    """
    access = nest.accesses[number]
    if dim is None or count == 1:
        return VectorAccess(access, 1, 1, 1)
    step = nest.dims[dim].strides[number]
    if step != 1:
        return VectorAccess(access, count, step, 1)
    if steps is None:
        others = (d.strides[number] for index, d in enumerate(nest.dims) if index != dim)
        steps = (offset + access.offset, *others)
    piece = min(count, PIECE_BYTES // ELEMENT_BYTES[access.dtype])
    while any(value % piece for value in steps):
        piece //= 2
    return VectorAccess(access, count, step, piece)


def _words(dtype: str, piece: int) -> int:
    size = ELEMENT_BYTES[dtype]
    return max(1, piece * size // 4) if size < 4 else piece


def _unpacked(dtype: str, piece: int, words: Sequence[str], lines: list[str], prefix: str) -> list[str]:
    if dtype == "i32":
        return [f"i32({word})" for word in words]
    if dtype in HALVES:
        if piece == 1:
            return [f"{dtype}_to_f32({words[0]})"]
        names = [f"{prefix}{i}" for i in range(piece)]
        for number, word in enumerate(words):
            low, high = names[2 * number : 2 * number + 2]
            lines.append(f"{low}, {high} = unpack_{dtype}({word})")
        return names
    if dtype in FLOAT8:
        return _unpacked_float8(dtype, piece, words, lines, prefix)
    if dtype in SHORT_INTEGERS:
        return _unpacked_integers(dtype, piece, words)
    if dtype == "i1":
        return [f"((u32({words[i // 4]}) & u32({255 << 8 * (i % 4)})) != u32(0))" for i in range(piece)]
    return list(words)


def _unpacked_float8(
    dtype: str, piece: int, words: Sequence[str], lines: list[str], prefix: str
) -> list[str]:
    if piece == 1:
        return [f"{dtype}_to_f32(u16({words[0]}))"]
    names = [f"{prefix}{i}" for i in range(piece)]
    if piece == 2:
        lines.append(f"{', '.join(names)} = unpack_{dtype}({words[0]})")
        return names
    for number, word in enumerate(words):
        lines += float8_unpacked(dtype, word, names[4 * number : 4 * number + 4])
    return names


def _unpacked_integers(dtype: str, piece: int, words: Sequence[str]) -> list[str]:
    """Numbers of less than 32 bits: shifted down, then cut off with or without their sign."""
    size = ELEMENT_BYTES[dtype]
    return [wrapped_text(f"u32({words[i * size // 4]}) >> {8 * (i * size % 4)}", dtype) for i in range(piece)]


def _packed(dtype: str, values: Sequence[str]) -> list[str]:
    if dtype == "i32":
        return [f"u32({value})" for value in values]
    if dtype in HALVES:
        return [f"pack_{dtype}({values[i]}, {values[i + 1]})" for i in range(0, len(values), 2)]
    if dtype in FLOAT8:
        return [float8_packed(dtype, values[i : i + 4]) for i in range(0, len(values), 4)]
    if dtype in SHORT_INTEGERS:
        each = 4 // ELEMENT_BYTES[dtype]
        return [_packed_integers(dtype, values[i : i + each]) for i in range(0, len(values), each)]
    if dtype == "i1":
        return [_packed_bools(values[i : i + 4]) for i in range(0, len(values), 4)]
    return list(values)


def rounded_pairs(dtype: str, values: Sequence[str], prefix: str, lines: list[str]) -> list[str]:
    """Names of an even number of f32 values rounded to f16 or bf16, two in one instruction: one by one that is done at
    a quarter of the rate.

    Args:
        prefix: Of the names that are made here.
    """
    names = [f"{prefix}{i}" for i in range(len(values))]
    for low in range(0, len(values), 2):
        pair = f"pack_{dtype}({values[low]}, {values[low + 1]})"
        lines.append(f"{names[low]}, {names[low + 1]} = unpack_{dtype}({pair})")
    return names


def _packed_integers(dtype: str, values: Sequence[str]) -> str:
    bits = 8 * ELEMENT_BYTES[dtype]
    parts = [f"(u32({v}) & {(1 << bits) - 1}) << {bits * i}" for i, v in enumerate(values)]
    return f"u{max(16, bits * len(values))}({' | '.join(parts)})"


def _packed_bools(values: Sequence[str]) -> str:
    bits = " | ".join(f"cuda.selp({v}, u32({1 << 8 * i}), u32(0))" for i, v in enumerate(values))
    return f"u16({bits})" if len(values) == 2 else f"u32({bits})"


def load_one(dtype: str, base: str, element: str) -> str:
    """An expression that loads one element into its register."""
    return load_text(dtype, f"{base} + u64(i64({element}) * {ELEMENT_BYTES[dtype]})")
