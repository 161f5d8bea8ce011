"""The call of cuDNN that does attention: four dimensions, of which the second is that of the heads, and a causal mask
along one of two diagonals. Plain data, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from aicf.backends.cuda.families.attention.problem import AttentionProblem, Rows
from aicf.backends.cuda.families.library.strides import joined


@dataclass(frozen=True)
class Matrices:
    """Queries, keys, values or results: the number of heads, and strides of batch, heads, rows and elements."""

    heads: int
    strides: tuple[int, int, int, int]


@dataclass(frozen=True)
class Call:
    """A call without the plan.

    Args:
        batch: Size of the dimension before the heads.
        q, k, v, y: Where they lie.
        mask: `none`, `top_left` or `bottom_right`.
    """

    batch: int
    q: Matrices
    k: Matrices
    v: Matrices
    y: Matrices
    mask: str


class NoCall(Exception):
    """cuDNN cannot be called for this; the message says why."""


def call_of(problem: AttentionProblem) -> Call:
    """The call for a problem that has passed `common_reason`. Raises NoCall."""
    mask = _mask(problem)
    call = next(_calls(problem, mask), None)
    if call is None:
        raise NoCall(
            f"cudnn steps evenly over a batch and over heads, those of sizes {list(problem.batch)} lie otherwise"
        )
    return call


def _mask(problem: AttentionProblem) -> str:
    """On which diagonal the last key lies that a query sees. Raises NoCall."""
    past = problem.past
    if past is None or past >= problem.n - 1:
        return "none"
    if past == 0:
        return "top_left"
    if past == problem.n - problem.m and past > 0:
        return "bottom_right"
    raise NoCall(
        f"cudnn lets the first query see one key, or the last one all; here the first sees {past + 1} of {problem.n}, "
        f"and there are {problem.m} queries"
    )


def _calls(problem: AttentionProblem, mask: str) -> Iterator[Call]:
    """Calls for each way to see the batch dims as two, those with the fewest heads first."""
    for start in range(max(0, len(problem.batch) - 1), -1, -1):
        outer, inner = problem.batch[:start], problem.batch[start:]
        q, y = (_matrices(rows, problem.m, outer, inner) for rows in (problem.q, problem.result))
        k, v = (_matrices(rows, problem.n, outer, inner) for rows in (problem.k, problem.v))
        if q is None or k is None or v is None or y is None:
            continue
        heads = prod(inner)
        if q.heads == y.heads == heads and k.heads == v.heads:
            yield Call(prod(outer), q, k, v, y, mask)


def _matrices(rows: Rows, count: int, outer: Sequence[int], inner: Sequence[int]) -> Matrices | None:
    """Where matrices of `count` rows lie whose batch dims are those of the batch and those of the heads: the last heads
    may share one. None if the strides are no such thing."""
    batch, heads = rows.batch[: len(outer)], rows.batch[len(outer) :]
    own = len(inner)
    while own and (heads[own - 1] == 0 or inner[own - 1] == 1):
        own -= 1
    batch_stride, head_stride = joined(batch, outer), joined(heads[:own], inner[:own])
    if batch_stride is None or head_stride is None or (batch_stride == 0 and prod(outer) > 1):
        return None
    many = prod(inner[:own])
    if (head_stride == 0 and many > 1) or min(batch_stride, head_stride, rows.row) < 0:
        return None
    # Nothing steps along one element, but cuDNN wants a stride that would not overlap.
    row = rows.row or rows.column
    head = head_stride or row * count
    return Matrices(many, (batch_stride or max(head * many, row * count), head, row, rows.column))
