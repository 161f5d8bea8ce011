"""Values that may lie in either order between instructions, and the groups that give and read them.

*Row-major* memory has the last dimension innermost, *channels-last* memory the second one, as in NHWC for what is
called NCHW; where channels are two dimensions, groups and channels of a group, both are innermost. Which it is, is
decided by `select-layouts`; here is what it may decide about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects import func
from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_updates import is_update
from aicf.dialects.kinds import KINDS
from aicf.dialects.logical import ReshapeOp
from aicf.dialects.traits import MatrixKernels
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.views import View
from aicf.passes.bodies.workload import workload_of

RANKS = range(3, 6)
"""Dimensions of values with channels: a batch, channels, and one to three more."""


def to_channels_last(rank: int, channels: int = 1) -> tuple[int, ...]:
    """The permutation that puts the channels last, which are the second of so many dims, or the next ones too."""
    return (0, *range(1 + channels, rank), *range(1, 1 + channels))


def from_channels_last(rank: int, channels: int = 1) -> tuple[int, ...]:
    """Its inverse."""
    return (0, *range(rank - channels, rank), *range(1, rank - channels))


def channels_last(shape: Sequence[int], channels: int = 1) -> View:
    """Where the elements of a value of `shape` lie in contiguous memory with the channels innermost."""
    rank = len(shape)
    inner = View.whole([shape[dim] for dim in to_channels_last(rank, channels)])
    return inner.transposed(from_channels_last(rank, channels))


def channel_dims(value: SSAValue) -> int:
    """How many dims of a value between groups its channels are: two where they are split into groups, as for a group
    norm, and all who read it join them again."""
    shape = tensor_info(value.type).shape
    if len(shape) < 4:
        return 1
    joined = (shape[0], shape[1] * shape[2], *shape[3:])
    readers = [
        inner.operation
        for use in value.uses
        if isinstance(use.operation, GroupOp)
        for inner in use.operation.body.block.args[use.index].uses
    ]
    joins = [isinstance(op, ReshapeOp) and op.info.shape == joined for op in readers]
    return 2 if joins and all(joins) else 1


def lies_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides are those of channels-last memory and of no other."""
    return len(shape) in RANKS and any(_lies_last(shape, strides, channels) for channels in (1, 2))


def _lies_last(shape: tuple[int, ...], strides: tuple[int, ...], channels: int) -> bool:
    if len(shape) < 2 + channels:
        return False
    wanted = channels_last(shape, channels)
    steps = zip(shape, strides, wanted.strides, strict=True)
    return not wanted.is_whole and all(size == 1 or step == want for size, step, want in steps)


def is_turned(view: View) -> bool:
    """Whether a view of contiguous memory goes from one of the two orders to the other."""
    rank = len(view.shape)
    if rank not in RANKS or view.is_whole:
        return False
    return any(view.transposed(way(rank)).is_whole for way in (to_channels_last, from_channels_last))


@dataclass(frozen=True)
class Component:
    """Groups whose results depend on each other in how they should lie: some group touches two of them, and so on.

    Args:
        producers: Groups with such results, in text order.
        groups: All groups that give or read one of those, in text order.
        preferred: The producers whose results lie channels-last if all convolutions and poolings read and write that.
    """

    producers: tuple[GroupOp, ...]
    groups: tuple[GroupOp, ...]
    preferred: frozenset[GroupOp]


