"""Which keys are seen by a position: comparisons that all layers of a decoder share.

Where a position is an operand they follow from coordinates and from one number, so that a kernel for it makes them
itself: then each attention gets copies of its own, which are not written to memory for the others. For kernels that
know no position the comparisons become a mask that is added, made once for all attentions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.bodies.attention import Attention
from aicf.passes.bodies.matching import is_iota_like, splat_number
from aicf.passes.support.identity import derived_id, op_id, set_identity, sources, value_hint

_BIAS = "bias"
"""Part of the id of a mask of 0 and -inf."""


def own_copies_of_mask(attention: Attention) -> bool:
    """Copies what says which keys `attention` sees by a position, where others read it too; whether there was any."""
    if attention.position is None or (mask := _mask_of(attention)) is None:
        return False
    shared = _shared(mask.condition, mask)
    if shared:
        given = mask.condition
        mask.operands[0] = _copied(given, mask, {})
        _erase_unread(given)
    return shared


def _erase_unread(value: SSAValue) -> None:
    """Erases what computes a value that nothing reads any more, and what is unread then."""
    if _is_computed(value) and not value.uses:
        assert isinstance(value, OpResult) and value.op.parent is not None
        operands = set(value.op.operands)
        value.op.parent.erase_op(value.op)
        for operand in operands:
            _erase_unread(operand)


def _mask_of(attention: Attention) -> logical.SelectOp | None:
    """The select of -inf where a key is not seen: the first one after the product of queries and keys."""
    value: SSAValue = attention.scores.result
    while (readers := [use.operation for use in value.uses]) and len(readers) == 1:
        if isinstance(readers[0], logical.SelectOp):
            return readers[0]
        value = readers[0].results[0]
    return None


def _shared(value: SSAValue, mask: Operation) -> bool:
    """Whether something else reads `value`, or what it is computed of, besides coordinates and constants, or did before
    equal ops became one."""
    if not _is_computed(value):
        return False
    assert isinstance(value, OpResult)
    users = {use.operation for use in value.uses}
    is_read = len(users) > 1 and not _is_inside(users)
    was_read = _own_sources(value.op, mask) != list(sources(value.op))
    return is_read or was_read or any(_shared(operand, mask) for operand in value.op.operands)


def _own_sources(op: Operation, mask: Operation) -> list[str]:
    """The ops of the model that an op stands for where it computes `mask` alone."""
    own = [source for source in sources(op) if source in sources(mask)]
    return own or list(sources(op))


def _is_inside(users: set[Operation]) -> bool:
    """Whether all users of the last key are the two ends of one window."""
    ends = {use.operation for user in users for use in user.results[0].uses}
    return all(isinstance(user, logical.SubOp | logical.CompareOp) for user in users) and len(ends) <= 2


def _is_computed(value: SSAValue) -> bool:
    """Whether a value is computed element by element, and not of coordinates alone."""
    return isinstance(value, OpResult) and value.op.has_trait(logical.Elementwise) and not is_iota_like(value)


def _copied(value: SSAValue, reader: Operation, known: dict[SSAValue, SSAValue]) -> SSAValue:
    """A copy of `value`, and of what it is computed of, before `reader`."""
    if not _is_computed(value):
        return value
    if value not in known:
        assert isinstance(value, OpResult) and reader.parent is not None
        operands = [_copied(operand, reader, known) for operand in value.op.operands]
        copy = value.op.clone()
        copy.operands = operands
        identity = _identity(value.op, reader)
        set_identity(copy, identity, _own_sources(value.op, reader))
        copy.results[0].name_hint = None if identity is None else value_hint(identity)
        reader.parent.insert_op_before(copy, reader)
        known[value] = copy.results[0]
    return known[value]


def _identity(op: Operation, reader: Operation) -> str | None:
    """The id of the copy of an op that a mask reads."""
    name, stem = op_id(op), op_id(reader)
    return None if name is None or stem is None else _copy_id(name, stem)


def _copy_id(name: str, mask: str) -> str:
    """The mask's id with the last part of the id of what is copied."""
    return derived_id(mask, name.partition("@")[0].rpartition(".")[2])


def mask_ids(module: ModuleOp, ids: Sequence[str]) -> Iterator[str]:
    """The ids that ops of masks may get here, from those of the module."""
    for op in module.walk():
        if isinstance(op, logical.SelectOp) and (mask := op_id(op)) is not None:
            yield derived_id(mask, _BIAS)
            yield from (_copy_id(name, mask) for name in ids)


def add_mask(attention: Attention, position: Mapping[Operation, int]) -> logical.AddOp | None:
    """Adds 0 to the scores of the keys that are seen and -inf to those of others, in place of a choice between them;
    the sum, or None if there was no choice.

    Args:
        position: Of the ops of the function, in text order: a mask that another attention made is read again.
    """
    if (mask := _mask_of(attention)) is None:
        return None
    _, scores, hidden = mask.operands
    assert mask.parent is not None
    bias = _known_bias(mask, hidden, position) or _bias(mask, hidden)
    total = logical.AddOp(scores, bias)
    total.attributes |= mask.attributes
    total.result.name_hint = mask.result.name_hint
    mask.parent.insert_op_before(total, mask)
    mask.result.replace_all_uses_with(total.result)
    mask.parent.erase_op(mask)
    return total


def _known_bias(
    mask: logical.SelectOp, hidden: SSAValue, position: Mapping[Operation, int]
) -> SSAValue | None:
    """0 and the same number as `hidden`, by the same comparisons, that stands before `mask`."""
    for use in mask.condition.uses:
        op = use.operation
        if not isinstance(op, logical.SelectOp) or position.get(op, len(position)) > position[mask]:
            continue
        same = splat_number(op.on_true) == 0 and splat_number(op.on_false) == splat_number(hidden)
        if same and op.result.type == mask.result.type:
            return op.result
    return None


def _bias(mask: logical.SelectOp, hidden: SSAValue) -> SSAValue:
    """0 where a key is seen, else what `hidden` is."""
    info, name = tensor_info(mask.result.type), op_id(mask)
    seen = logical.ConstantOp(0.0, tensor(info.sizes, info.element))
    bias = logical.SelectOp(mask.condition, seen.result, hidden)
    assert mask.parent is not None
    for op, part in ((seen, "zero"), (bias, _BIAS)):
        identity = None if name is None else derived_id(name, part)
        set_identity(op, identity, sources(mask))
        op.result.name_hint = None if identity is None else value_hint(identity)
        mask.parent.insert_op_before(op, mask)
    return bias.result
