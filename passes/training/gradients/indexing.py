"""What reads and writes at computed indices pass back: reads become sums at those indices, and the other way round."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size, multiply
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import BY_FORMULA, STEPS, Adjoint, Gradients


def _clamped(adjoint: Adjoint, indices: SSAValue, size: Size) -> SSAValue:
    """The indices that a gather reads: counted from the end where negative, then inside."""
    count = static_size(adjoint.op, size)
    negative = adjoint.compare("lt", indices, 0)
    wrapped = adjoint.where(negative, adjoint.apply(logical.AddOp, indices, count), indices)
    return adjoint.add(logical.ClampOp(wrapped, 0, count - 1), "place")


def _gather(adjoint: Adjoint, op: logical.GatherOp) -> SSAValue:
    """Sums of the slices that read the same one: scattered along dimension 0, the axis moved there and back."""
    sizes, axis = tensor_info(op.operand.type).sizes, op.axis.value.data
    count = tensor_info(op.indices.type).rank
    clamped = _clamped(adjoint, adjoint.saved(op.indices), sizes[axis])
    rows = multiply(*tensor_info(op.indices.type).sizes)
    clamped = adjoint.add(logical.ReshapeOp(clamped, [rows]), "rows")
    front = [*range(axis, axis + count), *range(axis), *range(axis + count, op.info.rank)]
    moved = _transposed(adjoint, adjoint.grad, front)
    others = [*sizes[:axis], *sizes[axis + 1 :]]
    updates = adjoint.add(logical.ReshapeOp(moved, [rows, *others]), "updates")
    zeros = adjoint.zeros([sizes[axis], *others])
    summed = adjoint.add(logical.ScatterOp(zeros, clamped, updates, "add"), "scatter")
    return _transposed(adjoint, summed, [*range(1, axis + 1), 0, *range(axis + 1, len(sizes))])


def _transposed(adjoint: Adjoint, value: SSAValue, permutation: list[int]) -> SSAValue:
    if permutation == sorted(permutation):
        return value
    return adjoint.add(logical.TransposeOp(value, permutation), "transpose")


def _gather_elements(adjoint: Adjoint, op: logical.GatherElementsOp) -> SSAValue:
    """Sums of what reads the same element."""
    axis = op.axis.value.data
    clamped = _clamped(adjoint, adjoint.saved(op.indices), tensor_info(op.operand.type).sizes[axis])
    zeros = adjoint.zeros(tensor_info(op.operand.type).sizes)
    return adjoint.add(logical.ScatterElementsOp(zeros, clamped, adjoint.grad, axis, "add"), "scatter")


def _combined_operand(adjoint: Adjoint, op: logical.ScatterCombineOp) -> SSAValue:
    """All of it for a sum, times the updates for a product; for an extreme the share of those that reach it."""
    if op.scatter_mode == "add":
        return adjoint.grad
    if op.scatter_mode == "mul":
        factors = logical.ScatterCombineOp(
            adjoint.grad, adjoint.saved(op.indices), adjoint.saved(op.updates), "mul"
        )
        return adjoint.add(factors, "factors")
    return adjoint.product(_share(adjoint, op), _reached(adjoint, adjoint.saved(op.operand), adjoint.result))


def _combined_updates(adjoint: Adjoint, op: logical.ScatterCombineOp) -> SSAValue:
    """What its row has; nothing for an update that is dropped."""
    indices, sizes = adjoint.saved(op.indices), tensor_info(op.operand.type).sizes
    grad = adjoint.grad if op.scatter_mode in ("add", "mul") else _share(adjoint, op)
    read = adjoint.add(logical.GatherOp(grad, indices, 0), "rows")
    if op.scatter_mode == "mul":
        read = adjoint.product(read, _other_factors(adjoint, op))
    elif op.scatter_mode != "add":
        read = adjoint.product(read, _updates_reached(adjoint, op))
    return _unless_dropped(adjoint, indices, sizes[0], read)


def _other_factors(adjoint: Adjoint, op: logical.ScatterCombineOp) -> SSAValue:
    """For each update the product of the operand and all other updates of its row, whatever is 0 there.

    Zeros are counted and left out of the product: without them, it is divided by the update; an update that is the only
    0 has all of it.
    """
    indices, updates = adjoint.saved(op.indices), adjoint.saved(op.updates)
    is_zero = adjoint.compare("eq", updates, 0.0)
    factors = adjoint.where(is_zero, 1.0, updates)
    product = logical.ScatterCombineOp(adjoint.saved(op.operand), indices, factors, "mul")
    zeros = adjoint.cast(is_zero, element_of(updates.type), "zeros")
    counted = logical.ScatterCombineOp(
        adjoint.zeros(tensor_info(op.operand.type).sizes), indices, zeros, "add"
    )
    row, count = (
        adjoint.add(logical.GatherOp(adjoint.add(total, name), indices, 0), f"{name}.read")
        for total, name in ((product, "product"), (counted, "count"))
    )
    others = adjoint.apply(logical.DivOp, row, factors)
    is_alone = adjoint.compare("eq", count, zeros)
    return adjoint.where(is_alone, others, 0.0)


def _share(adjoint: Adjoint, op: logical.ScatterCombineOp) -> SSAValue:
    """The derivative by each element over the number of those that reach its extreme."""

    def make() -> SSAValue:
        own = _reached(adjoint, adjoint.saved(op.operand), adjoint.result)
        added = logical.ScatterCombineOp(own, adjoint.saved(op.indices), _updates_reached(adjoint, op), "add")
        return adjoint.apply(logical.DivOp, adjoint.grad, adjoint.add(added, "count"))

    return adjoint.shared("share", make)


def _updates_reached(adjoint: Adjoint, op: logical.ScatterCombineOp) -> SSAValue:
    """1 for each update that equals the extreme of its row, else 0."""

    def make() -> SSAValue:
        found = adjoint.add(logical.GatherOp(adjoint.result, adjoint.saved(op.indices), 0), "found")
        return _reached(adjoint, adjoint.saved(op.updates), found)

    return adjoint.shared("updates reached", make)


def _reached(adjoint: Adjoint, value: SSAValue, extreme: SSAValue) -> SSAValue:
    """1 where they are equal, else 0."""
    return adjoint.cast(adjoint.compare("eq", value, extreme), element_of(value.type), "reached")


def _written_row(adjoint: Adjoint, op: logical.WriteRowOp) -> SSAValue:
    """The row at its index; zeros if it was written nowhere."""
    axis, index = op.axis.value.data, adjoint.saved(op.index)
    if tensor_info(index.type).rank:
        return _rows_of_each(adjoint, op, index)
    if op.rows > 1:
        return _written_rows(adjoint, op, index)
    row = adjoint.shaped_like(adjoint.add(logical.GatherOp(adjoint.grad, index, axis), "row"), op.row)
    return _unless_dropped(adjoint, index, op.info.sizes[axis], row)


def _written_rows(adjoint: Adjoint, op: logical.WriteRowOp, first: SSAValue) -> SSAValue:
    """The rows from an index on; zeros in place of those that were written nowhere."""
    axis, rows = op.axis.value.data, op.rows
    numbers = adjoint.add(logical.IotaOp(0, [rows], element_of(first.type)), "numbers")
    indices = adjoint.add(logical.AddOp(numbers, adjoint.broadcast(first, [], [rows], "first")), "indices")
    value = adjoint.add(logical.GatherOp(adjoint.grad, indices, axis), "rows")
    return _unless_dropped(adjoint, indices, op.info.sizes[axis], value, axis)


def _rows_of_each(adjoint: Adjoint, op: logical.WriteRowOp, first: SSAValue) -> SSAValue:
    """As `_written_rows`, where each of the leading dimensions has an index of its own."""
    axis, shape, info = op.axis.value.data, tensor_info(op.row.type).sizes, tensor_info(first.type)
    numbers = adjoint.add(logical.IotaOp(axis, shape, info.element), "numbers")
    spread = adjoint.broadcast(first, range(info.rank), shape, "first")
    indices = adjoint.add(logical.AddOp(numbers, spread), "indices")
    value = adjoint.add(logical.GatherElementsOp(adjoint.grad, indices, axis), "rows")
    return _unless_dropped(adjoint, indices, op.info.sizes[axis], value)


def _unless_dropped(
    adjoint: Adjoint, indices: SSAValue, size: Size, value: SSAValue, axis: int = 0
) -> SSAValue:
    """0 in place of what indices out of range would write; they are along dimensions of the value, from `axis` on."""
    count = static_size(adjoint.op, size)
    below, above = adjoint.compare("lt", indices, -count), adjoint.compare("ge", indices, count)
    dropped = adjoint.add(logical.OrOp(below, above), "dropped")
    along = range(axis, axis + tensor_info(indices.type).rank)
    return adjoint.where(
        adjoint.broadcast(dropped, along, tensor_info(value.type).sizes, "spread"), 0.0, value
    )


def _overwritten(adjoint: Adjoint, op: logical.WriteRowOp) -> SSAValue:
    """Zeros in place of what is written."""
    zeros = adjoint.zeros(tensor_info(op.row.type).sizes)
    return adjoint.add(
        logical.WriteRowOp(zeros, adjoint.saved(op.index), adjoint.grad, op.axis.value.data), "operand"
    )


def _dropout(adjoint: Adjoint, op: logical.DropoutOp) -> SSAValue:
    """The same elements kept, by the same stream, with the same factor."""
    again = logical.DropoutOp(
        adjoint.grad, adjoint.saved(op.seed), adjoint.saved(op.offset), op.rate.value.data
    )
    return adjoint.add(again, "dropout")


GRADIENTS: Gradients = {
    logical.GatherOp: (_gather, None),
    logical.GatherElementsOp: (_gather_elements, None),
    logical.ScatterOp: BY_FORMULA,
    logical.ScatterElementsOp: BY_FORMULA,
    logical.ScatterNdOp: BY_FORMULA,
    logical.ScatterCombineOp: (_combined_operand, None, _combined_updates),
    logical.WriteRowOp: (_written_row, None, _overwritten),
    logical.OneHotOp: BY_FORMULA,
    logical.DropoutOp: (_dropout, None, None),
    logical.LastUpdateOp: STEPS,
    logical.TopkIndicesOp: STEPS,
    logical.NonMaxSuppressionOp: STEPS,
    logical.PhiloxOp: STEPS,
    logical.PhiloxWordOp: STEPS,
    logical.IotaOp: STEPS,
}
