"""`sink-casts`: a widening cast that several groups read is done by each, which then reads the narrow values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, StringAttr, f64
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import byte_count
from aicf.passes.support.fusion import FusionContext, fusion_contexts, refusal
from aicf.passes.support.identity import copied_id, op_id, set_identity, sources
from aicf.passes.support.ledger import record
from aicf.passes.support.merging import Merge, members
from aicf.passes.support.outlining import id_of
from aicf.passes.support.policy import without_bucket
from aicf.passes.support.verdicts import SAME_TIME, Verdict
from aicf.passes.support.work import target_of, work_of_group


@dataclass(frozen=True)
class SinkCastsPass(ModulePass):
    """Dissolves the groups that are one cast to wider elements into all that read them.

    `fuse-elementwise` leaves such a cast alone where several read it, as the parts of a backward pass read the widened
    gradient. In registers it costs next to nothing, in memory the bytes of the wider type. All readers have to be
    loops, together predicted to take no longer than with the cast apart, or listed with their copy of it by the policy.
    """

    name = "sink-casts"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), grouped=True):
            if context.policy.fusion.elementwise:
                for group in list(context.function.body.block.ops):
                    if isinstance(group, GroupOp) and (cast := _widening(group)) is not None:
                        _sink(group, cast, context)


def _widening(group: GroupOp) -> logical.CastOp | None:
    """The cast that is all of a group, if its results take more bytes than its operand and several groups read them."""
    inside = members(group)
    if group.kernel is not None or len(inside) != 1 or not isinstance(cast := inside[0], logical.CastOp):
        return None
    wider = byte_count(cast.result.type) > byte_count(cast.operand.type)
    return cast if wider and op_id(cast) is not None and len(_readers(group)) > 1 else None


def _readers(group: GroupOp) -> list[Operation]:
    """What reads a group, each once, in text order."""
    readers = dict.fromkeys(use.operation for use in group.results[0].uses)
    block = group.parent
    return [] if block is None else [op for op in block.ops if op in readers]


def _sink(group: GroupOp, cast: logical.CastOp, context: FusionContext) -> None:
    """Gives each reader a copy of the cast and drops the group, or notes why not."""
    readers = [op for op in _readers(group) if isinstance(op, GroupOp) and _is_loops(op)]
    subjects = [group.id.data, *(id_ for id_ in (id_of(cast),) if id_ != group.id.data)]
    if len(readers) < len(_readers(group)):
        return
    merges = [_with_copy(group, reader, context) for reader in readers]
    apart = _us(group, context) + sum(_us(reader, context) for reader in readers)
    whole = sum(_whole_us(merge) for merge in merges)
    reason = next(filter(None, map(_against, merges)), None)
    if reason is None and not whole <= apart * SAME_TIME and not all(map(_is_listed, merges)):
        reason = f"predicted {whole:.3g} us, and {apart:.3g} us apart"
    if reason is not None:
        _take_back(group, merges)
        record(context.module, SinkCastsPass.name, subjects, "apart", reason)
        return
    formed = [merge.form() for merge in merges]
    context.used.discard(group.id.data)
    group.detach()
    group.erase()
    figures = {"apart_us": FloatAttr(round(apart, 3), f64), "whole_us": FloatAttr(round(whole, 3), f64)}
    subjects += [each.id.data for each in formed]
    choice = f"each of {len(formed)} readers widens what it reads"
    because = "a cast in registers is for nothing, and the wider values need no memory"
    record(context.module, SinkCastsPass.name, subjects, choice, because, {}, figures)


def _is_loops(group: GroupOp) -> bool:
    """Whether a group is pointwise ops, reductions and scans alone, without a kernel yet."""
    if group.kernel is not None or any(op_id(op) is None for op in members(group)):
        return False
    work = work_of_group(group).work
    return work.code is not None and not any(isinstance(op, logical.MatmulOp) for op in work.body.ops)


def _with_copy(group: GroupOp, reader: GroupOp, context: FusionContext) -> Merge:
    """A reader and its own copy of the group, put in front of it, as one group."""
    copy = group.clone()
    copy.properties["id"] = StringAttr(copied_id(group.id.data, reader.id.data))
    for op in members(copy):
        set_identity(op, copied_id(id_of(op), reader.id.data), sources(op))
    copy.results[0].name_hint = group.results[0].name_hint
    block = reader.parent
    assert block is not None
    block.insert_op_before(copy, reader)
    group.results[0].replace_uses_with_if(copy.results[0], lambda use: use.operation is reader)
    return Merge(copy, reader, (), context)


def _take_back(group: GroupOp, merges: Sequence[Merge]) -> None:
    """Undoes `_with_copy`."""
    for merge in merges:
        merge.first.results[0].replace_all_uses_with(group.results[0])
        merge.first.detach()
        merge.first.erase()


def _against(merge: Merge) -> str | None:
    """Why a reader may not have a copy of its own."""
    context = merge.context
    if not context.may_be_one(merge.members):
        return context.why_apart(merge.members)
    if (lost := next(_named_by_policy(merge), None)) is not None:
        return f"the policy names '{lost}', which would not be an instruction"
    return refusal(merge.plan, context) or merge.plan.work.no_code


def _is_listed(merge: Merge) -> bool:
    return merge.context.are_listed(merge.members)


def _named_by_policy(merge: Merge) -> Iterator[str]:
    """The parts that the policy gives a kernel by a name that the whole would not have."""
    named = {*merge.context.policy.kernels, *merge.context.policy.records}
    for part in merge.parts:
        id_ = part.id.data
        if id_ != merge.plan.id and not named.isdisjoint((id_, without_bucket(id_))):
            yield id_


def _whole_us(merge: Merge) -> float:
    verdict = merge.context.verdict(merge.plan)
    return verdict.whole_us if verdict.legal else inf


def _us(group: GroupOp, context: FusionContext) -> float:
    """Predicted microseconds of a group by itself, infinite if no kernel runs it alone."""
    verdict = Verdict.of(work_of_group(group), context.target, context.policy)
    return verdict.whole_us if verdict.legal else inf
