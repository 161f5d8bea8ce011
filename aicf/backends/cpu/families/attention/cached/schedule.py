"""What an attention over a cache on the CPU is and every decision about its code, with a cost prior. Imports no code
generator.

A block of query rows passes over the keys tile by tile, with a running maximum and a running sum for each row
(Milakov and Gimelshein, Online normalizer calculation for softmax, 2018), up to the last key that one of them sees:
how far the cache reaches beyond that costs nothing and changes no bit, and neither does the number of threads. Scores
are made transposed, ``k @ q^T``: keys are read where they lie, and the softmax works on whole vectors of queries.
`template.py` turns a `CachedSpec` into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Annotated

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import Entry, OneOf, Record, Whole, illegal, read_integer, read_number
from aicf.backends.cpu.families.attention.schedule import GUARDS, Matrix, padded_row
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import (
    CACHE_LINE,
    MEETING_CYCLES,
    NOMINAL_GHZ,
    GemmProblem,
    GemmSpec,
    cycles,
    propose,
)
from aicf.backends.cpu.target import ACCUMULATORS, ELEMENT_BYTES, CpuLevel

KEY_TILE = 32
"""Keys that a block of queries passes over at a time. The same for every attention: sums over keys are combined tile by
tile, and neither the number of queries nor the capacity of the cache may change their order."""


@dataclass(frozen=True)
class RowWrites:
    """The row of a new token, which is written into keys and values before they are read.

    Args:
        index: Type of the number that says which row it is, for all batch elements.
        key, value: The new row of each batch element.
        old_keys, old_values: What the other rows of keys and values are; the same memory where it is overwritten.
    """

    index: str
    key: Matrix
    value: Matrix
    old_keys: Matrix
    old_values: Matrix


@dataclass(frozen=True)
class CachedProblem:
    """``softmax(cap(q @ k^T * scale)) @ v`` of the keys that each query sees, for every batch element.

    Args:
        dtype: Type of scores, probabilities and sums.
        element: Type of queries, keys, values and result in memory.
        batch: Sizes of the batch dims.
        rows: Queries of a batch element: its tokens, or the heads of one token that share keys and values.
        are_tokens: Whether each row is the next token; else all are the same one.
        n: Keys, as many as the cache has room for.
        d, dv: Elements of a query or key, and of a value.
        q, k, v, result: ``[rows, d]``, ``[n, d]``, ``[n, dv]`` and ``[rows, dv]``.
        past: Token i sees keys 0 to i + past alone; None if it sees all, or if `position` says it.
        position: Strides over the batch dims, and the type, of the operand that stands in place of `past`.
        window: Keys that a token sees at most, up to its last; 0 for all of them.
        softcap: What bounds the scores; 0.0 without.
        nan_as_zero, empty_as_zero: As `AttentionProblem` has them.
        writes: The row that is written first, into `k` and `v`; None without.
    """

    dtype: str
    element: str
    batch: tuple[int, ...]
    rows: int
    are_tokens: bool
    n: int
    d: int
    dv: int
    q: Matrix
    k: Matrix
    v: Matrix
    result: Matrix
    past: int | None
    position: tuple[tuple[int, ...], str] | None
    window: int
    softcap: float
    nan_as_zero: bool
    empty_as_zero: bool
    writes: RowWrites | None = None

    @property
    def count(self) -> int:
        """Batch elements."""
        return prod(self.batch)

    @property
    def is_causal(self) -> bool:
        """Whether a token sees the keys up to its own alone."""
        return self.past is not None or self.position is not None

    @property
    def shares_state(self) -> bool:
        """Whether several batch elements have the same keys or the same values."""
        steps = zip(self.batch, self.k.batch, self.v.batch, strict=True)
        return any(size > 1 and 0 in (of_keys, of_values) for size, of_keys, of_values in steps)

    @property
    def copies_tiles(self) -> bool:
        """Whether every tile of keys and values is copied to workspace first, as multiplications cannot read it."""
        return self.element != self.dtype or self.v.column != 1

    def scores(self, rows: int, *, copied: bool) -> GemmProblem:
        """``k @ q^T`` of a tile of keys, perhaps copied, and a block of `rows` queries."""
        keys = (self.d, 1) if copied else (self.k.row, self.k.column)
        return GemmProblem(self.dtype, KEY_TILE, rows, self.d, keys, (self.q.column, self.q.row))

    def output(self, rows: int, row_elements: int, *, copied: bool) -> GemmProblem:
        """``probabilities @ v`` of a block of `rows` queries and a tile of values; probabilities lie transposed."""
        values = (self.dv, 1) if copied else (self.v.row, self.v.column)
        return GemmProblem(self.dtype, rows, self.dv, KEY_TILE, (1, row_elements), values)


INDEX, NEW_KEY, NEW_VALUE = 3, 4, 5
"""Operands of a step, after queries, keys and values."""


def read_cached(operands: Sequence[Strided], results: Sequence[Strided], entries: Record) -> CachedProblem:
    """The problem of queries, keys, values and perhaps a position. A step also has the index of a new row, the new key
    and the new value, and gives the new keys and values; queries may share those along batch dims that they lack.

    Args:
        results: The result; of a step, then the new keys and values.
        entries: The attributes of a work or the entries of a kernel record. Raises RecordError if one is missing.
    """
    q, batch = operands[0], operands[0].shape[:-2]
    is_step = len(results) > 1
    k, v = (_repeated(each, batch) for each in (results[1:] if is_step else operands[1:3]))
    has_position = bool(read_integer(entries, "position"))
    is_causal = bool(read_integer(entries, "causal"))
    matrices = [_matrix(each) for each in (q, k, v, results[0])]
    writes = None
    if is_step:
        rows = (operands[NEW_KEY], operands[NEW_VALUE], *operands[1:3])
        writes = RowWrites(operands[INDEX].dtype, *(_matrix(_repeated(each, batch)) for each in rows))
    position = (operands[-1].strides[:-2], operands[-1].dtype) if has_position else None
    problem = CachedProblem(
        ACCUMULATORS[q.dtype],
        q.dtype,
        q.shape[:-2],
        q.shape[-2],
        True,
        k.shape[-2],
        q.shape[-1],
        v.shape[-1],
        *matrices,
        past=read_integer(entries, "past") if is_causal and not has_position else None,
        position=position,
        window=read_integer(entries, "window"),
        softcap=read_number(entries, "softcap"),
        **{name: bool(read_integer(entries, name)) for name in GUARDS},
        writes=writes,
    )
    return _with_heads_as_rows(problem)


def _matrix(tensor: Strided) -> Matrix:
    return Matrix(tensor.strides[:-2], tensor.strides[-2], tensor.strides[-1])


def _repeated(tensor: Strided, batch: tuple[int, ...]) -> Strided:
    """Keys or values, the same along the last batch dims if they lack those."""
    own = len(tensor.shape) - 2
    shape, strides = (*batch, *tensor.shape[-2:]), tensor.strides
    return replace(tensor, shape=shape, strides=(*strides[:own], *(0,) * (len(batch) - own), *strides[own:]))


def _with_heads_as_rows(problem: CachedProblem) -> CachedProblem:
    """Of one token, the heads that read the same keys and values become the rows of one batch element."""
    p, steps = problem, [problem.k.batch[-1:], problem.v.batch[-1:]]
    steps += [p.position[0][-1:]] if p.position is not None else []
    if p.rows != 1 or not p.batch or any(step != (0,) for step in steps):
        return problem
    position = None if p.position is None else (p.position[0][:-1], p.position[1])
    inner = {name: _without_heads(m) for name, m in (("k", p.k), ("v", p.v))}
    w = p.writes
    if w is not None:
        matrices = map(_without_heads, (w.key, w.value, w.old_keys, w.old_values))
        w = RowWrites(w.index, *matrices)
    outer = {
        name: Matrix(m.batch[:-1], m.batch[-1], m.column) for name, m in (("q", p.q), ("result", p.result))
    }
    return replace(
        p,
        batch=p.batch[:-1],
        rows=p.batch[-1],
        are_tokens=False,
        position=position,
        writes=w,
        **inner,
        **outer,
    )


def _without_heads(matrix: Matrix) -> Matrix:
    return Matrix(matrix.batch[:-1], matrix.row, matrix.column)


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
        scores, sums, and factors of what was summed before; a copied tile of keys, and one of values."""
        p, line = self.problem, CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        sizes = (
            packed_elements(p.d, self.block_rows, self.scores.nr),
            KEY_TILE * self.row_elements,
            self.block_rows * self.output_elements,
            *3 * (self.row_elements,),
            KEY_TILE * p.d,
            KEY_TILE * p.dv,
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
    total = items * -(-seen // KEY_TILE) * tile + (MEETING_CYCLES if spec.threads > 1 else 0.0)
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
