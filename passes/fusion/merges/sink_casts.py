"""`sink-casts`: a cast to wider elements that groups take of each other is done by those that read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.types import byte_count
from aicf.passes.bodies.outlining import id_of, sources_of
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.forming import FusionContext, fusion_contexts, refusal
from aicf.passes.fusion.merges.group_loops import NAMED, alone_us, is_loops, is_named
from aicf.passes.fusion.merges.merge import Merge, members
from aicf.passes.fusion.profitability import SAME_TIME, slower
from aicf.passes.support.identity import copied_id, set_identity, sources
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.works_on import GROUPS


@dataclass(frozen=True)
class SinkCastsPass(ModulePass):
    """Takes the results that are a cast of an operand to wider elements from the groups of loops that give them.

    Each group that reads such a result gets the operand and a copy of the cast: in registers it costs next to nothing,
    in memory the bytes of the wider type. A backward pass has them, whose parts all read the widened gradient. All
    readers have to be loops. With the producer they are predicted to take no longer than before, or the policy lists
    each with its copy. A group without results is dropped.
    """

    name = "sink-casts"
    works_on = GROUPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), grouped=True):
            if context.policy.fusion.elementwise:
                for group in list(context.function.body.block.ops):
                    if isinstance(group, GroupOp) and group.parent is not None and is_loops(group):
                        _sink_all(group, context)


def _sink_all(group: GroupOp, context: FusionContext) -> None:
    """Looks at each result once; what is left of the group takes its place."""
    left: GroupOp | None = group
    for identity in [id_of(cast) for _, cast in _widenings(group)]:
        found = [] if left is None else [each for each in _widenings(left) if id_of(each[1]) == identity]
        if left is not None and found:
            left = _sink(_Sinking(left, *found[0], context))


def _widenings(group: GroupOp) -> Iterator[tuple[int, logical.CastOp]]:
    """The results that are a cast of an operand to wider elements, each with its index first."""
    for index, value in enumerate(yielded(group.body.block)):
        cast = value.owner
        if not isinstance(cast, logical.CastOp) or not isinstance(cast.operand, BlockArgument):
            continue
        if byte_count(cast.result.type) > byte_count(cast.operand.type):
            yield index, cast


@dataclass(frozen=True)
class _Sinking:
    """A cast on its way to what reads it.

    Args:
        producer: The group that gives it.
        index: Of the result.
        cast: In the body of the producer.
    """

    producer: GroupOp
    index: int
    cast: logical.CastOp
    context: FusionContext

    @property
    def result(self) -> OpResult:
        """What is read."""
        return self.producer.results[self.index]

    @cached_property
    def readers(self) -> list[Operation]:
        """What reads it, each once, in text order."""
        reading = {use.operation for use in self.result.uses}
        return [op for op in self.context.function.body.block.ops if op in reading]

    def merge(self, reader: GroupOp) -> Merge:
        """Inserts a copy of the cast before `reader`, which reads it from now on, and gives the merge of the two."""
        given = self.cast.operand
        assert isinstance(given, BlockArgument)
        operand, first = self.producer.ins[given.index], id_of(members(reader)[0])
        block = Block(arg_types=[operand.type])
        block.args[0].name_hint = given.name_hint
        copy = self.cast.clone({given: block.args[0]})
        set_identity(copy, copied_id(id_of(self.cast), first), sources(self.cast))
        copy.result.name_hint = self.cast.result.name_hint
        block.add_ops([copy, YieldOp([copy.result])])
        group = GroupOp(id_of(copy), sources_of([copy]), [operand], Region(block), [self.result.type])
        group.results[0].name_hint = self.result.name_hint
        self.context.function.body.block.insert_op_before(group, reader)
        self.result.replace_uses_with_if(group.results[0], lambda use: use.operation is reader)
        return Merge(group, reader, (), self.context)

    def take_back(self, merges: Sequence[Merge]) -> None:
        """Undoes `merge`."""
        for merge in merges:
            merge.first.results[0].replace_all_uses_with(self.result)
            merge.first.detach()
            merge.first.erase()


def _sink(sinking: _Sinking) -> GroupOp | None:
    """Gives the readers their copies and takes the result from the producer, or notes why not. Returns the producer."""
    producer, context = sinking.producer, sinking.context
    readers = [op for op in sinking.readers if isinstance(op, GroupOp) and is_loops(op)]
    if len(readers) < len(sinking.readers):
        return producer
    rest = _without(producer, sinking.index)
    apart = sum(alone_us(group, context) for group in (producer, *readers))
    if rest is None:
        context.used.discard(producer.id.data)
    merges = [sinking.merge(reader) for reader in readers]
    whole = sum(map(_whole_us, merges)) + (0.0 if rest is None else alone_us(rest, context))
    reason = next(filter(None, map(_against, merges)), None)
    if reason is None and not whole <= apart * SAME_TIME and not all(map(_is_listed, merges)):
        reason = slower(whole, apart)
    if reason is not None:
        sinking.take_back(merges)
        context.used.add(producer.id.data)
        record_decision(context.module, SinkCastsPass.name, [id_of(sinking.cast)], "not fused", reason)
        return producer
    # Names are taken one after the other: those of the plans that were asked for are of each alone.
    formed = [replace(merge).form().id.data for merge in merges]
    subjects = list(dict.fromkeys((id_of(sinking.cast), *formed)))
    _replace(producer, rest, sinking.index, context)
    figures = {"unfused_us": microseconds(apart), "fused_us": microseconds(whole)}
    choice = "done by its consumer" if len(merges) == 1 else f"done by each of its {len(merges)} consumers"
    because = "a cast in registers costs next to nothing, and the wider values need no memory"
    record_decision(context.module, SinkCastsPass.name, subjects, choice, because, {}, figures)
    return rest


def _without(group: GroupOp, index: int) -> GroupOp | None:
    """A group without one of its results and without what only that needed, in no block; None if it has no other."""
    kept = [value for number, value in enumerate(yielded(group.body.block)) if number != index]
    if not kept:
        return None
    needed: set[SSAValue] = set(kept)
    for op in reversed(list(group.body.block.ops)):
        if not needed.isdisjoint(op.results):
            needed.update(op.operands)
    block, inner, ins = Block(), dict[SSAValue, SSAValue](), list[SSAValue]()
    for argument in group.body.block.args:
        if argument in needed:
            inner[argument] = block.insert_arg(argument.type, len(block.args))
            inner[argument].name_hint = argument.name_hint
            ins.append(group.ins[argument.index])
    for op in group.body.block.ops:
        if not needed.isdisjoint(op.results):
            block.add_op(copy := op.clone(inner))
            for old, new in zip(op.results, copy.results, strict=True):
                inner[old], new.name_hint = new, old.name_hint
    block.add_op(YieldOp([inner[value] for value in kept]))
    rest = GroupOp(group.id.data, [], ins, Region(block), [value.type for value in kept])
    rest.location = group.location
    rest.properties["src"] = ArrayAttr(map(StringAttr, sources_of(members(rest))))
    return rest


def _replace(group: GroupOp, rest: GroupOp | None, index: int, context: FusionContext) -> None:
    """Puts what is left of a group, which nobody reads a result of, where the group is."""
    block = context.function.body.block
    if rest is not None:
        block.insert_op_before(rest, group)
        context.used.add(rest.id.data)
        kept = [result for result in group.results if result.index != index]
        for old, new in zip(kept, rest.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
    block.erase_op(group)


def _against(merge: Merge) -> str | None:
    """Why a reader may not have a copy of its own."""
    context, listed = merge.context, _is_listed(merge)
    if not context.may_be_one(merge.members):
        return context.why_not_fusible(merge.members)
    if not listed and _loses_its_name(merge):
        return NAMED.format(merge.second.id.data)
    return refusal(merge.plan, context) or context.profitability(merge.plan).no_code


def _is_listed(merge: Merge) -> bool:
    return merge.context.are_listed(merge.members)


def _loses_its_name(merge: Merge) -> bool:
    """Whether the policy gives the reader a kernel by its name, and the whole would be called otherwise."""
    name = merge.second.id.data
    return name != merge.plan.id and is_named(name, merge.context.policy)


def _whole_us(merge: Merge) -> float:
    profitability = merge.context.profitability(merge.plan)
    return profitability.fused_us if profitability.legal else inf
