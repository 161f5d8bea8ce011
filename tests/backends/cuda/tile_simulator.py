"""What tiles of products take beside the rest of the simulated GPU: copies of pieces that may end early, and products
of whole tiles of a warp or of a thread."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.backends.cuda import attention_simulator
from tests.backends.cuda.attention_simulator import bits, numbers, shared_words
from tests.backends.cuda.fragments import held, in_order, operands, transposed
from tests.backends.cuda.simulator import Here, Meeting, Memory

Array = NDArray[Any]


def names(memory: Memory, here: Here) -> Mapping[str, Any]:
    """All of it, with what attention takes."""
    own = {
        "zeros": lambda count: (np.float32(0),) * count,
        "load_matrices": _matrices(here),
        "load_matrices_transposed": _transposed_matrices(here),
        "load_words": partial(_load_words, here),
        "rounded_tf32": lambda words: tuple(map(_rounded, words)),
        **{f"mma_tile_{name}": _product(here, name) for name in ("f16", "bf16", "tf32")},
        "multiply_add": _multiply_add,
        **{name: own for kind in ("f32", "f64") for name, own in _groups(here, kind).items()},
        **_stores(here),
        **_copies(memory, here),
    }
    return {**attention_simulator.names(memory, here), **own}


def copy_piece(memory: Memory, here: Here, width: int, target: int, source: int, size: int) -> None:
    """Copies `size` bytes to shared memory and fills up with zeros, to `width` bytes."""
    assert 0 <= size <= width and target % width == 0, "no piece"
    assert size == 0 or source % width == 0, "no piece"
    words, place = shared_words(here, target)
    found = memory.load_bytes(source, size).ljust(width, b"\0")
    for number, word in enumerate(struct.unpack(f"<{width // 4}I", found)):
        words[place + 4 * number] = word


def _copies(memory: Memory, here: Here) -> dict[str, Any]:
    def copy(width: int) -> Callable[[int, int, int], None]:
        def piece(target: int, source: int, size: int) -> None:
            assert source % width == 0, "no piece"
            copy_piece(memory, here, width, target, source, size)

        return piece

    def load_or_zero(kind: str, zero: Any) -> Callable[[int, int], Any]:
        return lambda source, there: memory.load(source, kind, 1) if there else zero

    return {
        **{f"copy_async{width}_or_zero": copy(width) for width in (4, 8, 16)},
        **{f"load_u{bits}_or_zero": load_or_zero(f"u{bits}", 0) for bits in (16, 32)},
        "load_f64_or_zero": load_or_zero("f64", np.float64(0)),
    }


def _multiply_add(sums: Sequence[Any], a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """Products in f64, which are exact for f32, and one rounding of each sum."""
    products = np.multiply.outer(np.array(a, np.float64), np.array(b, np.float64)).ravel()
    return tuple((products + np.array(sums, np.float64)).astype(type(sums[0])))


def _groups(here: Here, kind: str) -> dict[str, Any]:
    """Groups of four neighbours in shared memory, of a type of 4 or 8 bytes."""
    dtype = np.dtype(np.float32 if kind == "f32" else np.float64)
    wide = dtype.itemsize // 4

    def load(address: int, groups: int, step: int) -> tuple[Any, ...]:
        words, place = shared_words(here, address)
        starts = range(place, place + groups * step, step) if step else [place] * groups
        return numbers([words[start + byte] for start in starts for byte in range(0, 16 * wide, 4)], dtype)

    def store(address: int, sums: Sequence[Any], columns: int, row_bytes: int) -> None:
        words, place = shared_words(here, address)
        found = iter(bits(sums, dtype))
        for number in range(len(sums)):
            row, column = divmod(number, columns)
            own = (row // 4 * 16 + row % 4) * row_bytes + (column // 4 * 32 + column % 4) * dtype.itemsize
            for byte in range(0, dtype.itemsize, 4):
                words[place + own + byte] = next(found)

    return {
        f"zeros_{kind}": lambda count: (dtype.type(0),) * count,
        f"load_groups_{kind}": load,
        f"load_cluster_groups_{kind}": load,
        f"store_groups_{kind}": store,
    }


def _matrices(here: Here) -> Callable[[int, int, int], Meeting]:
    def load(address: int, count: int, step: int) -> Meeting:
        words, _ = shared_words(here, 0)
        matrix_row, column = divmod(here.thread.number % 32, 4)

        def answer(rows: Sequence[int]) -> tuple[int, ...]:
            own = [rows[8 * matrix + matrix_row] + 4 * column for matrix in range(4)]
            return tuple(words[place + i * step] for i in range(count) for place in own)

        return Meeting(here.thread.warp, address, answer, in_order)

    return load


def _transposed_matrices(here: Here) -> Callable[[int, Sequence[int]], Meeting]:
    """Matrices of 8 x 8 halves whose columns are handed out, four at each offset of a lane."""

    def load(address: int, offsets: Sequence[int]) -> Meeting:
        words, _ = shared_words(here, 0)
        lane = here.thread.number % 32

        def of_warp(brought: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
            rows = itertools.chain(*in_order(brought))
            return transposed([[words[row + byte] for byte in (0, 4, 8, 12)] for row in rows], len(offsets))

        return Meeting(
            here.thread.warp, [address + offset for offset in offsets], lambda found: found[lane], of_warp
        )

    return load


def _load_words(
    here: Here, address: int, offsets: Sequence[int], count: int, side_by_side: int, deeper: int
) -> tuple[int, ...]:
    """Words of groups of 8 neighbours, each group a second time some bytes on."""
    words, place = shared_words(here, address)
    groups = (
        (group, skip)
        for first in range(0, count, side_by_side)
        for skip in (0, deeper)
        for group in range(first, first + side_by_side)
    )
    every = len(offsets)
    return tuple(words[place + offsets[g % every] + g // every * every * 32 + skip] for g, skip in groups)


def _stores(here: Here) -> dict[str, Any]:
    def pairs(sums: Sequence[Any], wide: int) -> Iterator[tuple[int, int, int, list[int]]]:
        """The words of every two neighbours, with the tile of 16 rows and that of 8 columns, and whether they are of
        the lower rows."""
        found = bits(sums)
        for first in range(0, len(found), 2):
            tile, lower = divmod(first, 4)
            yield tile // wide, tile % wide, lower // 2, found[first : first + 2]

    def put(address: int, two: list[int]) -> None:
        words, place = shared_words(here, address)
        words[place], words[place + 4] = two

    def store_sums(address: int, sums: Sequence[Any], wide: int, step: int) -> None:
        for down, along, lower, two in pairs(sums, wide):
            put(address + (16 * down + 8 * lower) * step + 32 * along, two)

    def push_sums(targets: Sequence[int], sums: Sequence[Any], wide: int) -> None:
        for down, along, lower, two in pairs(sums, wide):
            put(targets[2 * down + lower] + 32 * along, two)

    def store_words(address: int, *words: int) -> None:
        target, place = shared_words(here, address)
        for number, word in enumerate(words):
            target[place + 4 * number] = word

    return {
        "store_sums": store_sums,
        "push_sums": push_sums,
        "store_shared_u32x4": store_words,
    }


def _rounded(word: int) -> int:
    """As `cvt.rna.tf32` rounds a finite number."""
    return (word + 0x1000) & 0xFFFFE000


_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}


def _product(here: Here, name: str) -> Callable[..., Meeting]:
    """All products of a warp's tile, by the lanes that hold their elements."""

    def of_warp(brought: Mapping[int, Any]) -> Array:
        sums, a, b = zip(*in_order(brought), strict=True)
        left, right = operands(a, b, (_TYPES[name],) * 2, np.float64)
        return (np.array(sums, np.float64) + held(left @ right)).astype(np.float32)

    def multiply(sums: Sequence[Any], a: Sequence[int], b: Sequence[int]) -> Meeting:
        lane = here.thread.number % 32
        return Meeting(here.thread.warp, (sums, a, b), lambda found: tuple(found[lane]), of_warp)

    return multiply
