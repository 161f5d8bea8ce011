"""The decisions of `cuda.attention_backward`: its tiles, where everything lies in shared memory, and what that is
predicted to take. Plain data.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, RecordCodec
from aicf.backends.cuda.families.attention.problem import AttentionProblem, mask_clocks
from aicf.backends.cuda.target import GpuArch

# Decisions

WARPS = 4
"""Of a block; each has 16-row tiles of its own."""
TILES = (64, 32)


@dataclass(frozen=True)
class Spec:
    """Tiles of `cuda.attention_backward`.

    Args:
        query_tiles: 16-row tiles of queries of one warp, in the launch that walks over the keys.
        key_tiles: 16-row tiles of keys of one warp, in the launch that walks over the queries.
        tile: Rows that are walked over at a time.
    """

    query_tiles: Annotated[int, Entry(OneOf((1, 2)))]
    key_tiles: Annotated[int, Entry(OneOf((1, 2)))]
    tile: Annotated[int, Entry(OneOf(TILES))]


CODEC = RecordCodec(Spec)
read_spec = CODEC.read


@dataclass(frozen=True)
class Phase:
    """One of the two launches.

    Args:
        is_rows: Whether it is the first one, whose blocks hold queries and walk over keys.
        held, streamed: Rows that blocks share out, and rows that each walks over.
        d, dv: Elements of a query or key, and of a value.
        row_tiles: 16-row tiles of a warp.
        tile: Rows that are walked over at a time.
    """

    is_rows: bool
    held: int
    streamed: int
    d: int
    dv: int
    row_tiles: int
    tile: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * WARPS

    @property
    def block(self) -> int:
        """Rows of a block."""
        return 16 * WARPS * self.row_tiles

    @property
    def blocks(self) -> int:
        """Of a batch element."""
        return -(-self.held // self.block)

    @property
    def total(self) -> int:
        """Registers of the results of a 16-row tile."""
        return self.d // 2 if self.is_rows else (self.d + self.dv) // 2

    @property
    def blocks_per_sm(self) -> int:
        """Blocks for which the compiler must leave registers: three where their code is as short as that of two."""
        is_small = self.row_tiles == 1 and self.tile == min(TILES)
        return 3 if is_small and self._registers(*_CHUNK_OF_THREE) <= _MOST_OF_THREE else 1

    @property
    def chunk(self) -> tuple[int, bool]:
        """Registers of scores that a 16-row tile has at once, two for each streamed row, and whether values, or the
        gradients in their place, stay in registers: as much of both as fits."""
        if self.blocks_per_sm == 3:
            return _CHUNK_OF_THREE
        fitting = (each for each in _CHUNKS if self._registers(*each) <= _MOST_REGISTERS)
        return next(fitting, _CHUNKS[-1])

    @property
    def registers(self) -> int:
        """Of a thread, about."""
        return self._registers(*self.chunk)

    def _registers(self, width: int, is_kept: bool) -> int:
        """Held rows, results, scores and the gradients of these, and the rest."""
        held = self.d // 4 + (self.dv // 4 if is_kept else 0)
        states = _STATE_REGISTERS if self.is_rows else 0
        return self.row_tiles * (held + self.total + 2 * width + _ROW_REGISTERS + states) + _OTHER_REGISTERS

    # Shared memory, in bytes. A row is padded by 16 bytes: ldmatrix then hits every bank once.

    @property
    def pitches(self) -> tuple[int, int]:
        """Of a query or key, and of a value."""
        return 2 * self.d + 16, 2 * self.dv + 16

    @property
    def tiles_at(self) -> int:
        """Where the stages begin, after the held rows."""
        return self.block * sum(self.pitches)

    @property
    def states_at(self) -> int:
        """Where the states of queries begin in a stage, after its rows."""
        return self.tile * sum(self.pitches)

    @property
    def stage(self) -> int:
        """One stage."""
        return self.states_at + (0 if self.is_rows else self.tile * STATE_BYTES)

    @property
    def shared_bytes(self) -> int:
        """All."""
        return self.tiles_at + 2 * self.stage


STATE_BYTES = 12
"""Three numbers of f32 that say of a query what the second launch needs."""
_STATE_REGISTERS, _ROW_REGISTERS, _OTHER_REGISTERS = 8, 16, 32
"""Registers beside those of the matrices: maxima and sums of a 16-row tile of queries; fragments of a 16-row tile in
flight; addresses."""
_CHUNKS = ((16, True), (16, False), (8, False))
_CHUNK_OF_THREE = (8, True)
_MOST_REGISTERS, _MOST_OF_LONG_TILES, _MOST_OF_THREE = 240, 208, 160
"""What compiles without spills, of tiles of 32 rows and of 64, for the compiler overlaps the parts of a tile; and of
tiles of 32 rows in a third of a multiprocessor's registers."""


