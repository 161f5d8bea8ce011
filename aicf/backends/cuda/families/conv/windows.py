"""How windows are read tile by tile: the order of K, and which thread brings what into shared memory. Plain data.

K is cut into chunks of 16 bytes. A chunk is a part of a *run*: channels of one element of a window or, where that
leaves less of the chunks empty, neighbouring elements of a window in one channel. Which of both it is follows from
sizes alone, so that sums of any batch and of any strides are added in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import ceil, gcd, prod

from aicf.backends.cuda.families.conv.problem import ConvProblem

CHUNK_BYTES = 16
LEAST_BYTES = 4
"""Of an asynchronous copy: shorter elements that lie by themselves are loaded one by one into registers."""


@dataclass(frozen=True)
class Digit:
    """A digit of the number of a chunk of K.

    Args:
        size: Its values.
        x_step, weight_step: Elements of operand and weight from one value to the next.
        dim: Dimension along which it moves in a window, None for channels.
        move: Elements along that dimension.
    """

    size: int
    x_step: int
    weight_step: int
    dim: int | None
    move: int

    def times(self, number: int, size: int) -> Digit:
        """The digit of `size` values that counts so many of this one's at once."""
        return Digit(size, number * self.x_step, number * self.weight_step, self.dim, number * self.move)


@dataclass(frozen=True)
class KOrder:
    """The order of K.

    Args:
        chunk: Elements of a chunk.
        run: Neighbours in a run: their number, and the steps between them.
        digits: Of the number of a chunk, innermost first, those of one value left out.
    """

    chunk: int
    run: Digit
    digits: tuple[Digit, ...]

    @property
    def chunks(self) -> int:
        """Of all of K."""
        return prod(digit.size for digit in self.digits)

    @property
    def k(self) -> int:
        """Elements of all chunks, empty ones included."""
        return self.chunks * self.chunk

    @property
    def run_chunks(self) -> int:
        """Of one run."""
        return ceil(self.run.size / self.chunk)


@lru_cache(maxsize=1024)
def k_order(problem: ConvProblem) -> KOrder:
    """The shorter of both orders; channels where they are equal."""
    chunk = CHUNK_BYTES // problem.element_bytes
    *others, last = _taps(problem)
    by_row = _order(chunk, last, (*others[::-1], _channels(problem)))
    return min(channels_order(problem, chunk), by_row, key=lambda order: order.chunks)


def channels_order(problem: ConvProblem, chunk: int) -> KOrder:
    """Channels innermost, in chunks of so many."""
    return _order(chunk, _channels(problem), _taps(problem)[::-1])


def _channels(problem: ConvProblem) -> Digit:
    return Digit(problem.channels, problem.x_strides[1], problem.weight_strides[1], None, 0)


def _taps(problem: ConvProblem) -> list[Digit]:
    """The elements of a window along each dimension."""
    lists = (problem.taps, problem.dilations, problem.x_strides[2:], problem.weight_strides[2:])
    return [
        Digit(size, apart * x, weight, dim, apart)
        for dim, (size, apart, x, weight) in enumerate(zip(*lists, strict=True))
    ]


def _order(chunk: int, run: Digit, others: Sequence[Digit]) -> KOrder:
    parts = (run.times(chunk, ceil(run.size / chunk)), *others)
    return KOrder(chunk, run, tuple(digit for digit in parts if digit.size > 1))


def padded_dims(problem: ConvProblem) -> tuple[int, ...]:
    """Dimensions along which windows reach out of the operand."""
    both = enumerate(zip(problem.low, problem.high, strict=True))
    return tuple(dim for dim, (low, high) in both if low > 0 or high > 0)


def reach_reason(problem: ConvProblem) -> str | None:
    """Why places within a window, or of pixels, are no 32-bit numbers; None if they are."""
    if problem.pixels >= 1 << 31:
        return f"{problem.pixels} pixels are more than 32 bits count"
    digits = k_order(problem).digits
    for what, steps in (
        ("operand", [digit.x_step for digit in digits]),
        ("weight", [digit.weight_step for digit in digits]),
    ):
        reached = sum((digit.size - 1) * abs(step) for digit, step in zip(digits, steps, strict=True))
        if (reached + CHUNK_BYTES) * problem.element_bytes >= 1 << 31:
            return f"one window reaches over 2 GiB of its {what}"
    return None


