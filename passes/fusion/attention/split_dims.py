"""Splitting a dimension of a value in the body of a group: all that computes it computes more dimensions instead.

`[B * H, T, S]` becomes `[B, H, T, S]`: what was joined by a reshape that strides cannot express is apart again, and the
reshape is gone. Works on bodies that are not formed yet, whose ops nobody else knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.bodies.views import View, is_view


def split_before_views(body: Block) -> None:
    """Moves reshapes that only split a dimension before the views that they are of, as far as these go: a dimension
    that was joined in between, where strides cannot express it, is never joined."""
    if None not in _views_of_arguments(body):
        return
    for op in list(body.ops):
        if not isinstance(op, logical.ReshapeOp) or not is_view(op.operand.owner):
            continue
        if (found := _split_dim(op)) is not None:
            dim, sizes = found
            op.result.replace_all_uses_with(DimSplitter(body, sizes).split(op.operand, dim))
    drop_unread(body)


def _views_of_arguments(body: Block) -> Iterator[View | None]:
    """What the views that feed the rest of a body are of memory, None from where strides cannot say it."""
    views: dict[SSAValue, View | None] = {
        argument: View.whole(tensor_info(argument.type).shape) for argument in body.args
    }
    for op in body.ops:
        if is_view(op) and op.operands[0] in views:
            source = views[op.operands[0]]
            views[op.results[0]] = view = None if source is None else source.then(op)
            yield view


def drop_unread(body: Block) -> None:
    """Takes out what nothing in the body reads any more."""
    for op in reversed(list(body.ops)):
        if op.results and op.results[0].first_use is None:
            body.erase_op(op)


def _split_dim(op: logical.ReshapeOp) -> tuple[int, tuple[int, ...]] | None:
    """Which dimension a reshape splits into which sizes, if it does just that."""
    source, target = (tensor_info(value.type).shape for value in (op.operand, op.result))
    more = len(target) - len(source)
    for dim, size in enumerate(source):
        sizes = target[dim : dim + more + 1]
        if more > 0 and prod(sizes) == size and (*source[:dim], *sizes, *source[dim + 1 :]) == target:
            return dim, sizes
    return None


class DimSplitter:
    """Values of a body with a dimension split into `sizes`, each made once. Others keep what they read."""

    def __init__(self, body: Block, sizes: Sequence[int]):
        self._body = body
        self._sizes = tuple(sizes)
        self._made: dict[tuple[SSAValue, int], SSAValue] = {}

    def split(self, value: SSAValue, dim: int) -> SSAValue:
        """`value` with dimension `dim`, whose size is the product of the sizes, as that many dimensions."""
        if (value, dim) not in self._made:
            self._made[value, dim] = self._split(value, dim)
        return self._made[value, dim]

    def _split(self, value: SSAValue, dim: int) -> SSAValue:
        if not isinstance(value, OpResult):
            return self._reshape(value, dim)
        match value.op:
            case logical.ConstantOp() if value.op.is_splat:
                made = logical.ConstantOp(value.op.array, self._type(value, dim))
            case logical.IotaOp() if value.op.axis.value.data != dim:
                info, axis = tensor_info(value.type), value.op.axis.value.data
                made = logical.IotaOp(self._moved(axis, dim), self._shape(value, dim), info.element)
            case logical.ReshapeOp():
                made = self._reshape_op(value.op, dim)
            case logical.TransposeOp():
                order = list(value.op.permutation.get_values())
                moved = [new for old in order for new in self._spread(old, order[dim])]
                made = logical.TransposeOp(self.split(value.op.operand, order[dim]), moved)
            case logical.BroadcastOp():
                made = self._broadcast(value.op, dim)
            case logical.MatmulOp() if _has_equal_batches(value.op):
                made = self._like(value.op, dim, [self.split(each, dim) for each in value.op.operands])
            case logical.ReduceMaxOp() | logical.ReduceSumOp():
                made = self._reduction(value.op, dim)
            case LogicalOp() if value.op.has_trait(logical.Elementwise) and value.op.operands:
                made = self._like(value.op, dim, [self.split(each, dim) for each in value.op.operands])
            case _:
                return self._reshape(value, dim)
        made.attributes |= value.op.attributes
        return self._insert(made, value)

    def _reshape(self, value: SSAValue, dim: int) -> SSAValue:
        """What cannot compute more dimensions, such as an argument, is seen as having them."""
        return self._insert(logical.ReshapeOp(value, self._shape(value, dim)), value)

    def _reshape_op(self, op: logical.ReshapeOp, dim: int) -> LogicalOp:
        source = op.operand
        while isinstance(source, OpResult) and isinstance(source.op, logical.ReshapeOp):
            source = source.op.operand
        return logical.ReshapeOp(source, self._shape(op.result, dim))

    def _broadcast(self, op: logical.BroadcastOp, dim: int) -> LogicalOp:
        """A dimension that is repeated is so in all of its parts; of size 1 it is the last of them."""
        operand, dimensions = op.operand, list(op.dimensions.get_values())
        moved = [self._moved(target, dim) for target in dimensions]
        if dim in dimensions:
            place = dimensions.index(dim)
            if tensor_info(operand.type).shape[place] == 1:
                moved[place] = dim + len(self._sizes) - 1
            else:
                operand = self.split(operand, place)
                moved[place : place + 1] = range(dim, dim + len(self._sizes))
        return logical.BroadcastOp(operand, moved, self._shape(op.result, dim))

    def _reduction(self, op: logical.ReduceMaxOp | logical.ReduceSumOp, dim: int) -> LogicalOp:
        axes = op.axes.get_values()
        kept = [
            d for d in range(tensor_info(op.operand.type).rank) if op.keepdims is not None or d not in axes
        ]
        source = kept[dim]
        operand = self.split(op.operand, source)
        moved = [self._moved(axis, source) for axis in axes]
        return type(op)(operand, moved, keepdims=op.keepdims is not None)

    def _like(self, op: LogicalOp, dim: int, operands: Sequence[SSAValue]) -> LogicalOp:
        """The same op of operands with more dimensions."""
        return type(op).create(
            operands=operands, result_types=[self._type(op.results[0], dim)], properties=dict(op.properties)
        )

    def _insert(self, made: Operation, value: SSAValue) -> SSAValue:
        made.results[0].name_hint = value.name_hint
        if isinstance(value, OpResult):
            self._body.insert_op_after(made, value.op)
        else:
            assert self._body.first_op is not None
            self._body.insert_op_before(made, self._body.first_op)
        return made.results[0]

    def _shape(self, value: SSAValue, dim: int) -> tuple[int, ...]:
        shape = tensor_info(value.type).shape
        return (*shape[:dim], *self._sizes, *shape[dim + 1 :])

    def _type(self, value: SSAValue, dim: int) -> Attribute:
        return tensor(self._shape(value, dim), tensor_info(value.type).element)

    def _moved(self, other: int, dim: int) -> int:
        """Where dimension `other` is if `dim` is split."""
        return other + len(self._sizes) - 1 if other > dim else other

    def _spread(self, other: int, dim: int) -> Sequence[int]:
        """The dimensions that `other` becomes if `dim` is split."""
        return range(dim, dim + len(self._sizes)) if other == dim else (self._moved(other, dim),)

    def join_after(self, value: SSAValue, dim: int) -> None:
        """Gives all readers of `value`, which nobody else needs then, that of the split value: transpositions carry the
        new dimensions on to the reshape that joins them with others, or to the end."""
        made = self.split(value, dim)
        for use in list(value.uses):
            if use.operation is not made.owner:
                self._carry(made, use.operation, use.index, dim)

    def _carry(self, made: SSAValue, reader: Operation, place: int, dim: int) -> None:
        old = reader.operands[place]
        if isinstance(reader, logical.ReshapeOp):
            reader.operands[place] = made
        elif isinstance(reader, logical.TransposeOp):
            order = list(reader.permutation.get_values())
            moved = [new for each in order for new in self._spread(each, dim)]
            carried = logical.TransposeOp(made, moved)
            carried.attributes |= reader.attributes
            self._body.insert_op_after(carried, reader)
            self._made[reader.result, order.index(dim)] = carried.result
            self.join_after(reader.result, order.index(dim))
        else:
            joined = logical.ReshapeOp(made, tensor_info(old.type).shape)
            joined.result.name_hint = old.name_hint
            self._body.insert_op_before(joined, reader)
            reader.operands[place] = joined.result


def _has_equal_batches(op: logical.MatmulOp) -> bool:
    lhs, rhs = (tensor_info(value.type).shape[:-2] for value in op.operands)
    return lhs == rhs
