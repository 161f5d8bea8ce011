"""What products of warpgroups take beside the rest of the simulated GPU: bulk tensor copies, the barriers that count
their bytes, and products of operands of 8 bits out of swizzled lines in shared memory."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.target import ELEMENT_BYTES
from tests.backends.cuda import integer_simulator, simulator
from tests.backends.cuda.attention_simulator import shared_words
from tests.backends.cuda.fragments import held, in_order
from tests.backends.cuda.integer_simulator import added, widest, word_of
from tests.backends.cuda.simulator import BYTE_PAIRS, BYTE_TYPES, Here, Meeting, Memory, Wait

Array = NDArray[Any]
_HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
_LINE = 128
"""Bytes of a line in shared memory, whose units of 16 bytes are permuted within 8 lines."""
REGISTERS = {
    **{f"fewer_registers_{count}": lambda: None for count in (24, 40)},
    **{f"more_registers_{count}": lambda: None for count in (160, 216, 232, 240)},
}
"""What gives registers of a warpgroup to others."""


@dataclass
class _Barrier:
    """Arrivals and bytes that are still to come in this phase."""

    count: int
    left: int
    bytes: int = 0
    phase: int = 0

    def change(self, arrivals: int = 0, more: int = 0) -> None:
        """Counts arrivals, and bytes that are expected or have come."""
        self.left -= arrivals
        self.bytes += more
        assert self.left >= 0, "more arrive than are awaited"
        if self.left == 0 and self.bytes == 0:
            self.phase ^= 1
            self.left = self.count


def run(launches: Sequence[KernelLaunch], memory: Memory) -> None:
    """Runs launches that may hold such a product."""
    run_with(_names, launches, memory)


def run_with(
    names: Callable[[Mapping[int, TensorMap], Memory, Here], Mapping[str, Any]],
    launches: Sequence[KernelLaunch],
    memory: Memory,
) -> None:
    """Runs launches whose code may use `names` of their tensor maps by address."""
    for launch in launches:
        maps = {
            simulator._argument(argument, memory): argument
            for argument in launch.arguments
            if isinstance(argument, TensorMap)
        }
        simulator.run([launch], memory, partial(names, maps))


def _names(maps: Mapping[int, TensorMap], memory: Memory, here: Here) -> Mapping[str, Any]:
    nothing = ("wgmma_fence", "wgmma_commit", "wgmma_wait_1", "fence_barrier_init", "cluster_arrive")
    sizes = (64, 128, 192, 256)
    products = {
        f"wgmma_{n}_{a}_{b}": _product(here, n, BYTE_TYPES[a], BYTE_TYPES[b])
        for n, (a, b) in itertools.product(sizes, BYTE_PAIRS)
    }
    halves = {
        f"wgmma_{n}_{name}_{across}1": _product_of_halves(here, n, name, across)
        for n, name, across in itertools.product(sizes, _HALVES, (0, 1))
    }
    return {
        **integer_simulator.names(memory, here),
        **dict.fromkeys(nothing, lambda: None),
        **REGISTERS,
        **products,
        **halves,
        **{f"wgmma_result_{n}{sums}": lambda sums: sums for n in sizes for sums in ("", "_i32")},
        "rotated": lambda values, count: (*values[count:], *values[:count]),
        "cluster_rank": lambda: here.thread.rank,
        "store_matrix_x4": partial(store_matrices, here),
        "store_shared_u16": partial(_store_half, here),
        "store_shared_f32": partial(_store_two, here),
        "load_shared_f32": lambda address: np.uint32(here.thread.shared.words[address]).view(np.float32),
        "named_barrier": partial(_warpgroup_barrier, here),
        **dict.fromkeys(("store_cluster_i32x2", "store_cluster_f32x2"), partial(_store_two, here)),
        **copies(maps, memory, here),
    }


# Copies and barriers


def _warpgroup_barrier(here: Here, number: int, threads: int) -> Meeting:
    """A barrier of the threads of one warpgroup, which no other has."""
    first = here.thread.number // 128 * 128
    assert threads == 128 and number == here.thread.number // 128
    return Meeting(here.thread.block[first : first + 128])


def copies(maps: Mapping[int, TensorMap], memory: Memory, here: Here) -> dict[str, Any]:
    """Bulk tensor copies, and barriers that count threads and bytes."""
    barriers: dict[tuple[int, int], _Barrier] = {}

    def barrier(address: int) -> _Barrier:
        words, place = shared_words(here, address)
        return barriers[id(words), place]

    def init(address: int, count: int) -> None:
        words, place = shared_words(here, address)
        barriers[id(words), place] = _Barrier(count, count)

    def wait(address: int, parity: int) -> Wait:
        own = barrier(address)
        return Wait(lambda: own.phase != parity)

    def deliver(tensor: TensorMap, target: int, own: int, lines: Sequence[bytes], mask: int | None) -> None:
        lies = swizzled if tensor.swizzle else int
        ranks = [here.thread.rank] if mask is None else [rank for rank in range(16) if mask >> rank & 1]
        for rank in ranks:
            words = here.thread.cluster[rank].words
            for number, line in enumerate(lines):
                _put(words, target + number * len(line), line, lies)
            barriers[id(words), own].change(more=-sum(map(len, lines)))

    def tiles(multicast: bool, target: int, address: int, own: int, *rest: int) -> None:
        tensor = maps[address]
        *starts, mask = rest if multicast else (*rest, None)
        deliver(tensor, target, own, _box(memory, address, tensor, starts), mask)

    def windows(multicast: bool, rank: int, target: int, address: int, own: int, *rest: int) -> None:
        tensor, dims = maps[address], rank - 2
        starts, taps = rest[:rank], rest[rank : rank + dims]
        lines = _windows(memory, address, tensor, starts, taps)
        deliver(tensor, target, own, lines, rest[-1] if multicast else None)

    named = {
        f"copy_tensor_{rank}d{'_multicast' * multicast}": partial(tiles, multicast)
        for rank in (2, 3, 4, 5)
        for multicast in (False, True)
    }
    named |= {
        f"copy_windows_{rank}d{'_multicast' * multicast}": partial(windows, multicast, rank)
        for rank in (3, 4, 5)
        for multicast in (False, True)
    }
    return {
        **named,
        "barrier_init": init,
        "barrier_wait": wait,
        "barrier_expect": lambda address, size: barrier(address).change(1, size),
        "barrier_arrive": lambda address: barrier(address).change(1),
        "barrier_arrive_cluster": lambda address: barrier(address).change(1),
    }


def _put(words: dict[int, int], address: int, line: bytes, lies: Callable[[int], int]) -> None:
    """A line, each word where it `lies`."""
    for number, word in enumerate(struct.unpack(f"<{len(line) // 4}I", line)):
        words[lies(address + 4 * number)] = word


def swizzled(address: int) -> int:
    """Where 128-byte swizzle puts a byte: units of 16 bytes are permuted within 8 lines."""
    return address ^ (address >> 7 & 7) << 4


def _box(memory: Memory, address: int, tensor: TensorMap, starts: Sequence[int]) -> list[bytes]:
    """The lines of a box, zeros where it reaches out of the tensor."""
    inner, *others = tensor.box
    lines: list[bytes] = []
    for index in itertools.product(*map(range, reversed(others))):
        place = [start + step for start, step in zip(starts[1:], reversed(index), strict=True)]
        lines.append(_line(memory, address, tensor, starts[0], place, inner))
    return lines


def _line(
    memory: Memory, address: int, tensor: TensorMap, first: int, place: Sequence[int], length: int
) -> bytes:
    """Elements from number `first` on, as bytes."""
    inside = all(0 <= at < size for at, size in zip(place, tensor.sizes[1:], strict=True))
    start = address + sum(at * step for at, step in zip(place, tensor.strides, strict=True))
    size = ELEMENT_BYTES[tensor.dtype]
    before = min(max(0, -first), length)
    count = max(0, min(length, tensor.sizes[0] - first) - before) if inside else 0
    found = memory.load_bytes(start + size * (first + before), size * count)
    return (bytes(size * before) + found).ljust(size * length, b"\0")


def _windows(
    memory: Memory, address: int, tensor: TensorMap, starts: Sequence[int], taps: Sequence[int]
) -> list[bytes]:
    """An element of the windows of neighbouring pixels: a window starts between the corners, steps apart."""
    assert tensor.windows is not None
    channels, pixels = tensor.box
    lower, upper, steps = tensor.windows.lower, tensor.windows.upper, tensor.windows.steps
    place, image, lines = list(starts[1:-1]), starts[-1], list[bytes]()
    for _ in range(pixels):
        at = [first + tap for first, tap in zip(place, taps, strict=True)]
        lines.append(_line(memory, address, tensor, starts[0], [*at, image], channels))
        for dim, step in enumerate(steps):
            place[dim] += step
            if place[dim] < tensor.sizes[1 + dim] + upper[dim]:
                break
            place[dim] = lower[dim]
        else:
            image += 1
    return lines


# Products and stores


def _product(here: Here, n: int, a_type: Any, b_type: Any) -> Callable[..., Meeting]:
    """Of 8-bit operands, whose lines are along K."""

    def multiplied(words: Mapping[int, int], a: int, b: int) -> Array:
        return _lines(words, a, 64, a_type) @ _lines(words, b, n, b_type).T

    return _warpgroup(here, multiplied)


def _product_of_halves(here: Here, n: int, dtype: str, a_across: int) -> Callable[..., Meeting]:
    """Of halves: the lines of B are along N, those of A along K or M."""

    def multiplied(words: Mapping[int, int], a: int, b: int) -> Array:
        left = _across(words, a, 64, dtype).T if a_across else _lines(words, a, 64, _HALVES[dtype])
        return left @ _across(words, b, n, dtype)

    return _warpgroup(here, multiplied)


def _warpgroup(
    here: Here, multiplied: Callable[[Mapping[int, int], int, int], Array]
) -> Callable[..., Meeting]:
    """64 x n sums of a warpgroup, each thread its own, worked out once for all of them."""

    def multiply(sums: Sequence[Any], a: int, b: int, keep: int) -> Meeting:
        assert keep == 1
        thread = here.thread
        words = thread.shared.words
        first = thread.number // 128 * 128

        def of_group(brought: Mapping[int, Any]) -> Sequence[Sequence[Any]]:
            # Each warp holds 16 rows.
            products = np.concatenate([held(rows) for rows in np.split(multiplied(words, a, b), 4)])
            return added(in_order(brought), products)

        def answer(found: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
            return tuple(found[thread.number - first])

        return Meeting(thread.block[first : first + 128], sums, answer, of_group)

    return multiply


def _lines(words: Mapping[int, int], descriptor: int, lines: int, dtype: Any) -> Array:
    """32 bytes of each line that a descriptor names."""
    start = _start(descriptor)
    assert start % _LINE + 32 <= _LINE, "32 bytes are of two lines"
    found = [
        [words[first + byte ^ (first >> 7 & 7) << 4] for byte in range(0, 32, 4)]
        for first in range(start, start + lines * _LINE, _LINE)
    ]
    return np.array(found, np.uint32).view(dtype).astype(widest(dtype))


def _across(words: Mapping[int, int], descriptor: int, columns: int, dtype: str) -> Array:
    """16 lines of so many halves: 64 are side by side, the next 64 lie where the descriptor says."""
    start, leading = _start(descriptor), (descriptor >> 16 & 0x3FFF) << 4
    found = [
        [
            words[swizzled(start + column // 64 * leading + line * _LINE + column % 64 * 2)]
            for column in range(0, columns, 2)
        ]
        for line in range(16)
    ]
    return np.array(found, np.uint32).view(_HALVES[dtype]).astype(np.float64)


def _start(descriptor: int) -> int:
    assert descriptor >> 62 == 1 and descriptor >> 32 & 0x3FFF == 1024 >> 4, "no 128-byte swizzle"
    return (descriptor & 0x3FFF) << 4


def store_matrices(here: Here, address: int, *values: int) -> Meeting:
    """Four matrices of 8 x 8 halves (stmatrix)."""
    words, lane = here.thread.shared.words, here.thread.number % 32

    def answer(rows: Sequence[int]) -> None:
        for matrix, value in enumerate(values):
            words[rows[8 * matrix + lane // 4] + 4 * (lane % 4)] = value

    return Meeting(here.thread.warp, address, answer, in_order)


def _store_half(here: Here, address: int, value: int) -> None:
    words, low = here.thread.shared.words, address & ~3
    shift = 8 * (address & 3)
    words[low] = words.get(low, 0) & ~(0xFFFF << shift) | value << shift


def _store_two(here: Here, address: int, *values: Any) -> None:
    words, place = shared_words(here, address)
    for number, value in enumerate(values):
        words[place + 4 * number] = word_of(value)
