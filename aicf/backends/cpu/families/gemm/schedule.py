"""Every decision about the code of a GEMM on the CPU, with a cost prior. Imports no code generator.

`template.py` turns a `GemmSpec` into code and decides nothing; `propose` lists sensible specs for a problem, cheapest
first, for a pass to choose from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aicf.backends.cpu.families.gemm.spec import (
    CACHE_LINE,
    MOST_ROWS,
    MOST_VECTORS,
    SPLITS,
    BSource,
    GemmProblem,
    GemmSpec,
    check,
)
from aicf.backends.cpu.families.gemm.units import QUADS_FEATURE
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel

NOMINAL_GHZ = 3.0
"""Clock that turns predicted cycles into microseconds; ranking does not depend on it."""

_CHAIN_CYCLES = 5.0
"""Cycles between two steps of one sum: the latency of a multiply-add and some slack for the scheduler."""
_LOAD_CYCLES = 0.05
"""Of a load that is issued beside the arithmetic."""
_L1_BYTES = 32 << 10
_L1_WAYS = 8
_L1_STRIDE = 4 << 10
"""Bytes from one line of a set of L1 to the next."""
L2_BYTES = 1 << 20
"""Of one core."""
L2_BYTES_PER_CYCLE = 32.0
L3_BYTES_PER_CYCLE = 12.0
_WIDEST_VECTOR = 64
STREAM_AHEAD = 8 << 10
"""Bytes that a B of one pass is fetched ahead, past the page at which the hardware's own prefetch ends. Measured on
28 MB of weights that were in no cache of the core: 9 to 14 GB/s without, 17 GB/s from 4 to 16 KiB ahead."""
_TILE_OVERHEAD_CYCLES = 12.0
_WIDEN_CYCLES = 1.0
"""Of a vector: two operations on the ports that multiply."""
_SHIFT_CYCLES = 0.5
"""Of a unit of i8, on the ports that multiply."""
_STORE_CYCLES = 1.5
_BLOCK_BYTES = 768 << 10
_GROUP_BYTES = 512 << 10
"""Of panels that are packed together: they share L2 with the tiles of A that pass."""
MEETING_CYCLES = 6000.0
"""What sharing an instruction costs: threads meet before and after it, and one has to wait for the other."""


def traffic_cycles(bytes_: float) -> float:
    """Cycles to read or write that much once, from the level of cache that holds it."""
    return bytes_ / (L2_BYTES_PER_CYCLE if bytes_ <= L2_BYTES else L3_BYTES_PER_CYCLE)


def cycles(spec: GemmSpec, epilogue_cycles: float = 0.0, row_cycles: float = 0.0) -> float:
    """Predicted cycles of one thread's share of all products, and of the rows of A where they are made here.

    A row takes `row_cycles`. Threads that share columns make all rows each, threads that share rows only their own.
    """
    p = spec.problem
    products = _product_cycles(spec, epilogue_cycles / p.tile_products) * p.products
    if not p.copies_rows:
        return products
    if p.widens_rows:
        row_cycles = p.k / spec.lanes * _WIDEN_CYCLES
    tiles = -(-p.m // spec.mr)
    share = -(-tiles // spec.threads) / tiles if spec.partition == "rows" else 1.0
    return products + p.m * row_cycles * share


def _compute_cycles(spec: GemmSpec, epilogue_cycles: float) -> float:
    """Predicted cycles of one product if all of B were in the first level of cache.

    Per tile and step of K: the multiply-adds (two a cycle), the loads (two a cycle) and the latency of the longest
    chain, whichever is largest; then stores and the epilogue (`epilogue_cycles` per vector).
    """
    p = spec.problem
    work = spec.work
    widen = 0.0 if spec.b_element == p.wide_element else _WIDEN_CYCLES

    shift = _SHIFT_CYCLES if p.shift else 0.0

    def tile(rows: int, vectors: int) -> float:
        step = max(
            work * rows * vectors / 2 + widen * vectors + shift * rows,
            (rows + vectors) / 2,
            _CHAIN_CYCLES * min(work, 2.0) / spec.k_split,
        )
        step += _LOAD_CYCLES * (rows + vectors)
        sums = rows * vectors
        return (
            step * p.depth
            + _TILE_OVERHEAD_CYCLES
            + sums * (_STORE_CYCLES + spec.k_split - 1 + epilogue_cycles)
        )

    full_panels, column_tail = divmod(p.n, spec.nr)
    tail_vectors = -(-column_tail // spec.lanes)
    full_rows, row_tail = divmod(p.m, spec.mr)
    total = 1.0
    for panels, vectors in ((full_panels, spec.nv), (min(column_tail, 1), tail_vectors)):
        total += panels * (
            full_rows * tile(spec.mr, vectors) + (tile(row_tail, vectors) if row_tail else 0.0)
        )
    return total


def _is_long(problem: GemmProblem) -> bool:
    """Whether A does not stay in L2 while something passes over all of it."""
    return problem.m * problem.depth * ELEMENT_BYTES[problem.dtype] > 2 * L2_BYTES


def _product_cycles(spec: GemmSpec, epilogue_cycles: float) -> float:
    """Predicted cycles of one thread's share of one product.

    Traffic of B from L2 or L3 is a second bound beside the arithmetic. Every extra copy of the tile's code (tails)
    costs a little, which breaks near-ties toward less code.
    """
    p = spec.problem
    full_panels, column_tail = divmod(p.n, spec.nr)
    tail_vectors = -(-column_tail // spec.lanes)
    copies = (min(full_panels, 1) + min(column_tail, 1)) * (min(p.m // spec.mr, 1) + min(p.m % spec.mr, 1))
    total = _compute_cycles(spec, epilogue_cycles)
    size = ELEMENT_BYTES[p.dtype]
    b_size = ELEMENT_BYTES[spec.b_unit]
    b_bytes = (full_panels * spec.nv + tail_vectors) * spec.lanes * p.depth * b_size
    blocks = -(-p.m // spec.mc) if spec.mc else 1
    # A panel that fits L1 is fetched once a block, a longer one, or one of several, again for every tile.
    stays = spec.group == 1 and spec.panel_elements * b_size <= _L1_BYTES
    passes = blocks if stays else -(-p.m // spec.mr)
    panels = full_panels + (column_tail > 0)
    groups = -(-panels // spec.group)
    speed = L2_BYTES_PER_CYCLE if b_bytes <= L2_BYTES else L3_BYTES_PER_CYCLE
    # Narrow loads keep fewer lines under way: three quarters of the speed with vectors of 16 bytes.
    speed *= 0.7 + 0.3 * spec.lanes * b_size / _WIDEST_VECTOR
    total = max(total, b_bytes * blocks / speed, b_bytes * passes / L2_BYTES_PER_CYCLE)
    # Not all of that overlaps with the arithmetic.
    total += b_bytes * (passes - blocks) / L2_BYTES_PER_CYCLE / 16
    if spec.mr > _L1_WAYS and p.tile_strides[0] * ELEMENT_BYTES[p.tile_element] % _L1_STRIDE == 0:
        total *= 1.03  # its rows and those of B share one set of the first level
    if spec.mc == 0 and _is_long(p):
        total += p.m * p.depth * size * groups / L3_BYTES_PER_CYCLE / 2
    if spec.b_source == "workspace":
        total += b_bytes * blocks / (16.0 if p.b_strides[1] == 1 or p.b_strides[0] == 1 else 4.0)
    elif spec.b_source == "direct":
        # Rows a power of two apart fall into few cache sets: measured at twice the time from L2 on.
        total *= 2.0 if p.b_strides[0] * b_size % 2048 == 0 and p.k > 64 and p.m > 2 * spec.mr else 1.1
        if column_tail % spec.lanes and spec.lanes * b_size <= 16:
            total += p.k * spec.lanes * (p.m // spec.mr + 1)  # masked loads come apart without AVX
    batch = 1
    for count in p.batch:
        batch *= count
    total *= batch * (1 + 0.005 * (copies - 1))
    if spec.threads == 1:
        return total
    shares = -(-p.m // spec.mr) if spec.partition == "rows" else groups
    return total * -(-shares // spec.threads) / shares + MEETING_CYCLES / p.products


def _tiles(
    problem: GemmProblem, level: CpuLevel, vectors_of: Sequence[int], splits: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """Register tiles (rows, vectors out of `vectors_of`, split of K) that fit the registers."""
    needed = max(1, -(-problem.n // level.lanes(problem.dtype)))
    widths = sorted({min(vectors, needed) for vectors in vectors_of})
    for rows in range(1, max(1, min(MOST_ROWS, problem.m)) + 1):
        for vectors in widths:
            for split in splits:
                sums = rows * vectors * split
                if sums + vectors + 1 <= level.registers and (
                    split == 1 or (sums <= 16 and split <= problem.depth)
                ):
                    yield rows, vectors, split


def _prefetch(
    problem: GemmProblem, rows: int, panel_row_bytes: int, k_step: int, b_source: BSource
) -> tuple[int, int]:
    """Lines to prefetch per step of K and how far ahead, if B does not stay in L2: of the stream, where a panel is one
    tile, or of the next panel, where a panel has enough tiles to spread the requests over."""
    if b_source != "packed" or problem.depth * problem.n * ELEMENT_BYTES[problem.dtype] < L2_BYTES:
        return 0, 0
    if problem.m <= rows:
        return -(-k_step * panel_row_bytes // CACHE_LINE), STREAM_AHEAD
    tiles = problem.m // rows
    return (-(-4 * panel_row_bytes // (tiles * CACHE_LINE)), 0) if tiles >= 4 else (0, 0)


def _group(problem: GemmProblem, panel_bytes: int, panels: int, threads: int, b_source: BSource) -> int:
    """Panels that are packed together where a long A passes over them, two groups for each thread at least."""
    if b_source != "workspace" or not _is_long(problem) or problem.products > 1 or problem.copies_rows:
        return 1
    return max(1, min(_GROUP_BYTES // panel_bytes, panels // (2 * threads)))


def propose(
    problem: GemmProblem,
    level: CpuLevel,
    b_source: BSource,
    *,
    threads: int = 1,
    epilogue_cycles: float = 0.0,
    row_cycles: float = 0.0,
    vectors_of: Sequence[int] = range(1, MOST_VECTORS + 1),
    splits: Sequence[int] = SPLITS,
    count: int = 4,
    b_panel_type: str = "",
) -> list[tuple[float, GemmSpec]]:
    """Up to `count` legal specs with predicted microseconds, cheapest first, ties to less arithmetic, then less code.

    Panels of B have one of `vectors_of` vectors, or as few as N needs; an element has one of `splits` sums over K.
    `epilogue_cycles` is the cost of the epilogue per vector; an expensive one (over 8) leaves the registers by a tile
    buffer, so that its code is emitted once a row and not once a vector of the tile. `row_cycles` is the cost of a row
    of A that is made on the way in; threads then share rows where B lets them, so that none makes the rows of another.
    Panels of packed B hold `b_panel_type`, see `GemmSpec`.
    """
    size = ELEMENT_BYTES[problem.dtype]
    found: list[tuple[float, tuple[int, int], GemmSpec]] = []
    for rows, vectors, split in _tiles(problem, level, vectors_of, splits):
        spare = _BLOCK_BYTES // max(1, problem.depth * size) // rows * rows
        blocked = _is_long(problem) and spare >= rows
        panels = -(-problem.n // (vectors * level.lanes(problem.dtype)))
        own_rows = problem.copies_rows and problem.m >= 2 * rows * threads
        unroll = max(4, split)
        unit = problem.unit_type(b_panel_type or problem.wide_element)
        panel_row_bytes = vectors * level.lanes(problem.dtype) * ELEMENT_BYTES[unit]
        lines, ahead = _prefetch(problem, rows, panel_row_bytes, unroll, b_source)
        by_columns = b_source == "workspace" or (panels >= 2 * threads and not own_rows)
        spec = GemmSpec(
            problem,
            lanes=level.lanes(problem.dtype),
            mr=rows,
            nv=vectors,
            k_unroll=unroll,
            k_split=split,
            b_source=b_source,
            group=_group(problem, problem.depth * vectors * level.vector_bytes, panels, threads, b_source),
            mc=spare if blocked and b_source != "workspace" else 0,
            partition="none" if threads == 1 else "columns" if by_columns else "rows",
            threads=threads,
            fused=level.has_fma,
            dots=QUADS_FEATURE in level.features,
            prefetch_lines=lines,
            prefetch_ahead=ahead,
            tile_buffer=epilogue_cycles > 8,
            b_panel_type=b_panel_type,
        )
        if check(spec) is None:
            arithmetic = round(_compute_cycles(spec, epilogue_cycles))
            found.append(
                (cycles(spec, epilogue_cycles, row_cycles), (arithmetic, rows * vectors * split), spec)
            )
    found.sort(key=lambda entry: (round(entry[0]), entry[1], entry[2].mr, entry[2].nv))
    return [(predicted / NOMINAL_GHZ / 1000, spec) for predicted, _, spec in found[:count]]
