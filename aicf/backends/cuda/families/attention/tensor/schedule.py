"""The decisions of `cuda.attention`: its tiles, where everything lies in shared memory, and what that is predicted to
take.

Tile sizes are plain data, shared with `codegen.py`, which makes the launches. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, RecordCodec, Whole, powers_of_two
from aicf.backends.cuda.families.attention.problem import AttentionProblem, mask_clocks
from aicf.backends.cuda.target import GpuArch


@dataclass(frozen=True)
class AttentionSpec:
    """Tiles of `cuda.attention`.

    Args:
        block_m: Queries of a block.
        block_n: Keys of a tile.
        stages: Tiles of keys and values in shared memory; 1 if one tile holds all keys.
        warps_m: Warps that share the queries of a block, 16 or 32 rows each.
        warps_n: Warps that share the keys of a tile; their partial results are combined at the end.
        warpgroups: 1 if products are those of four warps together (wgmma), 0 if those of one (mma.sync).
    """

    block_m: Annotated[int, Entry(OneOf((16, 32, 64, 128, 192, 256)))]
    block_n: Annotated[int, Entry(powers_of_two(16, 256))]
    stages: Annotated[int, Entry(Whole(1, 8))]
    warps_m: Annotated[int, Entry(OneOf((1, 2, 4, 8, 12)))]
    warps_n: Annotated[int, Entry(OneOf((1, 2, 4, 8)))]
    warpgroups: Annotated[int, Entry(OneOf((0, 1)))] = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n

    @property
    def row_tiles(self) -> int:
        """16-row tiles of a warp."""
        return self.block_m // (16 * self.warps_m)

    @property
    def keys(self) -> int:
        """Keys of a warp in one tile."""
        return self.block_n // self.warps_n


@dataclass(frozen=True)
class SharedLayout:
    """Shared memory of one block, in bytes. A row is padded by 16 bytes: ldmatrix then hits every bank once.

    Args:
        k_pitch, v_pitch: Rows of queries and keys, of values and results.
        partial_pitch: Rows of f32 partial results.
        tiles: Where the stages begin, after the queries.
        v: Where the values begin in a stage, after the keys.
        stage: One stage.
        states: Where the maxima and sums begin: after the partial results, which take the room of the tiles at the end.
        total: All.
    """

    k_pitch: int
    v_pitch: int
    partial_pitch: int
    tiles: int
    v: int
    stage: int
    states: int
    total: int


def shared_layout(problem: AttentionProblem, spec: AttentionSpec) -> SharedLayout:
    """Where everything lies in shared memory."""
    k_pitch, v_pitch, partial_pitch = 2 * problem.d + 16, 2 * problem.dv + 16, 4 * problem.dv + 32
    if spec.warpgroups:
        # Whole panels for wgmma, and up to 1023 bytes to its alignment; results are padded as ever.
        tiles = spec.block_m * 2 * problem.d
        stage, v = spec.block_n * 2 * (problem.d + problem.dv), spec.block_n * 2 * problem.d
        total = max(tiles + spec.stages * stage, spec.block_m * v_pitch) + 1024
        return SharedLayout(k_pitch, v_pitch, partial_pitch, tiles, v, stage, 0, total)
    tiles = spec.block_m * max(k_pitch, v_pitch)
    stage = spec.block_n * (k_pitch + v_pitch)
    rows = spec.block_m * spec.warps_n if spec.warps_n > 1 else 0
    states = rows * partial_pitch
    total = max(tiles + spec.stages * stage, states + 8 * rows)
    v = spec.block_n * k_pitch
    return SharedLayout(k_pitch, v_pitch, partial_pitch, tiles, v, stage, states, total)


_OTHER_REGISTERS, _OTHER_WGMMA_REGISTERS = 44, 34
"""Registers beside those of the matrices: addresses, fragments in flight, maxima and sums."""


def registers_of(problem: AttentionProblem, spec: AttentionSpec) -> int:
    """Registers of one thread, about: scores and results of its rows, and with mma.sync the queries."""
    row = spec.keys // 2 + problem.dv // 2
    if spec.warpgroups:
        return row + spec.keys * 3 // 16 + _OTHER_WGMMA_REGISTERS
    return spec.row_tiles * (row + problem.d // 4 + 8) + _OTHER_REGISTERS


def specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> Iterator[AttentionSpec]:
    """The tilings that make sense for `problem` on `arch`: one tile for all keys where 128 are enough.

    With `fixed` only those that combine keys in one order, whatever the number of queries and batch elements: in tiles
    of one size, and a row of scores in one warp.
    """
    whole = next((block_n for block_n in (16, 32, 64, 128, 256) if block_n >= problem.n), None)
    tiles = (whole,) if whole is not None and whole <= 128 else (64, 128, 256) if whole else (64, 128)
    if fixed:
        tiles = tiles[:1]
    for block_m in (16, 32, 64, 128):
        if block_m > 16 and block_m >= 2 * problem.m:
            continue
        for block_n in tiles:
            for stages in (1,) if block_n >= problem.n else (2, 3):
                for warps_m, warps_n in _WARPS_APART if fixed else _WARPS:
                    spec = AttentionSpec(block_m, block_n, stages, warps_m, warps_n)
                    if _fits(problem, spec, arch):
                        yield spec
                for groups in (1, 2, 3) if block_m == 64 and arch.has_wgmma and not fixed else ():
                    spec = AttentionSpec(64 * groups, block_n, stages, 4 * groups, 1, 1)
                    if _fits(problem, spec, arch):
                        yield spec


_WARPS = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1))
_WARPS_APART = tuple((warps_m, warps_n) for warps_m, warps_n in _WARPS if warps_n == 1)


def spec_reason(problem: AttentionProblem, spec: AttentionSpec, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    method = f"tiles of {spec.block_m} queries and {spec.block_n} keys, {spec.warps_m}x{spec.warps_n} warps"
    if (spec.stages == 1) != (spec.block_n >= problem.n):
        return f"{spec.stages} stages: one is for a tile of all {problem.n} keys, several are for more tiles"
    groups = spec.warps_m // 4
    shapes = [(4 * groups, 1)] if spec.warpgroups and spec.block_m == 64 * groups else [*_WARPS]
    if (spec.warps_m, spec.warps_n) not in shapes or (spec.warpgroups and not arch.has_wgmma):
        return f"there is no code for {method} on {arch.name}"
    return None if _fits(problem, spec, arch) else f"{method} do not fit registers and shared memory"


def _fits(problem: AttentionProblem, spec: AttentionSpec, arch: GpuArch) -> bool:
    rows, keys = spec.block_m / (16 * spec.warps_m), spec.block_n / spec.warps_n
    if rows not in (1, 2) or keys % 16 != 0 or keys > 128:
        return False
    if spec.warpgroups and (keys < 64 or problem.d % 64 != 0 or problem.dv % 64 != 0):
        return False
    registers = registers_of(problem, spec)
    if registers > 250 or registers * spec.threads > 65536:
        return False
    return shared_layout(problem, spec).total <= arch.shared_bytes


# Cost prior: clocks of a Hopper multiprocessor, fitted to order the tilings; measurements replace it.

_CLOCK_MHZ = 1700.0
_START_CLOCKS = 2000.0
"""Launch, first copy and last store of a block."""
_WARP_CLOCKS, _COMBINE_CLOCKS = 30.0, 200.0
"""More for every warp of a block, and for every partial result of a row."""
_TILE_CLOCKS = 400.0
"""A tile's barriers, and reductions over the lanes of a row."""
_MMA_CLOCKS = (7.0, 5.5)
"""One m16n8k16 of one quarter of a multiprocessor, with its share of ldmatrix, for one or two 16-row tiles."""
_SCORE_CLOCKS = 0.35
"""One score in one quarter: scale, exponential, sum, conversion."""
_WGMMA_CLOCKS = (200.0, 0.0525)
"""A tile of 64 queries that a warpgroup takes (wgmma): its barriers; each key, softmax included, for each element of
key and value."""
_MASK_CLOCKS = (0.036, 0.18)
"""More for one score of a multiprocessor if a mask is added: with one row for all queries, and with a row for each."""
_COPY_BYTES = 40.0
"""Bytes a clock from L2 to one multiprocessor."""


