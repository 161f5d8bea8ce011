"""Sums of columns in a body that reduces rows: which of its reductions a kernel of the rows makes on its way.

A layer norm's gradient is the example. Its rows are reduced and read again for the gradient of the input, and those of
scale and shift are sums over all rows of what each of its points has computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.traits import PrimitiveReduction
from aicf.dialects.types import tensor_info


@dataclass(frozen=True)
class ColumnSum:
    """A reduction over rows.

    Args:
        op: The reduction.
        operand: What it combines, before what merges its rows into one dim.
        axes: The dims of that over which it combines.
        between: Those reshapes.
    """

    op: logical.ReduceOp
    operand: SSAValue
    axes: tuple[int, ...]
    between: tuple[Operation, ...] = ()

    @property
    def result(self) -> OpResult:
        """What comes of it."""
        return self.op.results[0]

    @property
    def combine(self) -> str:
        """How it combines, as `emit.reduce` calls it."""
        return combine_of(self.op)


def combine_of(op: Operation) -> str:
    """How a primitive reduction combines, as `emit.reduce` calls it."""
    trait = op.get_trait(PrimitiveReduction)
    assert trait is not None
    return trait.combine


def column_sums(reductions: Sequence[Operation], outputs: Collection[SSAValue]) -> list[ColumnSum]:
    """The reductions that combine over rows, among those of one body; empty if all combine over the same dims.

    They are those over all dims that the others leave. What comes of each is an output and nothing else: it is known
    when the last row has been.

    Args:
        outputs: Of the body.
    """
    if len(reductions) < 2 or not all(isinstance(op, logical.ReduceOp) for op in reductions):
        return []
    sums = [_sum_of(op) for op in reductions if isinstance(op, logical.ReduceOp)]
    shapes = {_shape(each.operand) for each in sums}
    ways = {_combined_dims(each) for each in sums}
    if len(shapes) != 1 or len(ways) != 2:
        return []
    dims = frozenset(dim for dim, size in enumerate(shapes.pop()) if size > 1)
    rows, columns = sorted(ways, key=lambda way: max(dims) in way, reverse=True)
    if not rows or not columns or rows & columns or rows | columns != dims:
        return []
    for way in (columns, rows):
        found = [each for each in sums if _combined_dims(each) == way]
        others = [each for each in sums if each not in found]
        plain = not any(each.between for each in others)
        if plain and all(_is_output_alone(each.result, outputs) for each in found):
            return found
    return []


def sum_behind(output: SSAValue, sums: Sequence[ColumnSum]) -> ColumnSum | None:
    """The sum of columns that an output is, maybe with other dims of size 1; None if it is none."""
    value = output
    while isinstance(value, OpResult) and isinstance(value.op, logical.ReshapeOp):
        value = value.op.operands[0]
    return next((each for each in sums if each.result is value), None)


def _shape(value: SSAValue) -> tuple[int, ...]:
    return tensor_info(value.type).shape


def _combined_dims(each: ColumnSum) -> frozenset[int]:
    """The dims other than those of size 1 over which a reduction combines."""
    return frozenset(dim for dim in each.axes if _shape(each.operand)[dim] > 1)


def _sum_of(op: logical.ReduceOp) -> ColumnSum:
    """A reduction of what its operand was before reshapes that leave the last dims, over which it does not combine."""
    found = ColumnSum(op, op.operands[0], tuple(op.axes.get_values()))
    while isinstance(found.operand, OpResult) and isinstance(reshape := found.operand.op, logical.ReshapeOp):
        source = reshape.operands[0]
        kept = tuple(range(len(found.axes), len(_shape(found.operand))))
        first = len(_shape(source)) - len(kept)
        same = first > 0 and _shape(source)[first:] == tuple(_shape(found.operand)[dim] for dim in kept)
        if set(found.axes) != set(range(len(found.axes))) or not same or not reshape.result.has_one_use():
            break
        found = ColumnSum(op, source, tuple(range(first)), (*found.between, reshape))
    return found


def _is_output_alone(value: OpResult, outputs: Collection[SSAValue]) -> bool:
    """Whether nothing computes with a value: it is an output, maybe reshaped."""
    readers = [use.operation for use in value.uses]
    return (value in outputs or bool(readers)) and all(
        not op.results or (isinstance(op, logical.ReshapeOp) and _is_output_alone(op.results[0], outputs))
        for op in readers
    )
