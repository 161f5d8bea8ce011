"""What an attention on the CPU is and every decision about its code, with a cost prior. Imports no code generator.

A block of query rows is worked at a time: its scores and probabilities fit the cache and are never written to memory
that anything else reads. `template.py` turns an `AttentionSpec` into code and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Annotated, Literal

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import Entry, OneOf, Whole, illegal
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import (
    CACHE_LINE,
    MEETING_CYCLES,
    NOMINAL_GHZ,
    SPLITS,
    BSource,
    GemmProblem,
    GemmSpec,
    cycles,
    propose,
)
from aicf.backends.cpu.target import ACCUMULATORS, ELEMENT_BYTES, CpuLevel

Share = Literal["none", "batches", "rows"]
GUARDS = ("nan_as_zero", "empty_as_zero")
"""What is true or false of an attention, as its attributes and the entries of its record are called."""


@dataclass(frozen=True)
class Matrix:
    """Where the matrices of all batch elements lie: strides in elements, 0 where broadcast."""

    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True)
class AttentionProblem:
    """``softmax(q @ k^T * scale + mask) @ v`` for every batch element.

    Args:
        dtype: Type of scores, probabilities and sums.
        operand_type: Type of queries, keys, values and result in memory, where it is not `dtype`.
        mask_type: Likewise of the mask.
        batch: Sizes of the batch dims.
        m, n: Queries and keys.
        d, dv: Elements of a query or key, and of a value.
        q, k, v, result: ``[m, d]``, ``[n, d]``, ``[n, dv]`` and ``[m, dv]``.
        mask: ``[m, n]``; None without one.
        past: Query i sees keys 0 to i + past alone; None if it sees all.
        nan_as_zero: Whether the probabilities of a row are 0 where they are NaN.
        empty_as_zero: Whether the probabilities of a row whose scores all are -inf are 0, not NaN.
    """

    dtype: str
    batch: tuple[int, ...]
    m: int
    n: int
    d: int
    dv: int
    q: Matrix
    k: Matrix
    v: Matrix
    result: Matrix
    mask: Matrix | None
    past: int | None = None
    operand_type: str = ""
    mask_type: str = ""
    nan_as_zero: bool = False
    empty_as_zero: bool = False

    @property
    def element(self) -> str:
        """Type of queries, keys, values and result in memory."""
        return self.operand_type or self.dtype

    @property
    def mask_element(self) -> str:
        """Type of the mask in memory."""
        return self.mask_type or self.dtype

    @property
    def widens_rows(self) -> bool:
        """Whether a block of queries is written to workspace in the type of the scores."""
        return self.element != self.dtype

    @property
    def count(self) -> int:
        """Batch elements."""
        return prod(self.batch)

    def scores(self, rows: int, keys: int | None = None) -> GemmProblem:
        """``q @ k^T`` of a block of `rows` queries and the first `keys` keys (all by default)."""
        strides = (self.k.column, self.k.row)
        queries = (self.d, 1) if self.widens_rows else (self.q.row, self.q.column)
        return GemmProblem(self.dtype, rows, keys or self.n, self.d, queries, strides)

    def output(self, rows: int, row_elements: int, keys: int | None = None) -> GemmProblem:
        """``probabilities @ v`` of a block of `rows` queries, whose probabilities are `row_elements` apart."""
        values = (self.v.row, self.v.column)
        steps = keys or self.n
        return GemmProblem(
            self.dtype,
            rows,
            self.dv,
            steps,
            (row_elements, 1),
            values,
            b_rows=self.n if steps < self.n else 0,
            b_type=self.element,
        )


def read_attention(
    operands: Sequence[Strided],
    result: Strided,
    past: int | None,
    *,
    nan_as_zero: bool = False,
    empty_as_zero: bool = False,
) -> AttentionProblem:
    """The problem of an instruction with operands q, k, v and perhaps a mask; the rest as `AttentionProblem` has it."""
    q, k, v = operands[:3]
    batch, m, n = q.shape[:-2], q.shape[-2], k.shape[-2]
    mask = _spread(operands[3], (*batch, m, n)) if len(operands) > 3 else None
    given = (_matrix(q), _matrix(k), _matrix(v), _matrix(result))
    mask_type = operands[3].dtype if len(operands) > 3 else ""
    sizes = (m, n, q.shape[-1], v.shape[-1])
    dtype = ACCUMULATORS[q.dtype]
    guards = (nan_as_zero, empty_as_zero)
    return AttentionProblem(dtype, batch, *sizes, *given, mask, past, q.dtype, mask_type, *guards)


def _matrix(operand: Strided) -> Matrix:
    return Matrix(operand.strides[:-2], operand.strides[-2], operand.strides[-1])


def _spread(mask: Strided, shape: tuple[int, ...]) -> Matrix:
    """The mask over all of the scores: its missing dims and those of size 1 are repeated."""
    missing = len(shape) - len(mask.shape)
    steps = zip(mask.shape, mask.strides, strict=True)
    strides = [*(0 for _ in range(missing)), *(0 if size == 1 else stride for size, stride in steps)]
    return Matrix(tuple(strides[:-2]), strides[-2], strides[-1])


@dataclass(frozen=True)
class AttentionSpec:
    """A problem with every decision about its code.

    Args:
        block_rows: Queries worked at a time.
        scores, output: The two products of a full block. Keys always lie in packed panels, values do if the output's
            `b_source` says so; both are packed once for each batch element.
        share: What threads divide: batch elements, or the blocks of each.
        key_steps: Into how many runs the blocks of a causal attention are divided: a run leaves out the keys that none
            of its queries sees.
    """

    problem: AttentionProblem
    block_rows: Annotated[int, Entry(Whole(1))]
    scores: GemmSpec
    output: GemmSpec
    share: Annotated[Share, Entry()] = "none"
    threads: Annotated[int, Entry(Whole(1))] = 1
    key_steps: Annotated[int, Entry(Whole(1))] = 1

    @property
    def blocks(self) -> int:
        """Blocks of queries of a batch element."""
        return -(-self.problem.m // self.block_rows)

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """First block, end, and number of keys of each run of blocks."""
        p = self.problem
        ends = [self.blocks * (step + 1) // self.key_steps for step in range(self.key_steps)]
        found: list[tuple[int, int, int]] = []
        for first, end in zip([0, *ends], ends, strict=False):
            seen = p.n if p.past is None else end * self.block_rows + p.past
            keys = min(p.n, -(-seen // self.scores.nr) * self.scores.nr)
            found.append((first, end, keys))
        return [run for run in found if run[0] < run[1]]

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.scores.lanes

    @property
    def row_elements(self) -> int:
        """Elements from one row of scores to the next: whole vectors."""
        return padded_row(self.problem.n, self.lanes)

    @property
    def unroll(self) -> int:
        """Vectors of a row of scores that are handled side by side."""
        return max(1, min(4, self.problem.n // self.lanes))

    @property
    def parts(self) -> tuple[int, ...]:
        """Elements of workspace of one thread: packed keys, packed values, scores, sums of rows, widened queries; whole
        cache lines."""
        p = self.problem
        values = packed_elements(p.n, p.dv, self.output.nr) if self.output.b_source == "packed" else 0
        keys = packed_elements(p.d, p.n, self.scores.nr)
        line = CACHE_LINE // ELEMENT_BYTES[p.dtype]
        queries = self.block_rows * p.d if p.widens_rows else 0
        sizes = (keys, values, self.block_rows * self.row_elements, self.block_rows, queries)
        return tuple(-(-size // line) * line for size in sizes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace needed, all threads together."""
        return sum(self.parts) * ELEMENT_BYTES[self.problem.dtype] * self.threads

    @property
    def combination_order(self) -> str:
        """How sums are combined, for the kernel record."""
        rows = f"{self.unroll * self.lanes} strided partial results, added pairwise"
        return f"scores {self.scores.combination_order}; rows {rows}; output {self.output.combination_order}"


