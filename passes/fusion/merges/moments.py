"""The moments that a group takes of a convolution's result: which of its ops they are, and both groups without and with
them. `fuse-moments` says when they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from aicf.passes.support.identity import copied_id, set_identity, sources


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

    @cached_property
    def taken(self) -> dict[Operation, str | None]:
        """The ops of the norm that the convolution's group gets, in text order, without what feeds them; with the id of
        the copy where the norm keeps the op."""
        needed = self._needed(self.given, stop=False)
        kept = self._needed([v for v in yielded(self.norm.body.block) if v not in self.moved], stop=True)
        return {
            op: copied_id(id_of(op), self._name) if op.results[0] in kept - self.moved else None
            for op in members(self.norm)
            if op.results[0] in needed and op.results[0] != self.pixels
        }

    @cached_property
    def members(self) -> list[Operation]:
        """What the convolution's group has with the moments, without what feeds it."""
        return [*members(self.convolution), *self.taken]

    @cached_property
    def copies(self) -> dict[Operation, str]:
        """The ids of the copies among these."""
        return {op: own for op, own in self.taken.items() if own is not None}

    @property
    def _name(self) -> str:
        """The id of the convolution itself."""
        return next(id_of(op) for op in members(self.convolution) if isinstance(op, logical.ConvOp))

    def groups(self) -> tuple[GroupOp, GroupOp | None]:
        """The convolution with the moments, and the norm without them, None if that has nothing left; in no block."""
        whole = self._whole()
        return whole, self._rest(whole)

    def _whole(self) -> GroupOp:
        """The convolution's body, then the ops of the norm that the moved values take."""
        body = self.convolution.body.block
        copy = _BodyCopy(
            lambda value: self.norm.ins[value.index] if isinstance(value, BlockArgument) else None
        )
        for argument, value in zip(body.args, self.convolution.ins, strict=True):
            copy.take(argument, value, argument.name_hint)
        for op in body.ops:
            if not isinstance(op, YieldOp):
                copy.add(op)
        copy.inner[self.pixels] = copy.inner[self.sums]
        for op, own in self.taken.items():
            added = copy.add(op)
            if own is not None:
                set_identity(added, own, sources(op))
        return copy.group(self.convolution, [*yielded(body), *self.given])

    def _is_result(self, argument: BlockArgument) -> bool:
        return self.norm.ins[argument.index] is self.convolution.results[0]

    def _rest(self, whole: GroupOp) -> GroupOp | None:
        """The norm's body, which reads moved values."""
        left = [value for value in yielded(self.norm.body.block) if value not in self.moved]
        if not left:
            return None
        results = dict(zip(self.given, whole.results[1:], strict=True))

        def given(value: SSAValue) -> SSAValue | None:
            if not isinstance(value, BlockArgument):
                return results.get(value)
            return whole.results[0] if self._is_result(value) else self.norm.ins[value.index]

        copy, needed = _BodyCopy(given), self._needed(left, stop=True)
        for op in members(self.norm):
            if op.results[0] in needed and op.results[0] not in results:
                copy.add(op)
        return copy.group(self.norm, left)

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


class _BodyCopy:
    """A body that grows by copies of ops of other bodies, in the order that `outline` would give it of these ops: what
    feeds an op stands right before the first that reads it, and arguments come in the order in which they are read.

    Args:
        given: The value of the function that a value of the other bodies is; None if it is computed here.
    """

    def __init__(self, given: Callable[[SSAValue], SSAValue | None]) -> None:
        self.given = given
        self.block = Block()
        self.ins: list[SSAValue] = []
        self.inner: dict[SSAValue, SSAValue] = {}

    def take(self, value: SSAValue, outer: SSAValue, hint: str | None) -> None:
        """Adds an argument."""
        self.ins.append(outer)
        self.inner[value] = argument = self.block.insert_arg(value.type, len(self.block.args))
        argument.name_hint = hint

    def add(self, op: Operation) -> Operation:
        """A copy of an op, after that of what feeds it."""
        copy = op.clone({operand: self.value(operand) for operand in op.operands})
        self.block.add_op(copy)
        for old, new in zip(op.results, copy.results, strict=True):
            self.inner[old], new.name_hint = new, old.name_hint
        return copy

    def value(self, value: SSAValue) -> SSAValue:
        """The value in this body; what only feeds is copied for the first that reads it."""
        if value not in self.inner and (outer := self.given(value)) is not None:
            self.take(value, outer, argument_hint(outer) or value.name_hint)
        elif value not in self.inner:
            assert isinstance(value, OpResult)
            self.add(value.op)
        return self.inner[value]

    def group(self, like: GroupOp, results: Sequence[SSAValue]) -> GroupOp:
        """A group of this body that gives `results`, in the place of another one."""
        self.block.add_op(YieldOp([self.value(value) for value in results]))
        group = GroupOp(like.id.data, [], self.ins, Region(self.block), [value.type for value in results])
        group.location = like.location
        src = dict.fromkeys((*sources_of(members(group)), *_saved(like)))
        group.properties["src"] = ArrayAttr(map(StringAttr, src))
        return group


def _saved(group: GroupOp) -> list[str]:
    """Sources of a group that none of its ops stands for: of transposes that its layout saves."""
    own = sources_of(members(group))
    return [source.data for source in group.src if source.data not in own]
