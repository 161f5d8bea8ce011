"""Row programs before products: which ops make a left operand row by row and could run in the product's kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.matching import computed_from
from aicf.passes.bodies.outlining import Outline, outline
from aicf.passes.bodies.products import reduces_rows
from aicf.passes.bodies.views import is_view
from aicf.passes.fusion.driver import Candidate
from aicf.passes.fusion.forming import OTHER_GROUPS, FusionContext

KINDS = ("norm_gemm", "norm_gated", PACKED_PRODUCTS)
"""Kinds of instructions with a prologue."""

Rows = tuple[Operation, ...]
"""The ops of a row program, in text order."""


def row_programs(value: SSAValue, products: Collection[Operation], context: FusionContext) -> Iterator[Rows]:
    """The row programs that make `value`, which only `products` read; largest first.

    The largest holds everything that only they need. The other starts at the value that its reductions work on, so that
    the ops before that value stay a kernel of their own.
    """
    whole = _needed_by_rows(value, products, context)
    if not any(op.has_trait(logical.Reduction) for op in whole):
        return
    yield whole
    if (rest := _latest_start(value, whole)) is not None:
        yield rest


def _needed_by_rows(value: SSAValue, products: Collection[Operation], context: FusionContext) -> Rows:
    """The pointwise ops, reductions of rows and their broadcasts that make `value` and that nothing else reads."""
    shape = tensor_info(value.type).shape
    inside: set[Operation] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        op = current.op if isinstance(current, OpResult) else None
        if op is None or op in inside or op not in context.position or not _joins(op, shape):
            continue
        if all(use.operation in inside or use.operation in products for use in current.uses):
            inside.add(op)
            stack.extend(op.operands)
    return _without_leading_views(tuple(sorted(inside, key=context.position.__getitem__)))


def _joins(op: Operation, shape: tuple[int, ...]) -> bool:
    if op.has_trait(logical.Elementwise) or isinstance(op, logical.BroadcastOp | logical.ReshapeOp):
        return True
    return reduces_rows(op, shape)


def _without_leading_views(ops: Rows) -> Rows:
    """Drops views of what is computed elsewhere: they feed the program and are cloned into it."""
    kept: set[Operation] = set()
    for op in ops:
        if not is_view(op) or op.operands[0].owner in kept:
            kept.add(op)
    return tuple(op for op in ops if op in kept)


def _latest_start(value: SSAValue, whole: Rows) -> Rows | None:
    """The smallest part of a row program that reads one value of the rest of it; None if no smaller one does.

    That value is no cast: rows are read as they lie in memory, and widened on the way in.
    """
    reductions = [index for index, op in enumerate(whole) if op.has_trait(logical.Reduction)]
    for op in reversed(whole[: reductions[0]]):
        if isinstance(op, logical.CastOp):
            continue
        start = op.results[0]
        rest = computed_from([value], {start}, whole)
        left_out = set(whole) - set(rest)
        read = {operand for member in rest for operand in member.operands if operand.owner in left_out}
        if read == {start} and any(member.has_trait(logical.Reduction) for member in rest):
            return rest
    return None


def outline_after_rows(
    rows: Rows, cut: Sequence[Operation], products: Sequence[Operation], context: FusionContext
) -> Outline:
    """A group of a row program and the products it feeds; called after the products, and with the result of `cut`."""
    members = sorted({*rows, *cut}, key=context.position.__getitem__)
    inside = set(members)
    results = [
        result
        for op in cut
        for result in op.results
        if any(use.operation not in inside for use in result.uses)
    ]
    return outline(members, context.group_id([*products, *members]), results)


def candidate_after_rows(
    label: str,
    plan: Outline,
    context: FusionContext,
    loss: str | None = None,
    ids: Mapping[Operation, str] = MappingProxyType({}),
) -> Candidate:
    """The group of a prologue and products as a candidate; `ids` are those of members that will be copies."""
    obstacle = None if context.may_be_one(plan.members, ids) else OTHER_GROUPS
    return Candidate(label, plan, KINDS, loss, obstacle)
