"""The ways to convolve on the CPU, and which of them is predicted to take least. Imports no code generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

from aicf.backends.cpu.families.conv.checks import MOST_PLANE_TAPS, check, tiled, winograd_reason
from aicf.backends.cpu.families.conv.costs import TRANSPOSE_CYCLES, EpilogueCycles, cost_us, planes_us
from aicf.backends.cpu.families.conv.problem import Along, ConvProblem
from aicf.backends.cpu.families.conv.schedule import MOST_PREFETCHED, ConvSpec
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES
from aicf.backends.cpu.families.conv.winograd.schedule import propose_winograd
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE, L2_BYTES, BSource, propose
from aicf.backends.cpu.families.gemm.units import QUADS_FEATURE
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel

_BLOCK_BYTES = 192 << 10
"""Of the copy of the input that tiles are made from: it shares L2 with a panel of the weight."""
_MOST_PIXELS = 14
"""Of a direct tile: one more adds code and next to no speed."""
_ALONG: tuple[Along, ...] = ("pixels", "channels")


@dataclass(frozen=True)
class ConvQuery:
    """What is asked: how to convolve.

    Args:
        problem: What is to be computed.
        level: On which processors.
        threads: At most so many.
        is_param: Whether the weight can be packed ahead of time.
        epilogue: What follows takes so long.
        transforms: Whether sums may be those of transformed numbers, which round otherwise.
    """

    problem: ConvProblem
    level: CpuLevel
    threads: int
    is_param: bool
    epilogue: EpilogueCycles
    transforms: bool

    @property
    def lanes(self) -> int:
        """Sums in a vector."""
        return self.level.lanes(self.problem.dtype)

    @property
    def shares(self) -> Sequence[int]:
        """The numbers of threads to choose from."""
        return sorted({1, self.threads})


@lru_cache(maxsize=1024)
def ranked(query: ConvQuery) -> Sequence[tuple[float, ConvSpec]]:
    """The best spec of each algorithm, tile that is transformed and number of threads, with predicted microseconds; the
    cheapest first."""
    best: dict[tuple[str, int, int], tuple[float, ConvSpec]] = {}
    for us, spec in offered(query):
        best.setdefault((spec.algorithm, spec.output_tile, spec.threads), (us, spec))
    return list(best.values())


@lru_cache(maxsize=64)
def offered(query: ConvQuery) -> Sequence[tuple[float, ConvSpec]]:
    """All specs with predicted microseconds, the cheapest first."""
    return sorted(candidates_of(query), key=lambda entry: entry[0])


def candidates_of(query: ConvQuery) -> list[tuple[float, ConvSpec]]:
    """All there is code for, with predicted microseconds."""
    problem = query.problem
    if problem.channels == 1 and problem.groups > 1 and prod(problem.taps) <= MOST_PLANE_TAPS:
        specs = [*_planes(query), *_channels(query)]
    else:
        specs = [*direct_specs(query), *_quads(query)]
    found = [(cost_us(spec, query.epilogue), spec) for spec in specs]
    if problem.is_pointwise and not problem.widens:
        found += _products(query)
    # At each run a weight would take longer to transform than most images to convolve.
    if query.transforms and query.is_param and winograd_reason(problem) is None:
        found += _winograd(query)
    return found


def _winograd(query: ConvQuery) -> Iterator[tuple[float, ConvSpec]]:
    """Ways to transform tiles, with predicted microseconds."""
    problem = query.problem
    for share, along, tile in product(query.shares, _ALONG, OUTPUT_TILES):
        vector = query.epilogue.of(along) + (TRANSPOSE_CYCLES if along == "pixels" else 0.0)
        for us, spec in propose_winograd(tiled(problem), query.level, tile, share, vector):
            own = ConvSpec(
                problem, "winograd", spec.lanes, along, prepared=True, threads=share, winograd=spec
            )
            yield us, own


def _products(query: ConvQuery) -> Iterator[tuple[float, ConvSpec]]:
    """Ways to multiply the weight and the pixels, with predicted microseconds."""
    problem = query.problem
    own: BSource = "packed" if query.is_param else "workspace"
    sources: list[tuple[Along, BSource]] = [("pixels", "direct"), ("pixels", "workspace"), ("channels", own)]
    for share, (along, source) in product(query.shares, sources):
        for us, spec in propose(
            problem.product(along),
            query.level,
            source,
            threads=share,
            epilogue_cycles=query.epilogue.of(along),
            splits=(1,),
            count=1,
        ):
            yield (
                us + (planes_us(spec) if along == "channels" else 0.0),
                ConvSpec(
                    problem,
                    "gemm",
                    spec.lanes,
                    along,
                    tile_vectors=spec.nv,
                    prepared=source == "packed",
                    threads=spec.threads,
                    product=spec,
                ),
            )


def _planes(query: ConvQuery) -> list[ConvSpec]:
    """Depthwise in vectors of pixels of a row."""
    problem, lanes = query.problem, query.lanes
    vectors = max(1, min(4, problem.counts[1] // lanes))
    copies = problem.is_padded or problem.x_strides[3] != 1 or problem.widens
    return [
        ConvSpec(
            problem,
            "depthwise",
            lanes,
            tile_vectors=vectors,
            block_rows=problem.counts[0],
            copies=copies,
            threads=share,
        )
        for share in query.shares
        if share <= problem.batch * problem.groups
    ]


def _channels(query: ConvQuery) -> list[ConvSpec]:
    """Depthwise in vectors of channels, where those lie side by side; panels are whole lines of the cache."""
    problem, level, lanes = query.problem, query.level, query.lanes
    vectors = min(max(1, CACHE_LINE // level.vector_bytes, 2), -(-problem.groups // lanes))
    pixels = max(1, min((level.registers - 6) // vectors - 1, 6, problem.counts[1]))
    alone = ConvSpec(
        problem,
        "depthwise",
        lanes,
        "channels",
        pixels,
        vectors,
        problem.counts[0],
        prepared=query.is_param,
    )
    shared = [replace(alone, threads=share) for share in query.shares if share <= alone.panels]
    by_rows = [
        replace(alone, threads=share, partition="rows")
        for share in query.shares
        if 1 < share <= problem.counts[0]
    ]
    return [spec for spec in (*shared, *by_rows) if check(spec) is None]


def direct_specs(query: ConvQuery) -> Iterator[ConvSpec]:
    """Tiles of pixels times vectors of output channels."""
    problem, lanes = query.problem, query.lanes
    copies = problem.is_padded or problem.widens
    if problem.quads:
        copies = problem.is_padded or problem.x_strides[1] != 1 or problem.channels % 4 != 0
    for along, pixels, vectors in _tiles(query):
        one = ConvSpec(
            problem,
            "direct",
            lanes,
            along,
            pixels,
            vectors,
            problem.counts[0],
            copies,
            query.is_param and problem.groups == 1,
        )
        for share in query.shares:
            if share <= one.panels:
                yield _prefetching(_blocked(replace(one, threads=share)))
            if share > 1 and problem.groups == 1 and problem.quads:
                yield from _of_rows(replace(one, threads=share, partition="rows"))


def _tiles(query: ConvQuery) -> Iterator[tuple[Along, int, int]]:
    """What the lanes of finished vectors are, and the pixels and vectors of tiles that fit the registers."""
    lanes = query.lanes
    needed = -(-query.problem.outputs // lanes)
    for along, vectors in product(_ALONG, range(1, min(4, needed) + 1)):
        longest = lanes if along == "pixels" else _MOST_PIXELS
        most = min((query.level.registers - 1 - vectors) // vectors, longest)
        for pixels in range(min(2, most), most + 1):
            yield along, pixels, vectors


def _of_rows(spec: ConvSpec) -> Iterator[ConvSpec]:
    """The spec with blocks of rows that threads share, where there are enough rows."""
    p, blocked = spec.problem, _blocked(spec)
    pieces = 1 if p.batch % spec.threads == 0 else spec.threads
    rows = -(-p.counts[0] // (pieces * spec.tile_rows)) * spec.tile_rows
    own = replace(blocked, block_rows=min(blocked.block_rows, rows, p.counts[0]))
    if p.batch * own.blocks >= spec.threads:
        yield own


def _quads(query: ConvQuery) -> list[ConvSpec]:
    """The same in units of four channels, where the level multiplies those."""
    p = query.problem
    if QUADS_FEATURE not in query.level.features or p.element not in ("u8", "i8") or p.weight_element != "i8":
        return []
    return [spec for spec in direct_specs(replace(query, problem=p.in_quads())) if check(spec) is None]


def _prefetching(spec: ConvSpec) -> ConvSpec:
    """The spec with the next panel fetched meanwhile, if panels do not stay in L2 and tiles are few."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    if spec.panels * spec.panel_units * size < L2_BYTES:
        return spec
    lines = spec.channel_step * prod(p.taps) * spec.nr * size // CACHE_LINE
    of_tile = -(-lines // spec.tiles)
    return replace(spec, prefetch_lines=of_tile) if 1 <= of_tile <= MOST_PREFETCHED else spec


def _blocked(spec: ConvSpec) -> ConvSpec:
    """The spec with blocks of rows whose copy stays in cache, even ones of whole tiles."""
    p = spec.problem
    if not spec.copies or spec.copy_bytes <= 2 * _BLOCK_BYTES:
        return spec
    pixel = spec.copied_pixel if spec.copies_channels_last else p.depth * spec.unit_places
    row = spec.pitch * pixel * spec.place_bytes * p.strides[0]
    rows = max(_BLOCK_BYTES // row // spec.tile_rows, 1) * spec.tile_rows
    blocks = -(-p.counts[0] // rows)
    even = -(-p.counts[0] // (blocks * spec.tile_rows)) * spec.tile_rows
    return replace(spec, block_rows=min(even, p.counts[0]))
