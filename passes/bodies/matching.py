"""Small questions that matchers ask of a value: its number if it is a constant, its source before casts, the axes over
which a row is spread.

They hold for ops of a function and for ops of a body alike.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from typing import cast

from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.scalar_ops import splat_value


def splat_number(value: SSAValue) -> float | None:
    """The number of a splat constant; of a float the shortest decimal that its type rounds to it, so that 1e-5 is
    1e-5 in every type.
    """
    if not isinstance(value.owner, logical.ConstantOp):
        return None
    number = splat_value(value.owner)
    return float(str(value.owner.array.dtype.type(number))) if isinstance(number, float) else number


def _is_splat(value: SSAValue) -> bool:
    return isinstance(value.owner, logical.ConstantOp) and value.owner.is_splat


_IOTA_LIKE = (logical.CompareOp, logical.AddOp, logical.SubOp, logical.MulOp, logical.AndOp, logical.OrOp)


def is_iota_like(value: SSAValue, depth: int = 8) -> bool:
    """Whether a value follows from coordinates alone: an iota, or what is compared or computed of iotas and splats.

    Such a value needs no memory and next to no time, so that every kernel makes its own.
    """
    return depth > 0 and isinstance(value, OpResult) and is_coordinates(value.op, depth)


def is_coordinates(op: Operation, depth: int = 8) -> bool:
    """Whether the results of an op are iota-like, see `is_iota_like`."""
    if not _may_be_iota_like(type(op)):
        return False
    if isinstance(op, logical.IotaOp):
        return True
    read = [operand for operand in op.operands if not _is_splat(operand)]
    return bool(read) and all(is_iota_like(operand, depth - 1) for operand in read)


@cache
def _may_be_iota_like(kind: type[Operation]) -> bool:
    """Whether some ops of a type are. Of most types none is, and passes ask this of all ops they meet."""
    return issubclass(kind, (logical.IotaOp, *_IOTA_LIKE))


def moves_nothing(op: logical.ReshapeOp) -> bool:
    """Whether dimensions of size 1 are all that a reshape adds and drops."""
    before, after = tensor_info(op.operand.type).sizes, op.info.sizes
    return [size for size in before if size != 1] == [size for size in after if size != 1]


def only_reader(value: SSAValue) -> Operation | None:
    """The op that alone reads a value, and once; None if there are more, or none."""
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 else None


def without_casts(value: SSAValue) -> SSAValue:
    """The value before casts from float to float, which only change how it is rounded."""
    while isinstance(value.owner, logical.CastOp):
        source = value.owner.operand
        if not (element_of(source.type).is_float and element_of(value.type).is_float):
            break
        value = source
    return value


def spread_over(value: SSAValue, axes: Sequence[int]) -> bool:
    """Whether a reduction over `axes` is repeated along them, and not along others of the same size."""
    if not isinstance(value.owner, logical.BroadcastOp):
        return True
    rank, dims = tensor_info(value.type).rank, tuple(value.owner.dimensions.get_values())
    return dims in (tuple(range(rank)), tuple(dim for dim in range(rank) if dim not in axes))


def computed_from(
    roots: Iterable[SSAValue], stop: Container[SSAValue], order: Iterable[Operation]
) -> tuple[Operation, ...]:
    """The ops among `order` that `roots` need, in that order; of a table of positions, only those that are needed are
    looked at. Values in `stop` are given: the search ends there."""
    needed: set[Operation] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value in stop or not isinstance(value, OpResult) or value.op in needed:
            continue
        needed.add(value.op)
        stack.extend(value.op.operands)
    if isinstance(order, Mapping):
        positions = cast("Mapping[Operation, int]", order)
        return tuple(sorted((op for op in needed if op in positions), key=positions.__getitem__))
    return tuple(op for op in order if op in needed)
