"""`fold-masks`: attention masks that follow from coordinates alone become the causal flag, or nothing.

Others lose the parts that do, and are read before they are repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects.logical import AndOp, AttentionOp, BroadcastOp, LogicalOp, SelectOp
from aicf.dialects.types import tensor_info
from aicf.passes.support.identity import op_id, replace_with_op, replace_with_value
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import WorksOn
from aicf.semantics import evaluate

Array = NDArray[Any]
MAX_ELEMENTS = 1 << 24
"""Largest value that is evaluated."""


@dataclass(frozen=True)
class FoldMasksPass(ModulePass):
    """Evaluates masks of attention that depend on no input, and replaces those that kernels have a word for.

    Models that are traced write a causal mask as comparisons of positions, often with more that turns out to be true
    everywhere. A mask of truth values that hides exactly the keys after the query, or a number of them later, becomes
    `causal`; one that hides nothing is dropped. So is a select that replaces the results of queries that see no key,
    where there are none. Of another mask, a part that hides nothing is left out (`seen & true`), and one that is the
    same for all queries or heads is read with size 1 there, so that kernels load it once for all.
    """

    name = "fold-masks"
    works_on = WorksOn(("logical.attention",))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            attentions = [each for each in function.walk() if isinstance(each, AttentionOp)]
            if any(each.mask is not None for each in attentions):
                folder = _Folder(op, _Known(function))
                for attention in attentions:
                    folder.fold(attention)


@dataclass
class _Folder:
    module: ModuleOp
    known: _Known

    def fold(self, attention: AttentionOp) -> None:
        """Replaces the mask of an attention, and selects of its result."""
        for use in list(attention.result.uses):
            if isinstance(use.operation, SelectOp):
                self._fold_select(use.operation)
        if attention.mask is not None and not self._fold_whole(attention, attention.mask):
            self._narrow(attention, attention.mask)

    def _fold_whole(self, attention: AttentionOp, mask: SSAValue) -> bool:
        """Replaces a mask that kernels have a word for; whether it was one."""
        seen = self.known.value(mask) if attention.causal is None else None
        if seen is None or seen.dtype != np.bool_:
            return False
        if seen.all():
            self._replace(attention, None, "no mask", "it follows from coordinates alone, and hides no key")
            return True
        if (past := _causal_past(seen, attention)) is None:
            return False
        because = "it follows from coordinates alone, and hides exactly the keys that come after the query"
        self._replace(attention, past, "causal", because)
        return True

    def _narrow(self, attention: AttentionOp, mask: SSAValue) -> None:
        """Replaces a mask by the least that it is made of."""
        least = self._least_of(mask)
        if least is mask:
            return
        before, after = (tensor_info(value.type).shape_text for value in (mask, least))
        because = f"the mask of {before} repeats it, and what else it has follows from coordinates and hides nothing"
        self._put(
            attention,
            attention.of_operands(*attention.operands[:3], least, attention.position),
            f"a mask of {after}",
            because,
        )

    def _least_of(self, mask: SSAValue) -> SSAValue:
        """What a mask is made of by repetition and by parts that are true everywhere."""
        while True:
            owner = mask.owner
            if isinstance(owner, AndOp):
                rest = [part for part in owner.operands if not self._is_true(part)]
                if len(rest) != 1:
                    return mask
                mask = rest[0]
            elif isinstance(owner, BroadcastOp) and _is_of_scores(owner):
                mask = owner.operand
            else:
                return mask

    def _is_true(self, mask: SSAValue) -> bool:
        value = self.known.value(mask)
        return value is not None and value.dtype == np.bool_ and bool(value.all())

    def _replace(self, attention: AttentionOp, past: int | None, choice: str, because: str) -> None:
        new = AttentionOp(
            attention.query,
            attention.key,
            attention.value,
            scale=None if attention.scale is None else attention.scale.value.data,
            causal=past is not None,
            past=past or 0,
            softcap=None if attention.softcap is None else attention.softcap.value.data,
            empty_as_zero=attention.empty_as_zero is not None,
        )
        self._put(attention, new, choice, because)

    def _put(self, attention: AttentionOp, new: AttentionOp, choice: str, because: str) -> None:
        new.result.name_hint = attention.result.name_hint
        record_decision(
            self.module, FoldMasksPass.name, [op_id(attention) or attention.name], choice, because
        )
        replace_with_op(PatternRewriter(attention), attention, new)

    def _fold_select(self, select: SelectOp) -> None:
        condition, on_true, on_false = select.operands
        chosen = self.known.value(condition)
        if chosen is None or not (chosen.all() or not chosen.any()):
            return
        because = "what it chooses by follows from coordinates alone, and is the same everywhere"
        subject = op_id(select) or select.name
        record_decision(self.module, FoldMasksPass.name, [subject], "dropped", because)
        replace_with_value(PatternRewriter(select), select, on_true if chosen.all() else on_false)


def _is_of_scores(repeated: BroadcastOp) -> bool:
    """Whether attention can repeat the operand itself: one of rank 2 or more, whose last dimensions stay the last."""
    rank, total = tensor_info(repeated.operand.type).rank, tensor_info(repeated.result.type).rank
    return rank >= 2 and tuple(repeated.dimensions.get_values()) == tuple(range(total - rank, total))


def _causal_past(seen: Array, attention: AttentionOp) -> int | None:
    """The number of keys before the first query where `seen` hides exactly those after the query; None if it hides
    others."""
    rows, columns = tensor_info(attention.query.type).shape[-2], tensor_info(attention.key.type).shape[-2]
    if seen.shape[-2:] != (rows, columns):
        return None
    past = int(seen.reshape(-1, rows, columns)[0, 0].sum()) - 1
    if past < 0 or not np.array_equal(np.broadcast_to(_causal(rows, columns, past), seen.shape), seen):
        return None
    return past


def _causal(rows: int, columns: int, past: int) -> Array:
    return np.arange(columns)[None, :] <= np.arange(rows)[:, None] + past


@dataclass
class _Known:
    """Values of a function that depend on no argument."""

    function: FuncOp
    _values: dict[SSAValue, Array | None] = field(default_factory=dict[SSAValue, Array | None])

    def value(self, wanted: SSAValue) -> Array | None:
        """The value; None if it depends on an argument, is too large, or is not known when compiling."""
        stack = [wanted]
        while stack:
            value = stack[-1]
            if value in self._values:
                stack.pop()
                continue
            owner = value.owner
            if not isinstance(owner, LogicalOp) or not _is_small(owner):
                self._values[value] = None
                continue
            waiting = [operand for operand in owner.operands if operand not in self._values]
            if waiting and all(self._values.get(operand, True) is not None for operand in owner.operands):
                stack.append(waiting[0])
                continue
            self._values.update(zip(owner.results, self._evaluated(owner), strict=True))
        return self._values[wanted]

    def _evaluated(self, op: Operation) -> list[Array | None]:
        operands = [self._values.get(operand) for operand in op.operands]
        given = [operand for operand in operands if operand is not None]
        if len(given) < len(operands):
            return [None] * len(op.results)
        return list(evaluate(op, given, "typed"))


def _is_small(op: LogicalOp) -> bool:
    infos = [tensor_info(result.type) for result in op.results]
    return all(info.is_static and math.prod(info.shape) <= MAX_ELEMENTS for info in infos)
