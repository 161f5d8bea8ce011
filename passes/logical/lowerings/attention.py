"""Attention as products with a softmax between them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering


def _attention(lower: Lowering, op: logical.AttentionOp) -> SSAValue:
    """matmul, mul, the cap of the scores, the mask's add, the causal select, softmax, matmul."""
    q, k, v = _grouped(lower, op)
    scores = lower.add(logical.MatmulOp(q, k, transpose_b=True), "scores")
    scores = lower.apply(logical.MulOp, scores, op.factor, name="scaled")
    if op.softcap is not None:
        scores = _capped(lower, scores, op.softcap.value.data)
    if op.mask is not None:
        scores = lower.apply(logical.AddOp, scores, _bias(lower, op.mask, scores), name="masked")
    if op.causal is not None:
        scores = _causal(lower, scores, op)
    last, empty_as_zero = tensor_info(scores.type).rank - 1, op.empty_as_zero is not None
    weights = lower.add(logical.SoftmaxOp(scores, last, empty_as_zero=empty_as_zero), "softmax")
    output = lower.add(logical.MatmulOp(weights, v), "output")
    return lower.reshape(output, op.info.sizes, "heads")


def _grouped(lower: Lowering, op: logical.AttentionOp) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Queries, keys and values with one head for each: keys and values are repeated, as views, if they have fewer."""
    q, k, v = op.query, op.key, op.value
    sizes, heads, groups = (
        tensor_info(q.type).sizes,
        tensor_info(q.type).sizes[-3],
        tensor_info(k.type).sizes[-3],
    )
    if heads == groups:
        return q, k, v
    assert isinstance(heads, int) and isinstance(groups, int)
    batch = (*sizes[:-3], groups, heads // groups)
    q = lower.reshape(q, (*batch, *sizes[-2:]), "query.groups")
    return q, _repeated(lower, k, batch, "key.groups"), _repeated(lower, v, batch, "value.groups")


def _repeated(lower: Lowering, value: SSAValue, batch: Sequence[Size], suffix: str) -> SSAValue:
    sizes = (*batch, *tensor_info(value.type).sizes[-2:])
    dims = [dim for dim in range(len(sizes)) if dim != len(batch) - 1]
    return lower.broadcast(value, dims, sizes, suffix)


def _bias(lower: Lowering, mask: SSAValue, scores: SSAValue) -> SSAValue:
    """What is added to the scores: the mask, or -inf where it is false, in the shape of the scores."""
    info = tensor_info(mask.type)
    if info.element.kind == "bool":
        type_ = tensor_info(scores.type).element
        hidden = lower.add(logical.ConstantOp(float("-inf"), tensor(info.sizes, type_)), "hidden")
        seen = lower.add(logical.ConstantOp(0.0, tensor(info.sizes, type_)), "seen")
        mask = lower.add(logical.SelectOp(mask, seen, hidden), "bias")
    return _spread(lower, mask, scores)


def _spread(lower: Lowering, mask: SSAValue, scores: SSAValue) -> SSAValue:
    """The mask in the shape of the scores, whose head dimension is two if keys serve several heads of queries."""
    info, wanted = tensor_info(mask.type), tensor_info(scores.type).sizes
    sizes = list(info.sizes)
    if len(sizes) >= 3 and len(wanted) > lower.op.info.rank:
        # The dimension of heads comes apart as that of the scores did.
        split = [1, 1] if sizes[-3] == 1 else list(wanted[-4:-2])
        sizes[-3:-2] = split
        mask = lower.reshape(mask, sizes, "mask.groups")
    dims = range(len(wanted) - len(sizes), len(wanted))
    return lower.broadcast(mask, dims, wanted, "mask.broadcast")


def _capped(lower: Lowering, scores: SSAValue, cap: float) -> SSAValue:
    """Scores that stay between -cap and cap."""
    inner = lower.apply(logical.DivOp, scores, cap, name="uncapped")
    return lower.apply(logical.MulOp, lower.add(logical.TanhOp(inner), "bounded"), cap, name="capped")


def _causal(lower: Lowering, scores: SSAValue, op: logical.AttentionOp) -> SSAValue:
    """-inf where the key comes after the query, or before its window."""
    info, position = tensor_info(scores.type), op.position
    counting = "i32" if position is None else tensor_info(position.type).element.name
    rows, columns = (
        lower.add(logical.IotaOp(axis, info.sizes, counting), name)
        for axis, name in ((info.rank - 2, "rows"), (info.rank - 1, "columns"))
    )
    past = op.past.value.data
    if position is not None:
        batch = range(tensor_info(position.type).rank)
        before = lower.broadcast(position, batch, info.sizes, "position")
        last = lower.add(logical.AddOp(rows, before), "last")
    else:
        last = rows if past == 0 else lower.apply(logical.AddOp, rows, past, name="last")
    seen = lower.add(logical.CompareOp("le", columns, last), "seen")
    if op.window is not None:
        before_window = lower.apply(logical.SubOp, last, op.window.value.data, name="before")
        near = lower.add(logical.CompareOp("gt", columns, before_window), "near")
        seen = lower.add(logical.AndOp(seen, near), "visible")
    hidden = lower.splat(float("-inf"), scores, "hidden")
    return lower.add(logical.SelectOp(seen, scores, hidden), "causal")


FORMULAS: Formulas = {
    logical.AttentionOp: _attention,
}
