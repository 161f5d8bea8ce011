"""What an attention instruction asks for, read from a work or a launch, and what all its kernels say alike. Plain data.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import FloatAttr, StringAttr, f64
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import Record, read_integer, read_number
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.records import Shape, integers, read_flag, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

KIND = "attention"
CACHED = "cached_attention"
INDEX_TYPES = ("i32", "i64")
"""Of a position that is an operand."""
HALVES = ("f16", "bf16")
MASK_TYPES = ("f16", "bf16", "f32")
BASE_ALIGNMENT = 16
"""Bytes of one copy to shared memory."""


@dataclass(frozen=True)
class Rows:
    """A matrix for each batch element, in elements.

    Args:
        batch: Strides of the batch dimensions, outermost first; 0 where broadcast.
        row, column: Strides of the matrix.
        offset: From a 16-byte boundary to the first element.
    """

    batch: tuple[int, ...]
    row: int
    column: int
    offset: int

    def moves_in_eights(self, rows: int, sizes: tuple[int, ...]) -> bool:
        """Whether eight neighbours of a row always are 16 bytes at a multiple of 16, for 2-byte elements."""
        return self.moves_in(8, rows, sizes)

    def moves_in(self, count: int, rows: int, sizes: tuple[int, ...]) -> bool:
        """Whether `count` neighbours of a row, a power of two up to 8, always start at a multiple of their size."""
        steps = [stride for stride, size in zip(self.batch, sizes, strict=True) if size > 1]
        steps += [self.row] if rows > 1 else []
        return self.column == 1 and all(step % count == 0 for step in (self.offset, *steps))


@dataclass(frozen=True)
class AttentionProblem:
    """``softmax(q @ k^T * scale + mask) @ v`` for every batch element.

    Args:
        batch: Sizes of the batch dimensions.
        m, n: Queries and keys.
        d, dv: Elements of a query or key, and of a value.
        dtype: Element type of q, k, v and the result.
        q, k, v, result: Where they lie; k as ``[batch..., n, d]``.
        mask: Where the mask lies, as ``[batch..., m, n]`` with strides of 0, and its element type; None without one.
        past: Query i sees keys 0 to i + past alone; None if it sees all.
        nan_as_zero: Whether the probabilities of a row are 0 where they are NaN.
        empty_as_zero: Whether the probabilities of a row whose scores all are -inf are 0, not NaN.
        before: Strides, over the batch dimensions, and the type of the operand that says in place of `past` how many
            keys come before the first query, which is then the most there may be; None without.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    d: int
    dv: int
    dtype: str
    q: Rows
    k: Rows
    v: Rows
    result: Rows
    mask: tuple[Rows, str] | None
    past: int | None = None
    nan_as_zero: bool = False
    empty_as_zero: bool = False
    before: tuple[tuple[int, ...], str] | None = None
    is_one_position: bool = False

    @property
    def count(self) -> int:
        """Batch elements."""
        return prod(self.batch)

    def tiles_seen(self, block_m: int, block_n: int) -> list[int]:
        """For every block of queries, the tiles of keys that one of them sees."""
        tiles = -(-self.n // block_n)
        if self.past is None:
            return [tiles] * -(-self.m // block_m)
        ahead = [0 if self.is_one_position else first + block_m - 1 for first in range(0, self.m, block_m)]
        last = [query + self.past for query in ahead]
        return [min(tiles, key // block_n + 1) for key in last]


def heads_as_queries(problem: AttentionProblem) -> AttentionProblem:
    """A problem with one query for each batch element, where those along the last batch dim that share keys and values
    become queries of one element: they are in one tile then, and the tiles of keys are read once for all of them. Any
    other problem as it is.
    """
    if problem.m != 1 or problem.before is None or problem.mask is not None or not problem.batch:
        return problem
    strides, dtype = problem.before
    if problem.batch[-1] == 1 or problem.k.batch[-1] or problem.v.batch[-1] or strides[-1]:
        return problem

    def as_rows(rows: Rows) -> Rows:
        return replace(rows, batch=rows.batch[:-1], row=rows.batch[-1])

    def without_dim(rows: Rows) -> Rows:
        return replace(rows, batch=rows.batch[:-1])

    return replace(
        problem,
        batch=problem.batch[:-1],
        m=problem.batch[-1],
        q=as_rows(problem.q),
        k=without_dim(problem.k),
        v=without_dim(problem.v),
        result=as_rows(problem.result),
        before=(strides[:-1], dtype),
        is_one_position=True,
    )


def problem_of(work: Workload) -> AttentionProblem:
    """The problem of a work of kind `attention` or `cached_attention`."""
    return _problem(work.kind, work.operands, work.results[0], work.attrs)


def problem_of_launch(launch: Launch) -> AttentionProblem:
    """The problem of an instruction of these kinds."""
    return _problem(launch.kind, launch.ins, launch.outs[0], launch.record)


def _problem(
    kind: str,
    ins: Sequence[OperandInfo] | Sequence[BufferRef],
    result: OperandInfo | BufferRef,
    entries: Record,
) -> AttentionProblem:
    if kind != CACHED or not read_flag(entries, "position"):
        return problem_of_operands(ins, result, entries)
    found = problem_of_operands(ins[:-1], result, entries)
    before = ins[-1].strides[:-2], ins[-1].dtype
    return replace(found, past=max(found.n - found.m, 0), before=before)


def problem_of_operands(
    ins: Sequence[OperandInfo | BufferRef], result: OperandInfo | BufferRef, entries: Record
) -> AttentionProblem:
    """The problem of queries, keys, values and, if there is one, a mask.

    Args:
        entries: The attributes of a work or the entries of a kernel record.

    Raises RecordError if an entry is missing.
    """
    q, k, v = ins[:3]
    shape = (*q.shape[:-1], k.shape[-2])
    mask = (_broadcast_rows(ins[3], shape), ins[3].dtype) if len(ins) > 3 else None
    sizes = (q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])
    matrices = (rows_of(q), rows_of(k), rows_of(v), rows_of(result))
    guards = (read_flag(entries, "nan_as_zero"), read_flag(entries, "empty_as_zero"))
    return AttentionProblem(*sizes, q.dtype, *matrices, mask, _read_past(entries), *guards)


def _read_past(entries: Record) -> int | None:
    """The number of keys before the first query if attention is causal, None if it is not."""
    past = read_integer(entries, "past")
    return past if read_flag(entries, "causal") else None


def rows_of(operand: OperandInfo | BufferRef) -> Rows:
    """Where a matrix for each batch element lies."""
    element = ELEMENT_BYTES.get(operand.dtype, 1)
    offset = operand.offset if isinstance(operand, OperandInfo) else operand.offset // element
    return Rows(operand.strides[:-2], operand.strides[-2], operand.strides[-1], offset % BASE_ALIGNMENT)


def _broadcast_rows(operand: OperandInfo | BufferRef, shape: tuple[int, ...]) -> Rows:
    """The mask, its missing dimensions and those of size 1 repeated."""
    missing = len(shape) - len(operand.shape)
    strides = [0] * missing
    for size, stride, wanted in zip(operand.shape, operand.strides, shape[missing:], strict=True):
        strides.append(0 if size == 1 and wanted != 1 else stride)
    return Rows(tuple(strides[:-2]), strides[-2], strides[-1], rows_of(operand).offset)


def mask_clocks(problem: AttentionProblem, clocks: tuple[float, float]) -> float:
    """What a mask adds to the clocks of a score: the first where all queries share its row, else the second."""
    return 0.0 if problem.mask is None else clocks[problem.mask[0].row != 0]


def mask_rows(mask: Rows) -> int:
    """Rows of a mask that a lane holds of a tile: those of its two queries, or the one that all share."""
    return 1 if mask.row == 0 else 2


# Legality and records


def common_reason(work: Workload, problem: AttentionProblem) -> str | None:
    """Why no attention kernel runs the work."""
    q, k, v = work.operands[:3]
    if not q.dtype == k.dtype == v.dtype == work.results[0].dtype:
        types = ", ".join(x.dtype for x in (q, k, v, *work.results))
        return f"queries, keys, values and result differ in type ({types})"
    if k.shape[:-2] != problem.batch or v.shape[:-2] != problem.batch:
        return "queries, keys and values have different batch sizes"
    if 0 in (problem.count, problem.m, problem.n, problem.d, problem.dv):
        return "an operand is empty"
    if work.rounding == "strict" and q.dtype in HALVES:
        return f"scores and weights stay in f32 here, the policy wants them rounded to {q.dtype}"
    if problem.mask is not None and problem.mask[1] not in MASK_TYPES:
        return (
            f"a mask of {problem.mask[1]} is not added on cuda, only one of {', '.join(MASK_TYPES)}: cast it"
        )
    return None


def cached_reason(work: Workload, problem: AttentionProblem) -> str | None:
    """Why no kernel of many queries runs an attention over a cache."""
    if problem.before is None:
        return "the keys that are seen follow from no position here: give attention a position"
    if read_integer(work.attrs, "window") or read_number(work.attrs, "softcap"):
        return "no window hides keys and no score is capped here: a mask or a softmax does it"
    if problem.mask is not None:
        return "a position and a mask are not read together: add both to one mask"
    if problem.before[1] not in INDEX_TYPES:
        return f"the position is {problem.before[1]}, not {' or '.join(INDEX_TYPES)}"
    return None


def _cached_entries(work: Workload) -> dict[str, Attribute]:
    """What the record of an attention over a cache has besides."""
    return {name: work.attrs[name] for name in ("position", "window", "softcap")}


def bulk_copy_reason(rows: Rows, count: int, batch: tuple[int, ...]) -> str | None:
    """Why bulk tensor copies do not read a matrix."""
    if not rows.moves_in_eights(count, batch):
        return "bulk tensor copies need rows of neighbours that start at multiples of 16 bytes"
    if sum(step != 0 and size > 1 for step, size in zip(rows.batch, batch, strict=True)) > 3:
        return "bulk tensor copies have at most three batch dims"
    return None


def read_scale(record: Record) -> float:
    """The scale of a kernel record, or of a work's attributes. Raises RecordError if there is none."""
    return read_number(record, "scale")


def common_record(work: Workload, arch: GpuArch, shape: Shape, order: str) -> dict[str, Attribute]:
    """The entries of every attention kernel; `order` says how sums are combined."""
    return {
        "scale": FloatAttr(_scale(work), f64),
        "causal": work.attrs["causal"],
        "past": work.attrs["past"],
        "nan_as_zero": work.attrs["nan_as_zero"],
        "empty_as_zero": work.attrs["empty_as_zero"],
        **shape.entries(),
        "combination_order": StringAttr(order),
        **start_entries(arch),
        "fixed_addresses": integers(()),
        "rounding": StringAttr("fused"),
        **(_cached_entries(work) if work.kind == CACHED else {}),
    }


def _scale(work: Workload) -> float:
    value = work.attrs["scale"]
    assert isinstance(value, FloatAttr)  # the kind's schema was verified
    return value.value.data