class LayoutGraph:
    """What may lie in either order in one function.

    Args:
        turns: Whether a kernel runs a group that computes many values, such as the casts of all weights, if one of its
            results lies channels-last. Others follow from what is decided; such a group has no order of its own.

    Attributes:
        values: Of each group the results that may: of three to five dims, read by groups alone.
    """

    def __init__(self, function: func.FuncOp, turns: Callable[[GroupOp, OpResult], bool]):
        self.groups = [op for op in function.body.block.ops if isinstance(op, GroupOp)]
        self.values: Mapping[GroupOp, tuple[OpResult, ...]] = {
            group: found for group in self.groups if (found := tuple(_free_results(group, turns)))
        }

    def touched_by(self, group: GroupOp) -> list[GroupOp]:
        """The groups that give what `group` gives or reads of the values."""
        given = [group] if group in self.values else []
        return list(dict.fromkeys([*given, *filter(None, map(self._producer, group.ins))]))

    def _producer(self, value: SSAValue) -> GroupOp | None:
        """The group that gives a value which may lie in either order."""
        owner = value.owner
        if not isinstance(owner, GroupOp) or value not in self.values.get(owner, ()):
            return None
        return owner

    def with_users(self, producer: GroupOp) -> list[GroupOp]:
        """`producer` and all groups that read its values, in text order."""
        return self._with_users[producer]

    @cached_property
    def _with_users(self) -> Mapping[GroupOp, list[GroupOp]]:
        found: dict[GroupOp, list[GroupOp]] = {producer: [] for producer in self.values}
        for group in self.groups:
            for producer in self.touched_by(group):
                found[producer].append(group)
        return found

    def components(self) -> list[Component]:
        """Those with a convolution, a pooling or a transposition between the two orders, by their first producer."""
        order = {group: number for number, group in enumerate(self.groups)}
        seen: set[GroupOp] = set()
        found: list[Component] = []
        for first in self.values:
            if first in seen:
                continue
            leans = self._leanings(first)
            seen.update(leans)
            producers = tuple(sorted(leans, key=order.__getitem__))
            touched = dict.fromkeys(group for producer in producers for group in self.with_users(producer))
            if any(map(_matters, touched)):
                preferred = frozenset(producer for producer in producers if leans[producer])
                groups = tuple(sorted(touched, key=order.__getitem__))
                found.append(Component(producers, groups, preferred))
        return found

    def _leanings(self, first: GroupOp) -> dict[GroupOp, bool]:
        """The producers that are connected with `first`, each with whether it lies channels-last where the convolutions
        do, or, without one, where `first` does. Groups with matrix products connect nothing: they read any strides."""
        reached = {first: True}
        stack, votes = [first], 0
        while stack:
            producer = stack.pop()
            for group in self.with_users(producer):
                if multiplies(group.body.block):
                    continue
                own = reached[producer] != self._reads_turned(group, producer)
                if _is_windowed(group):
                    votes += 1 if own else -1
                for other in self.touched_by(group):
                    if other not in reached:
                        reached[other] = own != self._reads_turned(group, other)
                        stack.append(other)
        return reached if votes >= 0 else {producer: not leans for producer, leans in reached.items()}

    def _reads_turned(self, group: GroupOp, producer: GroupOp) -> bool:
        """Whether a group reads a value of `producer` in the other order than it computes in."""
        if group is producer:
            return False
        return any(
            is_turned(operand.view)
            for operand in workload_of(group).operands
            if self._producer(group.ins[operand.argument]) is producer
        )


def _free_results(group: GroupOp, turns: Callable[[GroupOp, OpResult], bool]) -> Iterator[OpResult]:
    """The results whose order in memory is nobody's business but that of the groups which give and read them."""
    if multiplies(group.body.block) or group.kernel is not None:
        return
    has_parts = _updates(group)
    for result in group.results:
        shape = tensor_info(result.type).shape
        if (
            len(shape) in RANKS
            and not channels_last(shape, channel_dims(result)).is_whole
            and 0 not in shape
            and _is_free(result)
            and (not has_parts or turns(group, result))
        ):
            yield result


def _is_free(value: SSAValue) -> bool:
    readers: list[Operation] = [use.operation for use in value.uses]
    return bool(readers) and all(isinstance(op, GroupOp) and is_free_to_move(op) for op in readers)


def is_free_to_move(group: GroupOp) -> bool:
    """Whether what a group reads and writes may lie otherwise: no kernel is chosen for it yet, and it updates nothing
    in place."""
    return group.kernel is None and not _updates(group)


def multiplies(body: Block) -> bool:
    """Whether a body holds matrix products, whose kernels know strides of their own."""
    return any(op.has_trait(MatrixKernels) for op in body.ops)


def _updates(group: GroupOp) -> bool:
    code = workload_of(group).work.code
    return code is not None and is_update(code)


def _is_windowed(group: GroupOp) -> bool:
    return KINDS[workload_of(group).work.kind].is_windowed


def _matters(group: GroupOp) -> bool:
    """Whether a group may run faster in another order, or move less: a convolution, a pooling, or what transposes."""
    if multiplies(group.body.block):
        return False
    return _is_windowed(group) or any(is_turned(operand.view) for operand in workload_of(group).operands)