def predicted_us(problem: AttentionProblem, spec: AttentionSpec, arch: GpuArch) -> float:
    """Microseconds of the kernel by a model of one multiprocessor: rounds of resident blocks, which wait for their
    first tile; each tile is bound by a warp's own chain, by the throughput that the blocks share, or by the copies."""
    blocks = -(-problem.m // spec.block_m) * problem.count
    seen = problem.tiles_seen(spec.block_m, spec.block_n)
    resident = resident_blocks(problem, spec, arch)
    sharing = min(resident, -(-blocks // arch.multiprocessors))
    chain, throughput = _tile_clocks(problem, spec, sharing * spec.threads // 32)
    copies = 2 * spec.block_n * (problem.d + problem.dv) / _COPY_BYTES
    queries = 2 * spec.block_m * problem.d / _COPY_BYTES
    ends = _START_CLOCKS + _WARP_CLOCKS * spec.threads / 32
    ends += _COMBINE_CLOCKS * spec.warps_n if spec.warps_n > 1 else 0.0
    rounds = blocks / (arch.multiprocessors * resident)
    # The longest blocks start first; where all run at once they are waited for, else they even out.
    tiles = max(seen) if rounds <= 1 else sum(seen) / len(seen)
    # Blocks drift apart, so a last round is rarely a whole one.
    rounds = (max(1.0, rounds) + ceil(rounds)) / 2
    clocks = ends + queries + copies + tiles * max(chain, throughput, sharing * copies)
    return rounds * clocks / _CLOCK_MHZ


def _tile_clocks(problem: AttentionProblem, spec: AttentionSpec, warps: int) -> tuple[float, float]:
    """Clocks of one tile of keys: for a warp alone, and until all `warps` of a multiprocessor have done theirs."""
    mask = mask_clocks(problem, _MASK_CLOCKS)
    if spec.warpgroups:
        start, product = _WGMMA_CLOCKS
        chain = start + product * spec.keys * (problem.d + problem.dv) + 64 * spec.keys * mask
        return chain, chain * warps / 4
    products = spec.row_tiles * (spec.keys // 8) * (problem.d + problem.dv) // 16
    chain = products * _MMA_CLOCKS[spec.row_tiles - 1] + spec.row_tiles * 16 * spec.keys * (
        _SCORE_CLOCKS + 4 * mask
    )
    return chain + _TILE_CLOCKS, chain * warps / min(4, warps)


def resident_blocks(problem: AttentionProblem, spec: AttentionSpec, arch: GpuArch) -> int:
    """Blocks that share a multiprocessor."""
    by_registers = 65536 // (min(255, registers_of(problem, spec)) * spec.threads)
    by_shared = arch.shared_bytes // (shared_layout(problem, spec).total + 1024)
    return max(1, min(by_registers, by_shared, 1536 // spec.threads, 16))


@lru_cache(maxsize=1024)
def ranked_specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> tuple[AttentionSpec, ...]:
    """All `specs`, by the prior the cheapest first, equals in their order."""
    return tuple(
        sorted(specs(problem, arch, fixed), key=lambda spec: round(predicted_us(problem, spec, arch), 3))
    )


CODEC = RecordCodec(AttentionSpec)
read_spec = CODEC.read
