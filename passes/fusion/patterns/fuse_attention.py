"""`fuse-attention`: two products with a softmax between them become one kernel that never writes the scores."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.bodies.attention import Attention, NoAttention, attention_ending_in
from aicf.passes.bodies.matching import is_iota_like
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.rotation import Rotation
from aicf.passes.fusion.attention.batches import chains_after, split_batches
from aicf.passes.fusion.attention.mask_sums import join, two_masks
from aicf.passes.fusion.attention.members import members, why_in_memory
from aicf.passes.fusion.attention.position_masks import add_mask, own_copies_of_mask
from aicf.passes.fusion.attention.rotations import rotations, turn_by_heads
from aicf.passes.fusion.attention.row_writes import RowWrite, move_after_views, row_writes
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, first_formed, label
from aicf.passes.fusion.forming import OTHER_GROUPS, FusionContext

_PLAIN, _CACHED = ("attention",), ("cached_attention",)
_STEPS = {_PLAIN: ("attention_step",), _CACHED: ("cached_attention_step",)}


@dataclass(frozen=True)
class _Match:
    """An attention, and its ops from the first product to the second one, in text order."""

    attention: Attention
    members: tuple[Operation, ...]


@dataclass(frozen=True)
class FuseAttentionPass(FusionPattern[_Match]):
    """Groups `softmax(q k^T * scale + mask) v` where nothing else reads what is between the products.

    Runs before views are materialised: transposes and reshapes of queries, keys, values and mask become strides of the
    operands, and those after the second product strides of the result, so that no head is ever moved. A kernel that
    says what the parts would cost takes the whole only where that costs no more.
    """

    name = "fuse-attention"
    stage = "before_views"
    benefit = 1
    switch = "attention"
    kinds = (*_PLAIN, *_CACHED)

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        for output in list(context.function.body.block.ops):
            attention = self._attention(output, context) if isinstance(output, logical.MatmulOp) else None
            if attention is not None:
                yield self._match(self._with_one_mask(attention, context), context)

    def _match(self, attention: Attention, context: FusionContext) -> _Match:
        return _Match(attention, members([attention.output.result], attention.operands, context.position))

    def _with_one_mask(self, attention: Attention, context: FusionContext) -> Attention:
        """An attention that sees keys by a position, with the comparisons that say so as its own; where no kernel of
        the target runs it, with a mask of 0 and -inf that all such attentions share."""
        if attention.position is None:
            return attention
        whole = self._match(attention, context)
        trials = itertools.chain(_steps(whole, context, _STEPS[_CACHED]), _whole(whole, [], context, _CACHED))
        if first_formed(trials, context, {}) is not None:
            changed = own_copies_of_mask(attention)
        else:
            changed = self._added_mask(attention, context)
        if changed:
            context.renumber()
        return attention_ending_in(attention.output)

    def _added_mask(self, attention: Attention, context: FusionContext) -> bool:
        """Whether a choice between scores and -inf is a sum now; only where a kernel may gain by it."""
        if attention.mask is not None or attention.softcap is not None or not _may_change_scores(context):
            return False
        total = add_mask(attention, context.position)
        if total is not None:
            because = "attention without a position reads one mask, which all layers share"
            decision = Decision("a mask of 0 and -inf for a position", because)
            self.record(context, [id_of(total), id_of(attention.output)], decision)
        return total is not None

    def _attention(self, output: logical.MatmulOp, context: FusionContext) -> Attention | None:
        """What `output` is the last product of; what is nearly an attention is recorded with what is in the way."""
        try:
            return attention_ending_in(output)
        except NoAttention as error:
            if error.scores is None:
                return None
            if self._join_masks(error, output, context):
                return self._attention(output, context)
            subjects = [id_of(output), id_of(error.scores)]
            self.record(context, subjects, Decision("not fused", str(error)))
            return None

    def _join_masks(self, error: NoAttention, output: logical.MatmulOp, context: FusionContext) -> bool:
        """Whether the scores had two masks, which are one now; only where a kernel may gain by it."""
        if error.scores is None or error.logits is None or not _may_change_scores(context):
            return False
        found = two_masks(error.logits, error.scores)
        if found is None or not context.may_be_one((found.inner, found.outer)):
            return False
        total = join(found, context.position)
        context.renumber()
        because = "their sum follows from no score, and attention reads one mask"
        self.record(context, [id_of(total), id_of(output)], Decision("one mask of two", because))
        return True

    def subjects(self, match: _Match) -> Sequence[str]:
        return [id_of(match.attention.output), id_of(match.attention.scores)]

    def obstacle(self, match: _Match, context: FusionContext) -> str | None:
        if not context.may_be_one(match.members):
            return OTHER_GROUPS
        return why_in_memory(match.members, [match.attention.output])

    def candidates(self, match: _Match, context: FusionContext) -> Iterator[Candidate]:
        """With the writes of a row into keys and values, if there are such; then without. Each with as many of the
        views after it as its strides express, then with fewer."""
        kinds = _CACHED if match.attention.is_cached else _PLAIN
        yield from _steps(match, context, _STEPS[kinds])
        for chain in chains_after(match.attention.output):
            yield from _whole(match, chain, context, kinds)

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        because = "scores and probabilities stay on chip, and no head is moved"
        if len(plan.results) > 1:
            because += "; the new token's row is written on the way"
        turned = {op for turn in _turns(match.attention) for op in turn.ops}
        if turned and turned.issubset(plan.members):
            because += ", and it and the query are turned by their position"
        return Decision(f"one kernel for {len(plan.members)} ops", because)

    def form(
        self, match: _Match, plans: Iterable[Outline], tried: Mapping[str, str], context: FusionContext
    ) -> None:
        plans = list(plans)
        for plan in plans:
            # The body no longer has the views after the product, so its value takes the product's name.
            plan.results[0].name_hint = match.attention.output.result.name_hint
        super().form(match, plans, tried, context)

    def clean_up(self, context: FusionContext) -> None:
        """Takes out what follows from coordinates and was copied into all of its readers."""
        for op in reversed(list(context.function.body.block.ops)):
            if op.results and is_iota_like(op.results[0]) and op.results[0].first_use is None:
                context.function.body.block.erase_op(op)
                del context.position[op]


def _whole(
    match: _Match, chain: Sequence[Operation], context: FusionContext, kinds: Sequence[str]
) -> Iterator[Candidate]:
    """The attention with the views `chain` after it."""
    ops = [*match.members, *chain]
    plan = outline(ops, context.group_id(ops), [ops[-1].results[0]])
    _use_equal_batches(plan.body)
    split_batches(plan.body)
    _use_kernel_layout(plan.body)
    yield Candidate(label([match.attention.output, *chain]), plan, kinds)


def _may_change_scores(context: FusionContext) -> bool:
    """Whether masks may be rewritten for a kernel of attention, by the policy and the target."""
    if context.policy.rounding == "strict" or context.policy.forbids_fusion("attention"):
        return False
    return context.why_none_of(_PLAIN) is None


def _steps(match: _Match, context: FusionContext, kinds: Sequence[str]) -> Iterator[Candidate]:
    """The attention with the writes of a row into its keys and values; none where there are no such writes."""
    attention, members = match.attention, match.members
    if (writes := row_writes(attention)) is None:
        return
    written = [write.write for write in writes]
    because = context.why_none_of(kinds)
    if because is None and not context.may_be_one((*written, *members)):
        because = OTHER_GROUPS
    if because is not None:
        yield Candidate(label(written), None, obstacle=because)
        return
    if kinds == _STEPS[_CACHED] and (turns := _turns(attention)):
        turned = [op for turn in turns for op in turn.ops]
        if context.may_be_one((*turned, *written, *members)):
            turning = [op for turn in turns for op in (*turn.ops, *turn.views)]
            yield from _steps_of(match, context, kinds, writes, turning)
        else:
            yield Candidate(label([*turned, *written]), None, obstacle=OTHER_GROUPS)
    yield from _steps_of(match, context, kinds, writes, ())


def _turns(attention: Attention) -> Sequence[Rotation]:
    """What turns the queries and the new key of a step; empty if it is no step, or either is given."""
    writes = row_writes(attention)
    return () if writes is None else rotations(attention, writes) or ()


def _steps_of(
    match: _Match,
    context: FusionContext,
    kinds: Sequence[str],
    writes: Sequence[RowWrite],
    turning: Sequence[Operation],
) -> Iterator[Candidate]:
    """The attention with these writes, and with the ops that turn its queries and its new key."""
    members, output = match.members, match.attention.output
    written = [write.write for write in writes]
    first = [op for write in writes for op in (write.write, *write.views)]
    other_views = [op for write in writes for op in write.other_views]
    rest = [op for op in members if op is not output and op not in first]
    results = [write.result for write in writes]
    for chain in chains_after(output):
        # The group takes the place of the output, which stands after all producers of the group's operands.
        whole = [*turning, *first, *rest, *other_views, output, *chain]
        # A raised program lists the group with what turns and writes, which come first there.
        name = context.group_id([*members, *written, *turning])
        plan = outline(whole, name, [whole[-1].results[0], *results])
        _use_kernel_layout(plan.body)
        move_after_views(plan.body)
        if turning:
            turn_by_heads(plan.body)
        for write in writes:
            write.result.name_hint = write.write.result.name_hint
        yield Candidate(label([output, *chain]), plan, kinds)


def _use_equal_batches(body: Block) -> None:
    """Repeats operands of the products that have fewer batch elements than the other, as views."""
    for product in [op for op in body.ops if isinstance(op, logical.MatmulOp)]:
        batch = tensor_info(product.result.type).shape[:-2]
        for index, value in enumerate(product.operands):
            if tensor_info(value.type).shape[:-2] != batch:
                product.operands[index] = _repeated(value, batch, product, body)


def _repeated(value: SSAValue, batch: tuple[int, ...], reader: Operation, body: Block) -> SSAValue:
    """Inserts `value` repeated over the batch dims `batch` before `reader`. Of a multiplication it repeats the operands
    instead."""
    info = tensor_info(value.type)
    shape = (*batch, *info.shape[-2:])
    if isinstance(value, OpResult) and isinstance(value.op, logical.MulOp):
        made = logical.MulOp(*(_repeated(operand, batch, reader, body) for operand in value.op.operands))
        made.attributes |= value.op.attributes
    elif isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp):
        made = logical.ConstantOp(value.op.array, tensor(shape, info.element))
    else:
        made = logical.BroadcastOp(value, range(len(shape) - info.rank, len(shape)), shape)
    body.insert_op_before(made, reader)
    made.results[0].name_hint = value.name_hint
    return made.results[0]


def _use_kernel_layout(body: Block) -> None:
    """Turns transpose flags of the products into views of their operands, except for keys, which are read by rows."""
    products = [op for op in body.ops if isinstance(op, logical.MatmulOp)]
    for index, product in enumerate(products):
        wants_b = index == 0
        lhs, rhs = product.operands
        if product.transpose_a is not None:
            lhs = _swapped(lhs, product, body)
        if (product.transpose_b is not None) != wants_b:
            rhs = _swapped(rhs, product, body)
        if (lhs, rhs) == tuple(product.operands):
            continue
        made = logical.MatmulOp(lhs, rhs, transpose_b=wants_b)
        made.attributes |= product.attributes
        made.result.name_hint = product.result.name_hint
        body.insert_op_before(made, product)
        product.result.replace_all_uses_with(made.result)
        product.detach()
        product.erase()
    for op in reversed(list(body.ops)):
        if op.results and op.results[0].first_use is None:
            body.erase_op(op)  # a multiple of keys that is one of other views of them now


def _swapped(value: SSAValue, reader: Operation, body: Block) -> SSAValue:
    """Inserts `value` with its last two dims swapped before `reader`. Of a multiplication it swaps the dims of each
    operand instead, as views stand before all ops that compute."""
    if isinstance(value, OpResult) and isinstance(value.op, logical.MulOp):
        made = logical.MulOp(*(_swapped(operand, reader, body) for operand in value.op.operands))
        made.attributes |= value.op.attributes
    elif isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp):
        info = tensor_info(value.type)
        swapped = (*info.shape[:-2], info.shape[-1], info.shape[-2])
        made = logical.ConstantOp(value.op.array, tensor(swapped, info.element))
    else:
        rank = tensor_info(value.type).rank
        made = logical.TransposeOp(value, [*range(rank - 2), rank - 1, rank - 2])
    body.insert_op_before(made, reader)
    made.results[0].name_hint = value.name_hint
    return made.results[0]
