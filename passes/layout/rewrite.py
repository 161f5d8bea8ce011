"""Writes decided layouts into a function: transpositions at the ends of groups, and copies that go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Block, Region, SSAValue

from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.logical import TransposeOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.layout.layout_graph import (
    LayoutGraph,
    channel_dims,
    from_channels_last,
    to_channels_last,
)


@dataclass(frozen=True)
class _Turns:
    """Of each operand and result of a group that lies channels-last how many dims its channels are; 0 of others."""

    ins: tuple[int, ...]
    outs: tuple[int, ...]


def lay_out(graph: LayoutGraph, last: Collection[GroupOp], copies: Mapping[GroupOp, int]) -> None:
    """Rewrites the groups of a function that give or read what lies channels-last.

    A result that does is the transposed tensor, made at the end of the body; who reads it begins with the inverse. Both
    are strides to kernels.

    Args:
        last: The groups whose free results lie channels-last.
        copies: The groups that have nothing left to copy, with the number of the operand whose memory they are.
    """
    turned: dict[SSAValue, int] = {
        value: channel_dims(value) for producer in last for value in graph.values[producer]
    }
    turns = {
        group: _Turns(
            tuple(turned.get(v, 0) for v in group.ins), tuple(turned.get(v, 0) for v in group.results)
        )
        for group in graph.groups
    }
    for group in graph.groups:
        if group in copies:
            _drop(group, group.ins[copies[group]])
        elif any(turns[group].ins) or any(turns[group].outs):
            _replace(group, turns[group])


def _drop(group: GroupOp, source: SSAValue) -> None:
    """Has who reads a copy read its source, which stands for the copied op too."""
    if isinstance(source.owner, GroupOp):
        entries = [*source.owner.src.data, *group.src.data]
        source.owner.properties["src"] = ArrayAttr(dict.fromkeys(entries))
    group.results[0].replace_all_uses_with(source)
    block = group.parent
    assert block is not None
    block.erase_op(group)


def _replace(group: GroupOp, turns: _Turns) -> None:
    block = group.parent
    assert block is not None
    body = _body(group, turns)
    new = GroupOp(
        group.id.data,
        [source.data for source in group.src],
        group.ins,
        Region(body),
        [value.type for value in yielded(body)],
    )
    new.location = group.location
    block.insert_op_before(new, group)
    for old, result in zip(group.results, new.results, strict=True):
        result.name_hint = old.name_hint
        old.replace_all_uses_with(result)
    block.erase_op(group)


def _body(group: GroupOp, turns: _Turns) -> Block:
    """The body between transpositions; these are no ops of the program and have no ids."""
    block, inner = Block(arg_types=[value.type for value in group.ins]), dict[SSAValue, SSAValue]()
    for old, new, turn in zip(group.body.block.args, block.args, turns.ins, strict=True):
        new.name_hint = old.name_hint
        inner[old] = _turned(block, new, from_channels_last(_rank(new), turn)) if turn else new
    for op in group.body.block.ops:
        if isinstance(op, YieldOp):
            continue
        block.add_op(op.clone(inner))
    given = [inner[value] for value in yielded(group.body.block)]
    block.add_op(
        YieldOp(
            [
                _turned(block, value, to_channels_last(_rank(value), turn)) if turn else value
                for value, turn in zip(given, turns.outs, strict=True)
            ]
        )
    )
    return block


def _turned(block: Block, value: SSAValue, permutation: tuple[int, ...]) -> SSAValue:
    block.add_op(op := TransposeOp(value, permutation))
    return op.result


def _rank(value: SSAValue) -> int:
    return len(tensor_info(value.type).shape)
