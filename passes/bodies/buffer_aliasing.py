"""Where the values of a function lie: in memory of their own, or in that of a concatenation, as parts of it.

A `logical.concat` that no group computes is a view, as a reshape outside of groups is one: its operands lie side by
side in the memory of its result. `elide-concats` decides which do; here is what follows from it for everyone else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.views import View, before, is_rearrangement, part_of_concat
from aicf.passes.support.identity import invalid

_WAY_OUT = "put the concatenation into a group, and run elide-concats"


@dataclass(frozen=True)
class Alias:
    """The memory of `whole`, seen through `view`."""

    whole: SSAValue
    view: View


def alias_of(value: SSAValue) -> Alias:
    """The memory of a value of a function: that of a concatenation that reads it, directly or through views that
    strides can express, or its own."""
    for use in value.uses:
        op = use.operation
        if type(op) is GroupOp:  # first, for a value that all layers read has many such uses
            continue
        if isinstance(op, logical.ConcatOp):
            outer = alias_of(op.result)
            return Alias(outer.whole, part_of_concat(op, use.index, outer.view))
        if is_rearrangement(op):
            outer = alias_of(op.results[0])
            if outer.whole is not op.results[0] and (view := before(op, outer.view)) is not None:
                return Alias(outer.whole, view)
    return Alias(value, View.whole(tensor_info(value.type).shape))


def lies_alone(values: Iterable[SSAValue]) -> bool:
    """Whether all values have memory of their own."""
    return all(alias_of(value).whole is value for value in values)


def parts_of(value: SSAValue, view: View) -> Iterator[tuple[SSAValue, View | None]]:
    """`value`, seen through `view`, and all that lies in it, each with its view; None where strides cannot say it."""
    yield value, view
    op = value.owner
    if isinstance(op, logical.ConcatOp):
        for index, part in enumerate(op.parts):
            yield from _through_views(part, part_of_concat(op, index, view))


def _through_views(value: SSAValue, view: View) -> Iterator[tuple[SSAValue, View | None]]:
    op = value.owner
    if not is_rearrangement(op):
        yield from parts_of(value, view)
    elif (source := before(op, view)) is not None:
        yield from _through_views(op.operands[0], source)
    else:
        yield op.operands[0], None


def check_written_in_place(op: logical.ConcatOp) -> None:
    """Checks that instructions write the operands of a concatenation outside of groups, each there and nowhere else.

    Raises:
        InvalidIR: an operand is none of an instruction, or lies elsewhere.
    """
    result = alias_of(op.result)
    for index, part in enumerate(op.parts):
        if not isinstance(behind_moves(part).owner, GroupOp | logical.ConcatOp):
            raise invalid(op, f"no instruction writes operand {index}; {_WAY_OUT}")
        if alias_of(part) != Alias(result.whole, part_of_concat(op, index, result.view)):
            raise invalid(op, f"operand {index} belongs in two places; {_WAY_OUT}")


def behind_moves(value: SSAValue) -> SSAValue:
    """The value from which reshapes and transposes make `value`."""
    while is_rearrangement(value.owner):
        value = value.owner.operands[0]
    return value
