"""The decisions of `cuda.attention_backward_short`: the tile that holds a whole head, the blocks that share a
multiprocessor, where everything lies in shared memory, and what that is predicted to take. Plain data.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, RecordCodec
from aicf.backends.cuda.families.attention.problem import AttentionProblem, mask_clocks, mask_rows
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

TILES = (64, 128)


@dataclass(frozen=True)
class Spec:
    """One variant of the kernel.

    Args:
        tile: Queries and keys of a block, of which a head may have fewer.
        blocks_per_sm: Blocks for which the compiler must leave registers.
    """

    tile: Annotated[int, Entry(OneOf(TILES))]
    blocks_per_sm: Annotated[int, Entry(OneOf((1, 2, 4)))]

    @property
    def threads(self) -> int:
        """Of a block: a warpgroup for 64 queries, and later for 64 keys."""
        return 2 * self.tile


CODEC = RecordCodec(Spec)
read_spec = CODEC.read


@dataclass(frozen=True)
class Layout:
    """Shared memory of a block, in bytes from a multiple of 1024: the operands, then what is multiplied from the left
    transposed (probabilities, later the gradient of the scores), then barriers. Results pass through the room of the
    values.

    Args:
        row_bytes, value_bytes: All queries or all keys; all values or the whole gradient of the result.
    """

    row_bytes: int
    value_bytes: int
    keys: int
    values: int
    gradient: int
    weights: int
    barriers: int
    total: int


def layout_of(problem: AttentionProblem, spec: Spec) -> Layout:
    """Where everything lies."""
    row_bytes, value_bytes = 2 * spec.tile * problem.d, 2 * spec.tile * problem.dv
    values = 2 * row_bytes
    gradient = values + value_bytes
    weights = gradient + value_bytes
    barriers = weights + 2 * spec.tile * spec.tile
    return Layout(
        row_bytes, value_bytes, row_bytes, values, gradient, weights, barriers, 1024 + barriers + 16
    )


_OTHER_REGISTERS = 30
"""Beside those of the matrices: addresses, maxima and sums."""


def mask_registers(problem: AttentionProblem, spec: Spec) -> int:
    """That hold the mask: two halves in each, or one f32; of two rows, or of the one that all queries share."""
    if problem.mask is None:
        return 0
    rows, dtype = problem.mask
    return mask_rows(rows) * spec.tile // 8 * (ELEMENT_BYTES[dtype] // 2)


def registers_of(problem: AttentionProblem, spec: Spec) -> int:
    """Registers of a thread, about: of the step that needs most."""
    score, weight = spec.tile // 2, spec.tile // 4
    steps = (
        score + mask_registers(problem, spec),
        score + weight,  # the gradient of the probabilities, and those in pairs
        weight + (problem.d + problem.dv) // 2,
        problem.d + problem.dv // 2,  # all three results
    )
    return max(steps) + _OTHER_REGISTERS


def spec_reason(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    method = f"{spec.blocks_per_sm} blocks with tiles of {spec.tile}"
    if max(problem.m, problem.n) > spec.tile:
        return f"{problem.m} queries and {problem.n} keys do not fit in a tile of {spec.tile}"
    registers, most = registers_of(problem, spec), 65536 // (spec.threads * spec.blocks_per_sm)
    if registers > min(255, most):
        return f"{method} need {registers} registers a thread, {min(255, most)} are there"
    total = layout_of(problem, spec).total
    if spec.blocks_per_sm * (total + 1024) > arch.shared_bytes + 1024:
        return f"{method} need {total >> 10} KiB of shared memory each"
    return None


def specs(problem: AttentionProblem, arch: GpuArch) -> Iterator[Spec]:
    """The variants that make sense: the least tile with room for a head, most blocks first."""
    for tile in [tile for tile in TILES if tile >= max(problem.m, problem.n)][:1]:
        for blocks in (4, 2, 1):
            spec = Spec(tile, blocks)
            if spec_reason(problem, spec, arch) is None:
                yield spec


# Cost prior: it orders the variants; measurements replace it.

_CLOCK_MHZ = 1500.0
_START_US = 3.0
_BLOCK_CLOCKS = 4500.0
"""Of a block until its first product and from its last one on, and its barriers."""
_SCORE_CLOCKS, _PRODUCT_CLOCKS = 0.16, 1 / 2048
"""A score's exponential and the rest of what is made of it; a multiplication."""
_MASK_CLOCKS = (0.023, 0.076)
"""More for a score to which a mask is added: with one row for all queries, and with a row for each."""
_MEMORY_BYTES = 2.5e6
"""A microsecond's, of operands and results."""


def predicted_us(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds: rounds of blocks, which share the throughput of a multiprocessor and wait for memory by turns."""
    slots = arch.multiprocessors * spec.blocks_per_sm
    rounds = problem.count / slots
    # Blocks drift apart, so a last round is rarely a whole one.
    rounds = (max(1.0, rounds) + ceil(rounds)) / 2
    sharing = min(spec.blocks_per_sm, ceil(problem.count / arch.multiprocessors))
    scores = spec.tile * spec.tile
    clocks = scores * (3 * problem.d + 2 * problem.dv) * _PRODUCT_CLOCKS
    clocks += scores * (_SCORE_CLOCKS + mask_clocks(problem, _MASK_CLOCKS))
    moved = (
        2
        * problem.count
        * (problem.m * (2 * problem.d + problem.dv) + problem.n * 2 * (problem.d + problem.dv))
    )
    us = rounds * (_BLOCK_CLOCKS + sharing * clocks) / _CLOCK_MHZ
    return _START_US + max(us, moved / _MEMORY_BYTES)


def ranked_specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> tuple[Spec, ...]:
    """All `specs`, by the prior the cheapest first, equals in their order. All combine sums in one order, whether it is
    `fixed` or not; the kernel gives no order, as longer sequences have another."""
    return tuple(sorted(specs(problem, arch), key=lambda spec: round(predicted_us(problem, spec, arch), 3)))
