"""What an attention over a cache on the CPU is: sizes and strides of its operands, read from a work or a launch. Plain
data; imports no code generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import Record, read_integer, read_number
from aicf.backends.common.rotation import NOT_TURNED, TURNS, Pairs, Turns, pairs_of, read_turns, rotation_in
from aicf.backends.cpu.families.attention.schedule import GUARDS, Matrix
from aicf.backends.cpu.families.gemm.schedule import GemmProblem
from aicf.backends.cpu.target import ACCUMULATORS

KEY_TILE = 32
"""Keys that a block of queries passes over at a time. The same for every attention: sums over keys are combined tile by
tile, and neither the number of queries nor the capacity of the cache may change their order."""


@dataclass(frozen=True)
class Numbers:
    """An operand with a number for each batch element.

    Args:
        batch: Strides over the batch dims, in elements.
        dtype: Element type.
    """

    batch: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RowWrites:
    """The row of a new token, which is written into keys and values before they are read.

    Args:
        index: Which row it is.
        key, value: The new row of each batch element; a key that is turned first lies as `Rotation` says.
        old_keys, old_values: What the other rows of keys and values are; the same memory where it is overwritten.
    """

    index: Numbers
    key: Matrix
    value: Matrix
    old_keys: Matrix
    old_values: Matrix


@dataclass(frozen=True)
class Rotation:
    """Rotary positions of the query and the new key of a step.

    Args:
        query, key: Where the pairs of what is turned lie.
        turns: Which elements are pairs, and their cosines and sines.
    """

    query: Pairs
    key: Pairs
    turns: Turns


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
        q, k, v, result: ``[rows, d]``, ``[n, d]``, ``[n, dv]`` and ``[rows, dv]``; queries that are turned first lie as
            `rotation` says, and `q` has their rows alone.
        past: Token i sees keys 0 to i + past alone; None if it sees all, or if `position` says it.
        position: The operand that stands in place of `past`.
        window: Keys that a token sees at most, up to its last; 0 for all of them.
        softcap: What bounds the scores; 0.0 without.
        nan_as_zero, empty_as_zero: As `AttentionProblem` has them.
        writes: The row that is written first, into `k` and `v`; None without.
        rotation: What turns queries and the new key before; None without.
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
    position: Numbers | None
    window: int
    softcap: float
    nan_as_zero: bool
    empty_as_zero: bool
    writes: RowWrites | None = None
    rotation: Rotation | None = None

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
        queries = (self.q.column, self.q.row) if self.rotation is None else (1, self.d)
        return GemmProblem(self.dtype, KEY_TILE, rows, self.d, keys, queries)

    def output(self, rows: int, row_elements: int, *, copied: bool) -> GemmProblem:
        """``probabilities @ v`` of a block of `rows` queries and a tile of values; probabilities lie transposed."""
        values = (self.dv, 1) if copied else (self.v.row, self.v.column)
        return GemmProblem(self.dtype, rows, self.dv, KEY_TILE, (1, row_elements), values)


INDEX, NEW_KEY, NEW_VALUE = 3, 4, 5
"""Operands of a step, after queries, keys and values; what turns queries and the new key follows."""
FACTORS = slice(NEW_VALUE + 1, NEW_VALUE + 1 + TURNS)
"""Operands of a step that turn queries and the new key, if it turns them."""


def read_cached(operands: Sequence[Strided], results: Sequence[Strided], entries: Record) -> CachedProblem:
    """The problem of queries, keys, values and perhaps a position. A step also has the index of a new row, the new key
    and the new value, and gives the new keys and values; queries may share those along batch dims that they lack.

    Args:
        results: The result; of a step, then the new keys and values.
        entries: The attributes of a work or the entries of a kernel record. Raises RecordError if one is missing.
    """
    pairs = rotation_in(entries)
    q = operands[0] if pairs == NOT_TURNED else _joined(operands[0])
    batch, is_step = q.shape[:-2], len(results) > 1
    k, v = (_repeated(each, batch) for each in (results[1:] if is_step else operands[1:3]))
    has_position = bool(read_integer(entries, "position"))
    is_causal = bool(read_integer(entries, "causal"))
    matrices = [_matrix(each) for each in (q, k, v, results[0])]
    problem = CachedProblem(
        ACCUMULATORS[q.dtype],
        q.dtype,
        batch,
        q.shape[-2],
        True,
        k.shape[-2],
        q.shape[-1],
        v.shape[-1],
        *matrices,
        past=read_integer(entries, "past") if is_causal and not has_position else None,
        position=Numbers(operands[-1].strides[:-2], operands[-1].dtype) if has_position else None,
        window=read_integer(entries, "window"),
        softcap=read_number(entries, "softcap"),
        **{name: bool(read_integer(entries, name)) for name in GUARDS},
        writes=_writes(operands, batch, pairs) if is_step else None,
        rotation=None if pairs == NOT_TURNED else _rotation(operands, pairs),
    )
    return _with_heads_as_rows(problem)


def _writes(operands: Sequence[Strided], batch: tuple[int, ...], pairs: str) -> RowWrites:
    index, key = operands[INDEX], operands[NEW_KEY]
    key = key if pairs == NOT_TURNED else _joined(key)
    rows = (key, operands[NEW_VALUE], *operands[1:3])
    numbers = Numbers((*index.strides, *(0,) * (len(batch) - len(index.shape))), index.dtype)
    return RowWrites(numbers, *(_matrix(_repeated(each, batch)) for each in rows))


def _rotation(operands: Sequence[Strided], pairs: str) -> Rotation:
    rank = len(operands[0].shape)
    query, key = (pairs_of(operands[number], pairs, rank) for number in (0, NEW_KEY))
    return Rotation(query, key, read_turns(pairs, operands[FACTORS], rank))


def _joined(tensor: Strided) -> Strided:
    """Rows with their pairs as a dimension as rows of elements, whose step strides may not say: 0."""
    *shape, first, second = tensor.shape
    return Strided((*shape, first * second), (*tensor.strides[:-2], 0), tensor.dtype)


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
    steps += [] if p.position is None else [p.position.batch[-1:]]
    steps += [] if p.rotation is None else [factors.batch[-1:] for factors in p.rotation.turns.query]
    if p.rows != 1 or not p.batch or any(step != (0,) for step in steps):
        return problem
    inner = {name: _without_heads(m) for name, m in (("k", p.k), ("v", p.v))}
    w = p.writes
    if w is not None:
        matrices = map(_without_heads, (w.key, w.value, w.old_keys, w.old_values))
        w = RowWrites(_without_heads(w.index), *matrices)
    outer = {
        name: Matrix(m.batch[:-1], m.batch[-1], m.column) for name, m in (("q", p.q), ("result", p.result))
    }
    return replace(
        p,
        batch=p.batch[:-1],
        rows=p.batch[-1],
        are_tokens=False,
        position=None if p.position is None else _without_heads(p.position),
        writes=w,
        rotation=None if p.rotation is None else _turned_without_heads(p.rotation),
        **inner,
        **outer,
    )


_PerBatch = TypeVar("_PerBatch", Matrix, Numbers, Pairs)


def _without_heads(operand: _PerBatch) -> _PerBatch:
    return replace(operand, batch=operand.batch[:-1])


def _turned_without_heads(rotation: Rotation) -> Rotation:
    turns = rotation.turns
    query, key = (
        (_without_heads(cosines), _without_heads(sines)) for cosines, sines in (turns.query, turns.key)
    )
    lies = _without_heads(rotation.query), _without_heads(rotation.key)
    return Rotation(*lies, Turns(turns.pairs, query, key))
