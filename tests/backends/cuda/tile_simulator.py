"""What tiles of products take beside the rest of the simulated GPU: copies of pieces that may end early, and products
of whole tiles of a warp or of a thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.backends.cuda import attention_simulator
from tests.backends.cuda.simulator import Here, Meeting, Memory

Array = NDArray[Any]
Words = Callable[[int], tuple[dict[int, int], int]]
"""From a shared address to the words of a block, and the place of one."""


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


def _words(here: Here, address: int) -> tuple[dict[int, int], int]:
    return attention_simulator._words(here, address)


def _copies(memory: Memory, here: Here) -> dict[str, Any]:
    def copy(width: int) -> Callable[[int, int, int], None]:
        def piece(target: int, source: int, size: int) -> None:
            assert 0 <= size <= width and target % width == 0 and source % width == 0, "no piece"
            words, place = _words(here, target)
            found = [memory.load(source + 2 * i, "u16", 1) if 2 * i < size else 0 for i in range(width // 2)]
            for i in range(0, width // 2, 2):
                words[place + 2 * i] = found[i] | found[i + 1] << 16

        return piece

    def load_or_zero(kind: str, zero: Any) -> Callable[[int, int], Any]:
        return lambda source, there: memory.load(source, kind, 1) if there else zero

    return {
        **{f"copy_async{width}_or_zero": copy(width) for width in (4, 8, 16)},
        **{f"load_u{bits}_or_zero": load_or_zero(f"u{bits}", 0) for bits in (16, 32)},
        "load_f64_or_zero": load_or_zero("f64", np.float64(0)),
    }


def _multiply_add(sums: Sequence[Any], a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    kind = type(sums[0])
    pairs = itertools.product(a, b)
    return tuple(
        kind(np.float64(x) * np.float64(y) + total) for total, (x, y) in zip(sums, pairs, strict=True)
    )


def _groups(here: Here, kind: str) -> dict[str, Any]:
    """Groups of four neighbours in shared memory, of a type of 4 or 8 bytes."""
    dtype = np.dtype(np.float32 if kind == "f32" else np.float64)
    wide = dtype.itemsize // 4

    def load(address: int, groups: int, step: int) -> tuple[Any, ...]:
        words, place = _words(here, address)
        found: list[Any] = []
        for element in (
            place + group * step + i * dtype.itemsize for group in range(groups) for i in range(4)
        ):
            found.append(np.array([words[element + 4 * i] for i in range(wide)], np.uint32).view(dtype)[0])
        return tuple(found)

    def store(address: int, sums: Sequence[Any], columns: int, row_bytes: int) -> None:
        words, place = _words(here, address)
        for number, value in enumerate(sums):
            row, column = divmod(number, columns)
            own = (row // 4 * 16 + row % 4) * row_bytes + (column // 4 * 32 + column % 4) * dtype.itemsize
            for i, word in enumerate(np.array([value], dtype).view(np.uint32)):
                words[place + own + 4 * i] = int(word)

    return {
        f"zeros_{kind}": lambda count: (dtype.type(0),) * count,
        f"load_groups_{kind}": load,
        f"load_cluster_groups_{kind}": load,
        f"store_groups_{kind}": store,
    }


def _matrices(here: Here) -> Callable[[int, int, int], Meeting]:
    def load(address: int, count: int, step: int) -> Meeting:
        words, _ = _words(here, 0)
        lane = here.thread.number % 32

        def answer(brought: Mapping[int, int]) -> tuple[int, ...]:
            rows = [brought[number] for number in sorted(brought)]
            places = ((i, matrix) for i in range(count) for matrix in range(4))
            return tuple(
                words[rows[8 * matrix + lane // 4] + i * step + 4 * (lane % 4)] for i, matrix in places
            )

        return Meeting(here.thread.warp, address, answer)

    return load


def _transposed_matrices(here: Here) -> Callable[[int, Sequence[int]], Meeting]:
    """Matrices of 8 x 8 halves whose columns are handed out, four at each offset of a lane."""

    def load(address: int, offsets: Sequence[int]) -> Meeting:
        words, _ = _words(here, 0)
        column, first = divmod(here.thread.number % 32, 4)

        def half(row: int) -> int:
            return words[row + column // 2 * 4] >> 16 * (column % 2) & 0xFFFF

        def answer(brought: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
            lanes = [brought[number] for number in sorted(brought)]
            places = ((i, 8 * matrix + 2 * first) for i in range(len(offsets)) for matrix in range(4))
            return tuple(half(lanes[row][i]) | half(lanes[row + 1][i]) << 16 for i, row in places)

        return Meeting(here.thread.warp, [address + offset for offset in offsets], answer)

    return load


def _load_words(
    here: Here, address: int, offsets: Sequence[int], count: int, side_by_side: int, deeper: int
) -> tuple[int, ...]:
    """Words of groups of 8 neighbours, each group a second time some bytes on."""
    words, place = _words(here, address)
    groups = (
        (group, skip)
        for first in range(0, count, side_by_side)
        for skip in (0, deeper)
        for group in range(first, first + side_by_side)
    )
    every = len(offsets)
    return tuple(words[place + offsets[g % every] + g // every * every * 32 + skip] for g, skip in groups)


def _stores(here: Here) -> dict[str, Any]:
    def store(address: int, values: Sequence[Any]) -> None:
        words, place = _words(here, address)
        for number, value in enumerate(values):
            words[place + 4 * number] = int(np.array(value, np.float32).view(np.uint32))

    def store_sums(address: int, sums: Sequence[Any], wide: int, step: int) -> None:
        for first in range(0, len(sums), 2):
            tile, lower = divmod(first, 4)
            offset = (tile // wide * 16 + lower * 4) * step + tile % wide * 32
            store(address + offset, sums[first : first + 2])

    def push_sums(targets: Sequence[int], sums: Sequence[Any], wide: int) -> None:
        for first in range(0, len(sums), 2):
            tile, lower = divmod(first, 4)
            store(targets[tile // wide * 2 + lower // 2] + tile % wide * 32, sums[first : first + 2])

    return {
        "store_sums": store_sums,
        "push_sums": push_sums,
        "store_shared_u32x4": lambda address, *words: _words(here, address)[0].update(
            {_words(here, address)[1] + 4 * number: word for number, word in enumerate(words)}
        ),
        "bits_to_f32": lambda word: np.array(word, np.uint32).view(np.float32)[()],
    }


def _rounded(word: int) -> int:
    """As `cvt.rna.tf32` rounds a finite number."""
    return (word + 0x1000) & 0xFFFFE000


def _product(here: Here, name: str) -> Callable[..., Meeting]:
    """All products of a warp's tile, by the lanes that hold their elements; worked out once for all of them."""
    made: list[tuple[Mapping[int, Any], Array]] = []

    def multiply(sums: Sequence[Any], a: Sequence[int], b: Sequence[int]) -> Meeting:
        lane = here.thread.number % 32

        def answer(brought: Mapping[int, Any]) -> tuple[Any, ...]:
            if not made or made[0][0] is not brought:
                lanes = [brought[number] for number in sorted(brought)]
                made[:] = [(brought, _tile(lanes, name))]
            tiles = made[0][1].astype(np.float64)
            group, pair = lane // 4, 2 * (lane % 4)
            found: list[Any] = []
            for row in range(0, tiles.shape[0], 16):
                for column in range(0, tiles.shape[1], 8):
                    for down, along in ((0, 0), (0, 1), (8, 0), (8, 1)):
                        product = tiles[row + group + down, column + pair + along]
                        found.append(np.float32(sums[len(found)] + product))
            return tuple(found)

        return Meeting(here.thread.warp, (a, b), answer)

    return multiply


_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}


def _tile(lanes: Sequence[tuple[Sequence[int], Sequence[int]]], name: str) -> Array:
    """The product of what the lanes hold: registers of A for each 16 rows, then columns of B for each 8 columns."""
    wide = 4 // np.dtype(_TYPES[name]).itemsize
    a, b = (np.array([lane[side] for lane in lanes], np.uint32) for side in (0, 1))
    left = np.zeros((a.shape[1] // 4 * 16, 8 * wide))
    right = np.zeros((8 * wide, b.shape[1] // 2 * 8))
    for lane in range(32):
        group, first = lane // 4, wide * (lane % 4)
        for number, word in enumerate(a[lane]):
            tile, part = divmod(number, 4)
            row, column = 16 * tile + group + 8 * (part % 2), first + 4 * wide * (part // 2)
            left[row, column : column + wide] = word.reshape(1).view(_TYPES[name])
        for number, word in enumerate(b[lane]):
            tile, part = divmod(number, 2)
            row = first + 4 * wide * part
            right[row : row + wide, 8 * tile + group] = word.reshape(1).view(_TYPES[name])
    return left @ right
