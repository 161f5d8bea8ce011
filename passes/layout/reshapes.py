"""Reshapes that hide which dims are channels: who gives a value takes over the reshape of those that read it.

What is interleaved, such as the phases of a data gradient or of a max pooling's, is written as a value of more dims,
``[N, C, H / 2, 2, W / 2, 2]``, and each reader begins with a reshape to ``[N, C, H, W]``. At the end of the group that
gives it, the reshape is strides as well, and the value between groups has an order that may be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.logical import ReshapeOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.buffer_aliasing import alias_of
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.workload import aliased_workload, remember_workload
from aicf.passes.layout.layout_graph import RANKS, is_free_to_move, multiplies


def hoist_reshapes(function: func.FuncOp) -> None:
    """Lets groups with one result give it as all groups that read it see it, where only that has an order."""
    for group in list(function.body.block.ops):
        if isinstance(group, GroupOp) and len(group.results) == 1 and (found := _found(group)) is not None:
            found.hoist()


@dataclass(frozen=True)
class _Reshaped:
    """A group whose one result is read by reshapes to one shape.

    Args:
        reading: The groups that read it, each with the number of the operand.
        shape: That in which they do.
    """

    group: GroupOp
    reading: tuple[tuple[GroupOp, int], ...]
    shape: tuple[int, ...]

    def hoist(self) -> None:
        """Writes one reshape at the end of the group, and drops the others."""
        value = self._reshaped()
        for reader, number in self.reading:
            _read(reader, number, value)
        block = self.group.parent
        assert block is not None
        block.erase_op(self.group)

    def _reshaped(self) -> OpResult:
        """The result of a group that ends with the reshape, before the group."""
        group, body = self.group, self.group.body.block
        block, inner = Block(arg_types=[value.type for value in group.ins]), dict[SSAValue, SSAValue]()
        for old, new in zip(body.args, block.args, strict=True):
            new.name_hint, inner[old] = old.name_hint, new
        for op in body.ops:
            if not isinstance(op, YieldOp):
                block.add_op(op.clone(inner))
        (given,) = yielded(body)
        block.add_op(reshape := ReshapeOp(inner[given], self.shape))
        block.add_op(YieldOp([reshape.result]))
        sources = [source.data for source in group.src]
        whole = GroupOp(group.id.data, sources, group.ins, Region(block), [reshape.result.type])
        whole.location = group.location
        place = group.parent
        assert place is not None
        place.insert_op_before(whole, group)
        whole.results[0].name_hint = group.results[0].name_hint
        return whole.results[0]


def _found(group: GroupOp) -> _Reshaped | None:
    """A group whose result has more dims than an order knows, but not as others see it: with the same batch and
    channels."""
    value = group.results[0]
    before = tensor_info(value.type).shape
    if len(before) <= max(RANKS) or not is_free_to_move(group) or multiplies(group.body.block):
        return None
    if alias_of(value).whole is not value:
        return None
    reading, shapes = list[tuple[GroupOp, int]](), set[tuple[int, ...]]()
    for use in value.uses:
        reader = use.operation
        if not isinstance(reader, GroupOp) or not is_free_to_move(reader):
            return None
        reading.append((reader, use.index))
        body = reader.body.block
        for inner in _readers(body.args[use.index]):
            if not isinstance(inner, ReshapeOp) or inner.parent is not body:
                return None
            shapes.add(tensor_info(inner.result.type).shape)
    if len(shapes) != 1 or len(shape := shapes.pop()) not in RANKS or shape[:2] != before[:2]:
        return None
    return _Reshaped(group, tuple(reading), shape)


def _readers(value: SSAValue) -> list[Operation]:
    """The ops that read a value; one that a rewrite took out of its body may still hold it."""
    return [use.operation for use in value.uses if use.operation.parent is not None]


def _read(group: GroupOp, number: int, value: SSAValue) -> None:
    """Lets a group read a value that is reshaped already."""
    block, old = group.body.block, group.body.block.args[number]
    new = block.insert_arg(value.type, number)
    new.name_hint = old.name_hint
    for reshape in _readers(old):
        reshape.results[0].replace_all_uses_with(new)
        block.erase_op(reshape)
    block.erase_arg(old, safe_erase=False)
    group.operands[number] = value
    remember_workload(group, aliased_workload(group, lambda each: alias_of(each).view))