# Copies


@dataclass(frozen=True)
class Loads:
    """How the threads of a block bring a tile into shared memory: chunk `chunk + j chunk_step` of row
    `row + i row_step`, for i below `row_items` and j below `chunk_items`, where the tile has it.

    Args:
        rows, chunks: Of the tile.
        width: Bytes of one copy, 16, 8 or 4; 2 or 1 for single elements, through registers.
        down: Whether neighbouring threads have neighbouring rows, not chunks.
    """

    rows: int
    chunks: int
    width: int
    down: bool
    row_step: int
    row_items: int
    chunk_step: int
    chunk_items: int

    @property
    def is_held(self) -> bool:
        """Whether elements pass through registers."""
        return self.width < LEAST_BYTES

    @property
    def items(self) -> int:
        """Chunks of a thread."""
        return self.row_items * self.chunk_items

    def constants(self) -> dict[str, int | bool]:
        """As the templates read it."""
        return {
            **asdict(self),
            "held": self.is_held,
            "words": 4 * self.items if self.is_held else 0,
            "over": self.row_step * self.row_items > self.rows
            or self.chunk_step * self.chunk_items > self.chunks,
        }


def loads_of(rows: int, chunks: int, threads: int, width: int, down: bool) -> Loads | None:
    """The share of each thread in a tile; None if it does not divide over the threads."""
    if not down:
        if threads % chunks:
            return None
        step = threads // chunks
        return Loads(rows, chunks, width, down, step, ceil(rows / step), 1, 1)
    if threads >= rows:
        step = threads // rows
        return (
            None if threads % rows else Loads(rows, chunks, width, down, rows, 1, step, ceil(chunks / step))
        )
    return None if rows % threads else Loads(rows, chunks, width, down, threads, rows // threads, 1, chunks)


def x_width(problem: ConvProblem) -> int:
    """Bytes of the operand that may be copied at once; those of an element if it goes through registers."""
    image, channel, *steps = problem.x_strides
    starts = [*steps, *(digit.x_step for digit in k_order(problem).digits)]
    starts += [image] if problem.batch > 1 else []
    starts += [problem.channels * channel] if problem.groups > 1 else []
    return _width(problem, k_order(problem).run.x_step, starts, problem.x_alignment)


def _weight_width(problem: ConvProblem) -> int:
    """The same of the weight."""
    starts = [digit.weight_step for digit in k_order(problem).digits]
    starts += [problem.weight_strides[0]] if problem.groups * problem.outputs > 1 else []
    return _width(problem, k_order(problem).run.weight_step, starts, problem.weight_alignment)


def _width(problem: ConvProblem, run_step: int, starts: Sequence[int], alignment: int) -> int:
    size, run = problem.element_bytes, k_order(problem).run
    # Elements along a padded dimension are there or not one by one.
    if run_step != 1 or (run.dim is not None and run.dim in padded_dims(problem)):
        return size
    width = gcd(CHUNK_BYTES, alignment, *(size * start for start in starts))
    return size if width < LEAST_BYTES else width


@dataclass(frozen=True)
class TileLoads:
    """The loads of both operands."""

    x: Loads
    weight: Loads

    @property
    def held(self) -> int:
        """Chunks of a thread that pass through registers, eight elements each: those of bytes count twice."""
        held = (loads for loads in (self.x, self.weight) if loads.is_held)
        return sum(loads.items * 2 // loads.width for loads in held)


@lru_cache(maxsize=4096)
def tile_loads(
    problem: ConvProblem, tile: tuple[int, int, int], threads: int, single: bool = False
) -> TileLoads | None:
    """The loads of a tile of so many pixels, outputs and elements of K; None if it does not divide over the threads.

    Neighbouring threads take neighbouring channels where these lie side by side, else neighbouring pixels.

    Args:
        single: Whether every element is copied by itself.
    """
    order = k_order(problem)
    rows, columns, k = tile
    widths = [problem.element_bytes] * 2 if single else [x_width(problem), _weight_width(problem)]
    down = order.run.dim is not None or order.run.x_step != 1
    x = loads_of(rows, k // order.chunk, threads, widths[0], down)
    weight = loads_of(columns, k // order.chunk, threads, widths[1], False)
    return None if x is None or weight is None else TileLoads(x, weight)