def phases(problem: AttentionProblem, spec: Spec) -> tuple[Phase, Phase]:
    """The two launches, in order."""
    m, n, d, dv = problem.m, problem.n, problem.d, problem.dv
    return (
        Phase(True, m, n, d, dv, spec.query_tiles, spec.tile),
        Phase(False, n, m, d, dv, spec.key_tiles, spec.tile),
    )


def padded_queries(problem: AttentionProblem, spec: Spec) -> int:
    """Queries of a batch element, in whole tiles: so many states it has in the workspace."""
    return -(-problem.m // spec.tile) * spec.tile


def workspace_bytes(problem: AttentionProblem, spec: Spec) -> int:
    """The states of all queries."""
    return problem.count * padded_queries(problem, spec) * STATE_BYTES


def spec_reason(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    most = _MOST_REGISTERS if spec.tile == min(TILES) else _MOST_OF_LONG_TILES
    for phase, name in zip(phases(problem, spec), ("queries", "keys"), strict=True):
        method = (
            f"{phase.block} {name} of {problem.d} and {problem.dv} elements with tiles of {spec.tile} rows"
        )
        if phase.registers > most:
            return f"{method} do not fit in the registers of a block"
        if phase.shared_bytes > arch.shared_bytes:
            return f"{method} do not fit in the shared memory of {arch.name}"
    return None


def specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> Iterator[Spec]:
    """The tilings that make sense. With `fixed` one alone, which the elements of queries and values decide: others
    combine sums in another order."""
    for tile in TILES:
        for query_tiles in (1, 2):
            for key_tiles in (1, 2):
                spec = Spec(query_tiles, key_tiles, tile)
                if spec_reason(problem, spec, arch) is None:
                    yield spec
                    if fixed:
                        return


# Cost prior: it orders the tilings; measurements replace it.

_PART_OF_PEAK = 0.3
"""Of the tensor cores' throughput that mma.sync reaches here with one 16-row tile for each fragment that is loaded."""
_GAIN = 1.15
"""With two."""
_START_US = 4.0
"""Of each launch."""
_CLOCK_MHZ = 1700.0
_SCORE_CLOCKS = 0.03
"""An exponential and the arithmetic about it, as far as products do not hide it."""
_MASK_CLOCKS = (0.023, 0.076)
"""More for a score to which a mask is added: with one row for all queries, and with a row for each."""
_PRODUCTS = (5, 4)
"""Of each launch, with the scores of the first one, which takes them twice."""


def predicted_us(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds: nine products and three exponentials of each score, fewer if attention is causal, and rounds of
    blocks that are not full."""
    scores = problem.count * problem.m * problem.n * _seen(problem, spec.tile)
    total = 0.0
    for phase, products, exponentials in zip(phases(problem, spec), _PRODUCTS, (2, 1), strict=True):
        rate = _PART_OF_PEAK * arch.tensor_tflops * 1e6 * (_GAIN if phase.row_tiles > 1 else 1.0)
        us = products * scores * (problem.d + problem.dv) / rate
        clocks = exponentials * scores * (_SCORE_CLOCKS + mask_clocks(problem, _MASK_CLOCKS))
        us += clocks / arch.multiprocessors / _CLOCK_MHZ
        total += us * _idle(phase, problem.count, arch) + _START_US
    return total


def _seen(problem: AttentionProblem, tile: int) -> float:
    """The part of the scores that is made."""
    tiles = problem.tiles_seen(tile, tile)
    return sum(tiles) / (len(tiles) * -(-problem.n // tile))


def _idle(phase: Phase, count: int, arch: GpuArch) -> float:
    """What it takes in place of 1 because multiprocessors are not full all the time."""
    resident = min(max(2, phase.blocks_per_sm), max(1, arch.shared_bytes // (phase.shared_bytes + 1024)))
    rounds = phase.blocks * count / (arch.multiprocessors * resident)
    # Blocks drift apart, so a last round is rarely a whole one.
    return (max(1.0, rounds) + ceil(rounds)) / 2 / rounds


@lru_cache(maxsize=1024)
def ranked_specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> tuple[Spec, ...]:
    """All `specs`, by the prior the cheapest first, equals in their order."""
    return tuple(
        sorted(specs(problem, arch, fixed), key=lambda spec: round(predicted_us(problem, spec, arch), 3))
    )