def check_attention(spec: AttentionSpec) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    if (spec.share == "none") != (spec.threads == 1):
        return f"its {illegal('share', spec.share, 'none')} for one thread, and batches or rows for several"
    skips = spec.problem.past is not None and spec.share != "rows"
    steps = Whole(1, spec.blocks if skips else 1)
    if not steps.holds(spec.key_steps):
        return f"its {illegal('key_steps', spec.key_steps, steps)}"
    for key, part, sources in (
        ("scores", spec.scores, OneOf(("packed",))),
        ("output", spec.output, OneOf(("packed", "direct"))),
    ):
        found = (
            ("b_source", part.b_source, sources),
            ("lanes", part.lanes, OneOf((spec.lanes,))),
            ("threads", part.threads, OneOf((1,))),
            ("block_rows", part.mc, OneOf((0,))),
            ("prefetch_lines", part.prefetch_lines, OneOf((0,))),
        )
        for name, value, legal in found:
            if not legal.holds(value):
                return f"in its '{key}', its {illegal(name, value, legal)}"
    return None


_BLOCK_BYTES = 64 << 10
"""Scores worked at a time: they stay in the second level of cache at least, beside keys and values."""
_VECTOR_CYCLES = 15.0
"""Cycles of one vector of f32 in the softmax: most of it the exponential."""
_ROW_CYCLES = 45.0
"""Cycles of a row of scores besides: its largest element and its sum across lanes."""
_PACK_BYTES_PER_CYCLE = 16.0
_KEY_STEPS = 4
"""Each run of blocks is code of its own; with four, a causal attention of as many queries as keys does five eighths of
the work."""
_SCORE_CYCLES = 1.5
"""Epilogue of a vector of scores: scale and mask."""
_OUTPUT_CYCLES = 9.0 / 2
"""Epilogue of a vector of the output: a division."""


