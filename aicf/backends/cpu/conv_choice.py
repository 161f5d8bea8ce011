"""The ways to convolve on the CPU, and which of them is predicted to take least. Imports no code generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

from aicf.backends.cpu.conv_costs import TRANSPOSE_CYCLES, EpilogueCycles, cost_us, planes_us
from aicf.backends.cpu.conv_spec import Along, ConvProblem, ConvSpec, check, tiled, winograd_reason
from aicf.backends.cpu.gemm_spec import CACHE_LINE, L2_BYTES, BSource, propose
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.backends.cpu.winograd_spec import propose_winograd
from aicf.backends.cpu.winograd_transforms import OUTPUT_TILES

_BLOCK_BYTES = 192 << 10
"""Of the copy of the input that tiles are made from: it shares L2 with a panel of the weight."""
_MOST_PIXELS = 14
"""Of a direct tile: one more adds code and next to no speed."""
_ALONG: tuple[Along, ...] = ("pixels", "channels")


@lru_cache(maxsize=1024)
def ranked(
    problem: ConvProblem,
    level: CpuLevel,
    threads: int,
    is_param: bool,
    epilogue: EpilogueCycles,
    transforms: bool,
) -> Sequence[tuple[float, ConvSpec]]:
    """The best spec of each algorithm, tile that is transformed and number of threads, with predicted microseconds; the
    cheapest first."""
    best: dict[tuple[str, int, int], tuple[float, ConvSpec]] = {}
    found = ways(problem, level, threads, is_param, epilogue, transforms)
    for us, spec in sorted(found, key=lambda entry: entry[0]):
        best.setdefault((spec.algorithm, spec.output_tile, spec.threads), (us, spec))
    return list(best.values())


def ways(
    problem: ConvProblem,
    level: CpuLevel,
    threads: int,
    is_param: bool,
    epilogue: EpilogueCycles,
    transforms: bool,
) -> list[tuple[float, ConvSpec]]:
    """All there is code for, with predicted microseconds.

    Args:
        is_param: Whether the weight can be packed ahead of time.
        transforms: Whether sums may be those of transformed numbers, which round otherwise.
    """
    shares = sorted({1, threads})
    if problem.channels == 1 and problem.groups > 1:
        # Vectors of channels are read where they lie, so that they would be widened for each product.
        channels = [] if problem.widens else _channels(problem, level, shares, is_param)
        specs = [*_planes(problem, level, shares), *channels]
    else:
        specs = _direct(problem, level, shares, is_param)
    found = [(cost_us(spec, epilogue), spec) for spec in specs]
    if problem.is_pointwise and not problem.widens:
        found += _products(problem, level, shares, is_param, epilogue)
    # At each run a weight would take longer to transform than most images to convolve.
    if transforms and is_param and winograd_reason(problem) is None:
        found += _winograd(problem, level, shares, epilogue)
    return found


def _winograd(
    problem: ConvProblem, level: CpuLevel, shares: Sequence[int], epilogue: EpilogueCycles
) -> Iterator[tuple[float, ConvSpec]]:
    """Ways to transform tiles, with predicted microseconds."""
    for share, along, tile in product(shares, _ALONG, OUTPUT_TILES):
        vector = epilogue.of(along) + (TRANSPOSE_CYCLES if along == "pixels" else 0.0)
        for us, spec in propose_winograd(tiled(problem), level, tile, share, vector):
            own = ConvSpec(
                problem, "winograd", spec.lanes, along, prepared=True, threads=share, winograd=spec
            )
            yield us, own


def _products(
    problem: ConvProblem, level: CpuLevel, shares: Sequence[int], is_param: bool, epilogue: EpilogueCycles
) -> Iterator[tuple[float, ConvSpec]]:
    """Ways to multiply the weight and the pixels, with predicted microseconds."""
    own: BSource = "packed" if is_param else "workspace"
    sources: list[tuple[Along, BSource]] = [("pixels", "direct"), ("pixels", "workspace"), ("channels", own)]
    for share, (along, source) in product(shares, sources):
        for us, spec in propose(
            problem.product(along),
            level,
            source,
            threads=share,
            epilogue_cycles=epilogue.of(along),
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


def _planes(problem: ConvProblem, level: CpuLevel, shares: list[int]) -> list[ConvSpec]:
    """Depthwise in vectors of pixels of a row."""
    lanes = level.lanes(problem.dtype)
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
        for share in shares
        if share <= problem.batch * problem.groups
    ]


def _channels(problem: ConvProblem, level: CpuLevel, shares: list[int], is_param: bool) -> list[ConvSpec]:
    """Depthwise in vectors of channels, where those lie side by side; panels are whole lines of the cache."""
    lanes = level.lanes(problem.dtype)
    vectors = min(max(1, CACHE_LINE // level.vector_bytes, 2), -(-problem.groups // lanes))
    pixels = max(1, min((level.registers - 6) // vectors - 1, 6, problem.counts[1]))
    specs = [
        ConvSpec(
            problem,
            "depthwise",
            lanes,
            "channels",
            pixels,
            vectors,
            problem.counts[0],
            prepared=is_param,
            threads=share,
        )
        for share in shares
    ]
    return [spec for spec in specs if spec.threads <= spec.panels and check(spec) is None]


def _direct(problem: ConvProblem, level: CpuLevel, shares: list[int], is_param: bool) -> list[ConvSpec]:
    lanes = level.lanes(problem.dtype)
    needed = -(-problem.outputs // lanes)
    found: list[ConvSpec] = []
    for along, vectors in product(_ALONG, range(1, min(4, needed) + 1)):
        longest = lanes if along == "pixels" else _MOST_PIXELS
        most = min((level.registers - 1 - vectors) // vectors, longest)
        for pixels, share in product(range(min(2, most), most + 1), shares):
            spec = ConvSpec(
                problem,
                "direct",
                lanes,
                along,
                pixels,
                vectors,
                problem.counts[0],
                problem.is_padded or problem.widens,
                is_param and problem.groups == 1,
                share,
            )
            if share <= spec.panels:
                found.append(_prefetching(_blocked(spec)))
    return found


def _prefetching(spec: ConvSpec) -> ConvSpec:
    """The spec with the next panel fetched meanwhile, if panels do not stay in L2 and tiles are few."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    if spec.panels * spec.nr * p.steps * size < L2_BYTES:
        return spec
    lines = spec.channel_step * prod(p.taps) * spec.nr * size // CACHE_LINE
    return replace(spec, prefetch_lines=-(-lines // spec.tiles)) if spec.tiles <= lines else spec


def _blocked(spec: ConvSpec) -> ConvSpec:
    """The spec with blocks of rows whose copy stays in cache, even ones of whole tiles."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    if not spec.copies or spec.copy_elements * size <= 2 * _BLOCK_BYTES:
        return spec
    pixel = spec.copied_pixel if spec.copies_channels_last else p.depth
    row = spec.pitch * pixel * size * p.strides[0]
    rows = max(_BLOCK_BYTES // row // spec.tile_rows, 1) * spec.tile_rows
    blocks = -(-p.counts[0] // rows)
    even = -(-p.counts[0] // (blocks * spec.tile_rows)) * spec.tile_rows
    return replace(spec, block_rows=min(even, p.counts[0]))
