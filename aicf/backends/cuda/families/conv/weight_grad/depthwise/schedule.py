"""Which thread sums what of the gradient of a depthwise weight, and what that costs. Plain data; no code generator.

An *item* is a few neighbouring pixels along the last dimension. Threads that lie side by side have neighbouring
channels of an item, or neighbouring items: they are lanes. A thread has rows of a window for its channels, and walks
from item to item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, Whole, powers_of_two
from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.records import Triple
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

MOST_SUMS = 36
"""Of a thread: registers that no load can use."""
MOST_ROW = 32
"""Elements of a window along the last dimension."""
_LANES = 32
"""Most channels side by side, in vectors."""
_SHARED_BYTES = 48 << 10
"""Of a block without dynamic shared memory."""


@dataclass(frozen=True)
class DepthwiseTile:
    """Every decision about the sums of a part.

    Args:
        vector: Neighbouring channels of a thread.
        lanes: Threads of a block with neighbouring channels.
        threads: Of a block; those of the same channels have items of their own.
        pixels: Of an item.
        rows: Rows of a window of a thread.
    """

    vector: Annotated[int, Entry(OneOf((1, 2)))]
    lanes: Annotated[int, Entry(powers_of_two(1, _LANES))]
    threads: Annotated[int, Entry(powers_of_two(32, 256))]
    pixels: Annotated[int, Entry(powers_of_two(1, 8))]
    rows: Annotated[int, Entry(Whole(1, MOST_SUMS))]

    @property
    def item_lanes(self) -> int:
        """Items that a block has at a time."""
        return self.threads // self.lanes

    def sums(self, problem: WeightGradProblem) -> int:
        """Of a thread."""
        return self.rows * problem.windows.taps[-1] * self.vector

    def grid(self, problem: WeightGradProblem, parts: int) -> Triple:
        """Blocks: channels, parts of all items, rows of a window."""
        outputs = problem.groups * problem.outputs
        return ceil(outputs / (self.lanes * self.vector)), parts, ceil(window_rows(problem) / self.rows)


def window_rows(problem: WeightGradProblem) -> int:
    """Rows of a window, of all dimensions but the last."""
    return prod(problem.windows.taps[:-1])


def items(problem: WeightGradProblem, tile: DepthwiseTile) -> int:
    """Of all images."""
    conv = problem.windows
    return conv.batch * prod(conv.counts[:-1]) * ceil(conv.counts[-1] / tile.pixels)


def places(problem: WeightGradProblem, tile: DepthwiseTile) -> tuple[int, ...]:
    """The elements of a row that the windows of an item have, from the start of the first one."""
    conv = problem.windows
    taps, step, apart = conv.taps[-1], conv.strides[-1], conv.dilations[-1]
    return tuple(sorted({p * step + k * apart for p in range(tile.pixels) for k in range(taps)}))


def tile_reason(tile: DepthwiseTile, problem: WeightGradProblem) -> str | None:
    """Why a tile does not do for a problem, None if it does."""
    if tile.vector > most_vector(problem):
        return f"{tile.vector} neighbouring channels cannot be loaded at once"
    if tile.threads % tile.lanes:
        return f"{tile.threads} threads do not divide over {tile.lanes} channels"
    if (sums := tile.sums(problem)) > MOST_SUMS:
        return f"{sums} sums of a thread are more than {MOST_SUMS}"
    if tile.rows > window_rows(problem):
        return f"a window has {window_rows(problem)} rows"
    if tile.threads * sums * ELEMENT_BYTES[problem.sums] > _SHARED_BYTES:
        return f"{sums} sums of {tile.threads} threads do not fit in shared memory"
    return None


def most_vector(problem: WeightGradProblem) -> int:
    """Neighbouring channels that one load may bring of both operands: two halves of 4 bytes."""
    x, grad = problem.windows, problem.grad
    if problem.dtype not in ("f16", "bf16") or problem.outputs > 1 or problem.groups % 2:
        return 1
    for operand in (x, grad):
        image, channel, *steps = operand.x_strides
        if channel != 1 or any(step % 2 for step in (image, *steps)) or operand.x_alignment % 4:
            return 1
    return 2


def tiles(problem: WeightGradProblem) -> Iterator[DepthwiseTile]:
    """All worth measuring, in a fixed order."""
    vector = most_vector(problem)
    channels = ceil(problem.groups * problem.outputs / vector)
    lies_last = problem.windows.x_strides[1] == 1
    wide = min(_LANES, 1 << (channels - 1).bit_length()) if lies_last else 1
    rows = min(window_rows(problem), max(1, MOST_SUMS // (problem.windows.taps[-1] * vector)))
    even = ceil(window_rows(problem) / ceil(window_rows(problem) / rows))
    for lanes in sorted({wide, max(1, wide // 2)}):
        for threads in (128, 256):
            for pixels in (1, 2, 4):
                tile = DepthwiseTile(vector, lanes, threads, pixels, even)
                if pixels < 2 * problem.windows.counts[-1] and tile_reason(tile, problem) is None:
                    yield tile


_START_US = 1.5
_ITEM_CYCLES, _LOAD_CYCLES = 40.0, 6.0
"""Instructions of a warp for an item and for a load, beside what it multiplies."""
_ISSUE_PER_US = 4 * 1700.0 * 0.6
"""Instructions of a multiprocessor."""
_RATE = {"f64": 2.0}
"""Of instructions that multiply, for one of f32."""
_SECTOR_BYTES = 32
_RESIDENT = 1024
"""Threads of a multiprocessor."""


def resident(tile: DepthwiseTile) -> int:
    """Blocks of a multiprocessor."""
    return max(1, _RESIDENT // tile.threads)


def part_us(problem: WeightGradProblem, tile: DepthwiseTile, parts: int, arch: GpuArch) -> float:
    """Predicted microseconds of the sums of all parts: instructions, or memory."""
    x, y, z = tile.grid(problem, parts)
    reads, row = len(places(problem, tile)), problem.windows.taps[-1]
    each = ceil(ceil(items(problem, tile) / tile.item_lanes) / parts)
    multiplied = tile.rows * row * tile.pixels * tile.vector * _RATE.get(problem.dtype, 1.0)
    per_item = _ITEM_CYCLES + _LOAD_CYCLES * (tile.rows * reads + tile.pixels) + multiplied
    rounds = ceil(x * y * z / (arch.multiprocessors * resident(tile)))
    issue = rounds * each * per_item * resident(tile) * tile.threads / 32 / _ISSUE_PER_US
    size = ELEMENT_BYTES[problem.dtype]
    lost = (
        1.0
        if problem.windows.x_strides[1] == 1 or problem.windows.x_strides[-1] == 1
        else _SECTOR_BYTES / size
    )
    moved = problem.touched * size * z * lost / (arch.bandwidth_gbs * 1e3)
    return _START_US + max(issue, moved)
