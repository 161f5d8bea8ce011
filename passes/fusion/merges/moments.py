"""The moments that a group takes of a convolution's result: which of its ops they are, and both groups without and with
them. `fuse-moments` says when they move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.convolutions import CHANNEL, reduces_channels
from aicf.passes.bodies.outlining import argument_hint, id_of, is_rematerializable, sources_of
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.fusion.merges.merge import members
from aicf.passes.support.identity import copied_id, op_id, set_identity, sources


@dataclass(frozen=True)
class Moments:
    """Sums over the pixels of a convolution's result in a later group, and what follows from them for each channel.

    Args:
        convolution, norm: Both groups.
        pixels: The result in the body of the norm.
        sums: The result in the body of the convolution.
        moved: Values of the norm's body that are one for a channel and follow from the sums.
        reductions: The sums.
    """

    convolution: GroupOp
    norm: GroupOp
    pixels: SSAValue
    sums: SSAValue
    moved: frozenset[SSAValue]
    reductions: tuple[Operation, ...]

    @cached_property
    def convolution_id(self) -> str:
        """Of the group."""
        return self.convolution.id.data

    @cached_property
    def reduction_ids(self) -> list[str]:
        """Of the sums."""
        return list(map(id_of, self.reductions))

    @cached_property
    def given(self) -> list[SSAValue]:
        """The moved values that others read: results of the convolution's group, in the order of the text."""
        kept = set(yielded(self.norm.body.block))
        read = self._needed([value for value in kept if value not in self.moved], stop=True) | kept
        return [
            result
            for op in self.norm.body.block.ops
            for result in op.results
            if result in self.moved and result in read and (result in kept or not _is_view_of(result))
        ]

    def _needed(self, roots: Sequence[SSAValue], *, stop: bool) -> set[SSAValue]:
        """What it takes to compute `roots` in the norm's body; with `stop` moved values are there already, but for the
        views of those."""
        needed, stack = set[SSAValue](), list(roots)
        while stack:
            value = stack.pop()
            if value in needed:
                continue
            needed.add(value)
            is_there = stop and value in self.moved and not _is_view_of(value)
            if isinstance(value, OpResult) and value != self.pixels and not is_there:
                stack.extend(value.op.operands)
        return needed

    def groups(self) -> tuple[GroupOp, GroupOp | None]:
        """The convolution with the moments, and the norm without them, None if that has nothing left; in no block."""
        whole = self._whole()
        return whole, self._rest(whole)

    def _whole(self) -> GroupOp:
        """The convolution's body, then the ops of the norm that the moved values take."""
        body = self.convolution.body.block
        block, inner = Block(arg_types=[arg.type for arg in body.args]), dict[SSAValue, SSAValue]()
        for old, new in zip(body.args, block.args, strict=True):
            inner[old], new.name_hint = new, old.name_hint
        for op in body.ops:
            if not isinstance(op, YieldOp):
                _copy(op, block, inner)
        inner[self.pixels] = inner[self.sums]
        ins = list(self.convolution.ins)
        needed = self._needed(self.given, stop=False)
        for argument in self.norm.body.block.args:
            if argument in needed and argument not in inner and not self._is_result(argument):
                ins.append(self.norm.ins[argument.index])
                inner[argument] = block.insert_arg(argument.type, len(block.args))
                inner[argument].name_hint = argument_hint(ins[-1])
        kept = self._needed([v for v in yielded(self.norm.body.block) if v not in self.moved], stop=True)
        first = id_of(members(self.convolution)[0])
        for op in self.norm.body.block.ops:
            if needed.isdisjoint(op.results) or op.results[0] == self.pixels:
                continue
            copy = _copy(op, block, inner)
            if op.results[0] in kept and op.results[0] not in self.moved and op_id(op) is not None:
                set_identity(copy, copied_id(id_of(op), first), sources(op))
        values = [inner[value] for value in (*yielded(body), *self.given)]
        block.add_op(YieldOp(values))
        return _group(self.convolution, ins, block)

    def _is_result(self, argument: BlockArgument) -> bool:
        return self.norm.ins[argument.index] is self.convolution.results[0]

    def _rest(self, whole: GroupOp) -> GroupOp | None:
        """The norm's body, which reads moved values."""
        body = self.norm.body.block
        left = [value for value in yielded(body) if value not in self.moved]
        if not left:
            return None
        needed = self._needed(left, stop=True)
        given = [value for value in self.given if value in needed]
        results = dict(zip(self.given, whole.results[1:], strict=True))
        block, inner, ins = Block(), dict[SSAValue, SSAValue](), list[SSAValue]()
        # What the result is made of in this body is needed too, up to the argument.
        needed |= {value for value in self._source_of_pixels() if self.pixels in needed}
        for value in (*(argument for argument in body.args if argument in needed), *given):
            inner[value] = block.insert_arg(value.type, len(block.args))
            if isinstance(value, BlockArgument):
                ins.append(whole.results[0] if self._is_result(value) else self.norm.ins[value.index])
            else:
                ins.append(results[value])
            inner[value].name_hint = value.name_hint
        for op in body.ops:
            if not needed.isdisjoint(op.results) and op.results[0] not in inner:
                _copy(op, block, inner)
        block.add_op(YieldOp([inner[value] for value in left]))
        return _group(self.norm, ins, block)

    def _source_of_pixels(self) -> list[SSAValue]:
        value, found = self.pixels, list[SSAValue]()
        while isinstance(value, OpResult):
            found.append(value)
            value = value.op.operands[0]
        return [*found, value]

    def replace(self, whole: GroupOp, rest: GroupOp | None) -> None:
        """Puts the new groups where the old ones are."""
        block = self.convolution.parent
        assert block is not None
        block.insert_op_before(whole, self.convolution)
        results = dict(zip(self.given, whole.results[1:], strict=True))
        left: list[SSAValue] = []
        if rest is not None:
            block.insert_op_before(rest, self.norm)
            left = list(rest.results)
        for old, value in zip(self.norm.results, yielded(self.norm.body.block), strict=True):
            new = results[value] if value in self.moved else left.pop(0)
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        block.erase_op(self.norm)
        whole.results[0].name_hint = self.convolution.results[0].name_hint
        self.convolution.results[0].replace_all_uses_with(whole.results[0])
        block.erase_op(self.convolution)