def padded_row(elements: int, lanes: int) -> int:
    """Elements of a row in whole vectors."""
    return -(-elements // lanes) * lanes


def softmax_cycles(problem: AttentionProblem, lanes: int) -> float:
    """Predicted cycles of the softmax of all rows of one batch element."""
    width = ELEMENT_BYTES[problem.dtype] / 4
    return problem.m * (-(-problem.n // lanes) * _VECTOR_CYCLES * width + _ROW_CYCLES)


def cost_us(spec: AttentionSpec) -> float:
    """Predicted microseconds of one thread's share."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    keys, values, *_ = spec.parts
    packing = (keys + values) * size / _PACK_BYTES_PER_CYCLE
    blocks = spec.blocks
    full = p.m / (blocks * spec.block_rows)
    products = cycles(spec.scores, _SCORE_CYCLES) + cycles(spec.output, _OUTPUT_CYCLES)
    rows = blocks * full * products + softmax_cycles(p, spec.lanes)
    rows *= sum((end - first) * keys for first, end, keys in spec.runs) / (blocks * p.n)
    if spec.share == "batches":
        total = -(-p.count // spec.threads) * (packing + rows)
    else:
        total = p.count * (packing + rows * -(-blocks // spec.threads) / blocks)
    return (total + (MEETING_CYCLES if spec.threads > 1 else 0.0)) / NOMINAL_GHZ / 1000


@lru_cache(maxsize=1024)
def choose(
    problem: AttentionProblem, level: CpuLevel, threads: int, splits: tuple[int, ...] = SPLITS
) -> AttentionSpec:
    """The spec that is predicted to take least, on one thread or on all; both products have one of `splits` sums."""
    shares: tuple[Share, ...] = ("none", "batches", "rows") if threads > 1 else ("none",)
    found = [_spec(problem, level, share, 1 if share == "none" else threads, splits) for share in shares]
    return min(found, key=cost_us)


def _spec(
    problem: AttentionProblem, level: CpuLevel, share: Share, threads: int, splits: tuple[int, ...]
) -> AttentionSpec:
    """Blocks of even size, and at least one for each thread that takes blocks."""
    lanes, size = level.lanes(problem.dtype), ELEMENT_BYTES[problem.dtype]
    row = padded_row(problem.n, lanes)
    most = max(1, _BLOCK_BYTES // (row * size))
    blocks = max(-(-problem.m // most), min(problem.m, threads) if share == "rows" else 1)
    if problem.past is not None and problem.m >= 16 * _KEY_STEPS:
        blocks = max(blocks, _KEY_STEPS)
    rows = -(-problem.m // blocks)
    ((_, scores),) = propose(
        problem.scores(rows),
        level,
        "packed",
        epilogue_cycles=_SCORE_CYCLES,
        vectors_of=(1, 2, 3, 4),
        splits=splits,
        count=1,
    )
    outputs: list[tuple[float, GemmSpec]] = []
    sources: tuple[BSource, ...] = ("packed", "direct")
    for source in sources:
        for us, spec in propose(
            problem.output(rows, row), level, source, epilogue_cycles=_OUTPUT_CYCLES, splits=splits, count=1
        ):
            packing = problem.n * problem.dv * size / _PACK_BYTES_PER_CYCLE if source == "packed" else 0.0
            outputs.append((us * blocks + packing / NOMINAL_GHZ / 1000, spec))
    _, best = min(outputs, key=lambda entry: entry[0])
    scores, output = (replace(spec, mc=0, prefetch_lines=0) for spec in (scores, best))
    # Threads that share the blocks of a batch element walk them in one loop, over all keys.
    steps = 1 if problem.past is None or share == "rows" else min(_KEY_STEPS, blocks)
    return AttentionSpec(problem, rows, scores, output, share, threads, steps)
