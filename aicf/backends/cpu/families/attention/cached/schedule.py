"""Every decision about the code of an attention over a cache on the CPU, with a cost prior. Imports no code generator.

A block of query rows passes over the keys tile by tile, with a running maximum and a running sum for each row
(Milakov and Gimelshein, Online normalizer calculation for softmax, 2018), up to the last key that one of them sees:
how far the cache reaches beyond that costs nothing and changes no bit, and neither does the number of threads. Scores
are made transposed, ``k @ q^T``: keys are read where they lie, and the softmax works on whole vectors of queries.
`template.py` turns a `CachedSpec` into code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, Whole, illegal
from aicf.backends.cpu.families.attention.cached.problem import KEY_TILE, CachedProblem
from aicf.backends.cpu.families.attention.schedule import padded_row
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import (
    CACHE_LINE,
    MEETING_CYCLES,
    NOMINAL_GHZ,
    GemmSpec,
    cycles,
    propose,
)
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel


@dataclass(frozen=True)
class CachedSpec:
    """A problem with every decision about its code.

    Args:
        block_rows: Queries that pass over the keys together.
        scores, output: The two products of a full block and a tile of keys.
        threads: That share the blocks of all batch elements.
    """

    problem: CachedProblem
    block_rows: Annotated[int, Entry(Whole(1))]
    scores: GemmSpec
    output: GemmSpec
    threads: Annotated[int, Entry(Whole(1))] = 1

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.scores.lanes

    @property
    def blocks(self) -> int:
        """Blocks of queries of a batch element."""
        return -(-self.problem.rows // self.block_rows)

    @property
    def row_elements(self) -> int:
        """Elements of the scores of one key: whole vectors of queries."""
        return padded_row(self.block_rows, self.lanes)

    @property
    def output_elements(self) -> int:
        """Elements from one row of the unfinished output to the next: whole vectors."""
        return padded_row(self.problem.dv, self.lanes)

    @property
    def parts(self) -> tuple[int, ...]:
        """Elements of workspace of one thread, in whole cache lines: packed queries; scores; unfinished output; largest
        scores, sums, and factors of what was summed before; a copied tile of keys, and one of values; turned
        queries."""
        p, line = self.problem, CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        sizes = (
            packed_elements(p.d, self.block_rows, self.scores.nr),
            KEY_TILE * self.row_elements,
            self.block_rows * self.output_elements,
            *3 * (self.row_elements,),
            KEY_TILE * p.d,
            KEY_TILE * p.dv,
            0 if p.rotation is None else self.block_rows * p.d,
        )
        return tuple(-(-size // line) * line for size in sizes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace needed, all threads together."""
        return sum(self.parts) * ELEMENT_BYTES[self.problem.dtype] * self.threads

    @property
    def combination_order(self) -> str:
        """How sums are combined, for the kernel record."""
        tiles = f"tiles of {KEY_TILE} keys, ascending"
        products = f"scores {self.scores.combination_order}; output {self.output.combination_order}"
        return f"{products}; rows and output by {tiles}"


def check_cached(spec: CachedSpec) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    if not (rows := Whole(1, spec.problem.rows)).holds(spec.block_rows):
        return f"its {illegal('block_rows', spec.block_rows, rows)}"
    if spec.problem.writes is not None and spec.blocks > 1:
        found = illegal("block_rows", spec.block_rows, spec.problem.rows)
        return f"its {found}: the thread that writes a row reads it for all its queries"
    for key, part, source in (("scores", spec.scores, "packed"), ("output", spec.output, "direct")):
        found = (
            ("b_source", part.b_source, OneOf((source,))),
            ("lanes", part.lanes, OneOf((spec.lanes,))),
            ("threads", part.threads, OneOf((1,))),
            ("block_rows", part.mc, OneOf((0,))),
            ("prefetch_lines", part.prefetch_lines, OneOf((0,))),
        )
        for name, value, legal in found:
            if not legal.holds(value):
                return f"in its '{key}', its {illegal(name, value, legal)}"
    return None


BLOCK_VECTORS = 2
"""Vectors of queries in a block: each key is then read from cache once for so many."""
_EXP_CYCLES = 15.0
"""Cycles of one vector of f32 in the softmax: most of it the exponential."""
_SCORE_CYCLES = 2.5
"""Epilogue of a vector of scores: scale and which keys are seen."""
_CAP_CYCLES = 30.0
"""Of a vector of scores besides, where they are capped."""
_OUTPUT_CYCLES = 1.5
"""Epilogue of a vector of the output: what was summed before, multiplied and added."""
_COPY_CYCLES = 1.0
"""Of a vector of keys or values that is copied."""
_TURN_CYCLES = 10.0
"""Of a vector of pairs that are turned, and those loads and stores of neighbours that take shuffles."""


def cost_us(spec: CachedSpec) -> float:
    """Predicted microseconds of one thread's share. A cache whose filling is known at run time alone is half full."""
    p = spec.problem
    seen = p.n if p.position is None else p.n / 2
    seen = min(seen, p.window + p.rows) if p.window else seen
    vectors = spec.row_elements // spec.lanes
    width = ELEMENT_BYTES[p.dtype] / 4
    cap = _CAP_CYCLES if p.softcap else 0.0
    tile = cycles(spec.scores, _SCORE_CYCLES + cap) + cycles(spec.output, _OUTPUT_CYCLES)
    tile += KEY_TILE * vectors * _EXP_CYCLES * width
    if p.copies_tiles:
        tile += KEY_TILE * (p.d + p.dv) / spec.lanes * _COPY_CYCLES
    items = -(-p.count * spec.blocks // spec.threads)
    turning = 0.0
    if p.rotation is not None:
        turning = (spec.block_rows + 1) * -(-p.d // (2 * spec.lanes)) * _TURN_CYCLES
    total = items * (-(-seen // KEY_TILE) * tile + turning) + (MEETING_CYCLES if spec.threads > 1 else 0.0)
    return total / NOMINAL_GHZ / 1000


_ONE_SUM = (1,)
"""Sums over K of both products. More would hide latency for some blocks of rows: their sizes follow from the threads,
whose number follows from the capacity, and neither may change the order of a sum."""


@lru_cache(maxsize=1024)
def choose(problem: CachedProblem, level: CpuLevel, threads: int) -> CachedSpec:
    """The spec that is predicted to take least, on one thread or on all. Results have the same bits for all of them."""
    found = [_spec(problem, level, count) for count in sorted({1, threads})]
    return min(found, key=cost_us)


def _spec(problem: CachedProblem, level: CpuLevel, threads: int) -> CachedSpec:
    """Blocks of even size, at least one for each thread if there are enough queries."""
    lanes = level.lanes(problem.dtype)
    blocks = max(-(-problem.rows // (BLOCK_VECTORS * lanes)), min(problem.rows, -(-threads // problem.count)))
    blocks = 1 if problem.writes is not None else blocks
    rows = -(-problem.rows // blocks)
    copied = problem.copies_tiles
    ((_, scores),) = propose(
        problem.scores(rows, copied=copied),
        level,
        "packed",
        epilogue_cycles=_SCORE_CYCLES,
        splits=_ONE_SUM,
        count=1,
    )
    ((_, output),) = propose(
        problem.output(rows, padded_row(rows, lanes), copied=copied),
        level,
        "direct",
        epilogue_cycles=_OUTPUT_CYCLES,
        splits=_ONE_SUM,
        count=1,
    )
    scores, output = (replace(spec, mc=0, prefetch_lines=0) for spec in (scores, output))
    return CachedSpec(problem, rows, scores, output, threads)