def moments_between(convolution: GroupOp, norm: GroupOp) -> Moments | None:
    """The moments that `norm` takes of the result of a convolution; None if it takes none."""
    (sums,) = yielded(convolution.body.block)
    index = list(norm.ins).index(convolution.results[0])
    pixels: SSAValue = norm.body.block.args[index]
    if isinstance(sums.owner, logical.TransposeOp):  # it lies channels-last: who reads it turns it back
        back = [use.operation for use in pixels.uses]
        if len(back) != 1 or not isinstance(turn := back[0], logical.TransposeOp):
            return None
        order = sums.owner.permutation.get_values()
        if [order[dim] for dim in turn.permutation.get_values()] != list(range(len(order))):
            return None
        sums, pixels = sums.owner.operand, turn.result
    moved, reductions = _Search(convolution, norm, pixels).run()
    if not reductions:
        return None
    return Moments(convolution, norm, pixels, sums, frozenset(moved), tuple(reductions))


class _Search:
    """Walks the body of a norm for what follows from a convolution's result and from what is one for a channel."""

    def __init__(self, convolution: GroupOp, norm: GroupOp, pixels: SSAValue) -> None:
        self.norm, self.pixels = norm, pixels
        self.shape = tensor_info(pixels.type).shape
        self.known: set[SSAValue] = {pixels}
        """What a convolution's epilogue could compute."""
        self.of_pixels: set[SSAValue] = {pixels}
        """What follows from the result."""
        before = set(_before(convolution))
        for argument, value in zip(norm.body.block.args, norm.ins, strict=True):
            is_early = isinstance(value, BlockArgument) or value.owner in before
            if is_early and argument is not self._argument(pixels):
                self.known.add(argument)

    @staticmethod
    def _argument(pixels: SSAValue) -> SSAValue:
        return pixels.op.operands[0] if isinstance(pixels, OpResult) else pixels

    def _is_of_channels(self, value: SSAValue) -> bool:
        return tensor_info(value.type).elements in (1, self.shape[CHANNEL]) and self.shape[CHANNEL] > 1

    def run(self) -> tuple[list[SSAValue], list[Operation]]:
        """The values of a channel that follow from sums over pixels, and those sums."""
        moved: list[SSAValue] = []
        reductions: list[Operation] = []
        for op in self.norm.body.block.ops:
            if isinstance(op, YieldOp) or op.results[0] in self.known:
                continue
            if not all(operand in self.known for operand in op.operands):
                continue
            if op.has_trait(logical.Reduction):
                if not reduces_channels(op, self.shape) or op.operands[0] not in self.of_pixels:
                    continue
                reductions.append(op)
                moved += op.results
            elif not self._is_simple(op):
                continue
            elif self._is_of_channels(op.results[0]) and any(operand in moved for operand in op.operands):
                moved += op.results
            self.known.update(op.results)
            if any(operand in self.of_pixels for operand in op.operands):
                self.of_pixels.update(op.results)
        return moved, reductions

    def _is_simple(self, op: Operation) -> bool:
        views = logical.BroadcastOp | logical.ReshapeOp | logical.ConstantOp | logical.TransposeOp
        return op.has_trait(logical.Elementwise) or isinstance(op, views)


def _before(group: GroupOp) -> list[Operation]:
    found: list[Operation] = []
    op = group.prev_op
    while op is not None:
        found.append(op)
        op = op.prev_op
    return found


def _is_view_of(value: SSAValue) -> bool:
    """Whether a value is a view, which whoever reads it makes of what it is a view of."""
    return isinstance(value, OpResult) and is_rematerializable(value.op)


def _copy(op: Operation, block: Block, inner: dict[SSAValue, SSAValue]) -> Operation:
    copy = op.clone({operand: inner[operand] for operand in op.operands})
    block.add_op(copy)
    for old, new in zip(op.results, copy.results, strict=True):
        inner[old], new.name_hint = new, old.name_hint
    return copy


def _group(like: GroupOp, ins: Sequence[SSAValue], block: Block) -> GroupOp:
    """A group of that body in the place of another one."""
    types = [value.type for value in yielded(block)]
    group = GroupOp(like.id.data, [], ins, Region(block), types)
    group.location = like.location
    group.properties["src"] = ArrayAttr(map(StringAttr, sources_of(members(group))))
    return group
