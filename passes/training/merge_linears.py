"""`merge-linears`: linears of one operand become one, so that their gradients are those of one product."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.dependents import Dependents
from aicf.passes.bodies.matching import without_casts
from aicf.passes.bodies.outlining import id_of
from aicf.passes.logical.weighted_products import move_casts_before
from aicf.passes.support.identity import IdTable, merge_sources, name_after, replace_with_op
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import policy_of, with_stems
from aicf.passes.support.works_on import WorksOn
from aicf.passes.training.differentiate import passes_to

ROW_BYTES = 16
"""What kernels copy in bulk begins at multiples of it."""


@dataclass(frozen=True)
class MergeLinearsPass(ModulePass):
    """Puts weights and biases of linears that read one operand side by side, and gives each reader its slice.

    It runs before `differentiate`. Slices that cover a value pass back one concatenation, so all weights have one
    product as their gradient, all biases one sum, and the operand one product in place of a sum of several. Weights
    are casts of trained parameters, as in mixed precision: casts are written side by side without a copy, and so are
    the gradients of what reads the slices. Other linears stay apart, and the ledger says why.
    """

    name = "merge-linears"
    works_on = WorksOn(("logical.gradient",))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if gradients := [each for each in function.walk() if isinstance(each, logical.GradientOp)]:
                _Function(op, function, gradients).merge()


@dataclass
class _Set:
    """Linears that may be one, in text order, and what depends on the first of them."""

    linears: list[logical.LinearOp]
    follows: Dependents

    def may_take(self, linear: logical.LinearOp, losses: _Losses) -> str | None:
        """Why a linear stays apart from them; None if it need not."""
        first = self.linears[0]
        if losses.of(first) != losses.of(linear):
            return "other losses depend on one than on the other"
        if (first.bias is None) != (linear.bias is None):
            return "one has a bias and the other has none; give both one to merge them"
        product = self.follows.contraction_before(linear)
        if product is not None:
            return (
                f"'{id_of(product)}', a product between them, follows from the first: the second one's result would "
                f"be kept in memory while it runs; compute '{id_of(linear)}' before '{id_of(product)}' to merge them"
            )
        return None


class _Losses:
    """Which losses pass something back to which values."""

    def __init__(self, function: func.FuncOp, losses: Collection[SSAValue]) -> None:
        self._by_value: dict[SSAValue, frozenset[SSAValue]] = {loss: frozenset((loss,)) for loss in losses}
        for op in reversed(list(function.body.block.ops)):
            found = frozenset[SSAValue]().union(*map(self._known, op.results))
            for index, operand in enumerate(op.operands if found else ()):
                if passes_to(op, index):
                    self._by_value[operand] = self._known(operand) | found

    def of(self, linear: logical.LinearOp) -> frozenset[SSAValue]:
        """Those of a linear's result."""
        return self._known(linear.result)

    def _known(self, value: SSAValue) -> frozenset[SSAValue]:
        return self._by_value.get(value, frozenset())


@dataclass
class _Function:
    """The linears of one function.

    Args:
        gradients: Those that the function has.
    """

    module: ModuleOp
    function: func.FuncOp
    gradients: Sequence[logical.GradientOp]
    ids: IdTable = field(init=False)
    losses: _Losses = field(init=False)
    trained: frozenset[SSAValue] = field(init=False)
    listed: frozenset[str] = field(init=False)
    """Ids that a policy has in its groups."""
    joined: dict[tuple[SSAValue, ...], SSAValue] = field(default_factory=dict[tuple[SSAValue, ...], SSAValue])
    """Values to their concatenation: layers that share their weights read one."""

    def __post_init__(self) -> None:
        self.ids = IdTable(self.module)
        self.losses = _Losses(self.function, [gradient.loss for gradient in self.gradients])
        self.trained = frozenset(gradient.by for gradient in self.gradients)
        self.listed = frozenset(id_ for ids in policy_of(self.module).groups for id_ in ids)

    def merge(self) -> None:
        """Merges what may be merged; the ledger has each decision."""
        for linears in self._of_one_operand():
            if not policy_of(self.module).fusion.horizontal:
                self._keep(linears, "products side by side are off by policy (fusion.horizontal)")
                continue
            for found in self._sets(linears):
                if len(found) > 1:
                    self._merge(found)

    def _of_one_operand(self) -> Iterator[Sequence[logical.LinearOp]]:
        """The linears that do not read their operand alone, operand by operand."""
        by_operand: dict[SSAValue, list[logical.LinearOp]] = {}
        for op in self.function.body.block.ops:
            if isinstance(op, logical.LinearOp):
                by_operand.setdefault(op.operand, []).append(op)
        yield from (linears for linears in by_operand.values() if len(linears) > 1)

    def _sets(self, linears: Sequence[logical.LinearOp]) -> list[list[logical.LinearOp]]:
        """Those that may be one; each that stays apart is noted."""
        sets: list[_Set] = []
        for linear in linears:
            if (reason := self._own_reason(linear)) is not None:
                self._keep([linear], reason)
                continue
            reasons = [each.may_take(linear, self.losses) for each in sets]
            if None in reasons:
                sets[reasons.index(None)].linears.append(linear)
                continue
            if reasons:
                self._keep([sets[0].linears[0], linear], reasons[0] or "")
            sets.append(_Set([linear], Dependents(linear)))
        return [each.linears for each in sets]

    def _own_reason(self, linear: logical.LinearOp) -> str | None:
        """Why a linear stays apart from whatever else reads its operand; None if it need not."""
        if not self.listed.isdisjoint(with_stems([id_of(linear)])):
            return "the policy lists it in its groups"
        if any(isinstance(use.operation, func.ReturnOp) for use in linear.result.uses):
            return "the program returns its result, which has memory of its own"
        if not tensor_info(linear.result.type).is_static:
            return "its sizes are symbolic: merge it when specialize-shapes has run"
        if not self.losses.of(linear):
            return "no loss depends on it"
        given = {"weight": linear.weight} | ({} if linear.bias is None else {"bias": linear.bias})
        for name, value in given.items():
            if not isinstance(without_casts(value), BlockArgument):
                return f"its {name} is computed of other values: casts of parameters alone are written side by side"
        if without_casts(linear.weight) not in self.trained:
            return "its weight gets no gradient, and would have one computed as part of the others'"
        for name, value in given.items():
            if isinstance(value, BlockArgument):
                return (
                    f"its {name} is a parameter as it is, and would be copied beside the others in every step"
                )
        return _unaligned(linear)

    def _keep(self, linears: Sequence[logical.LinearOp], because: str) -> None:
        record_decision(self.module, MergeLinearsPass.name, list(map(id_of, linears)), "not merged", because)

    def _merge(self, linears: Sequence[logical.LinearOp]) -> None:
        """Writes one linear before the first of them, and slices of its result in their place."""
        first, biases = linears[0], [linear.bias for linear in linears if linear.bias is not None]
        weight = self._joined([linear.weight for linear in linears], linears, "weights")
        bias = self._joined(biases, linears, "biases") if biases else None
        merged = self._write(logical.LinearOp(first.operand, weight, bias), linears, "merged")
        assert isinstance(merged.owner, LogicalOp)
        name = id_of(merged.owner)
        sizes = [tensor_info(linear.result.type).shape for linear in linears]
        starts = accumulate((shape[-1] for shape in sizes), initial=0)
        for linear, shape, start in zip(linears, sizes, starts, strict=False):
            part = logical.SliceOp(merged, [*[0] * (len(shape) - 1), start], shape)
            replace_with_op(PatternRewriter(linear), linear, part)
        record_decision(
            self.module,
            MergeLinearsPass.name,
            [name, *map(id_of, linears)],
            f"one linear for {len(linears)}",
            "they read one operand: the gradients of its weights are one product, and that of the operand is one",
        )

    def _joined(
        self, values: Sequence[SSAValue], linears: Sequence[logical.LinearOp], suffix: str
    ) -> SSAValue:
        """The values side by side, which are casts of parameters: where they stand, the first linear may read them."""
        key = tuple(values)
        if key not in self.joined:
            for value in values:
                move_casts_before(value, linears[0])
            self.joined[key] = self._write(logical.ConcatOp(values, 0), linears, suffix)
        return self.joined[key]

    def _write(self, new: LogicalOp, linears: Sequence[logical.LinearOp], suffix: str) -> SSAValue:
        name_after(new, linears[0], suffix, self.ids)
        merge_sources(new, *linears)
        Rewriter.insert_op(new, InsertPoint.before(linears[0]))
        return new.result


def _unaligned(linear: logical.LinearOp) -> str | None:
    """That the rows of what lies beside the linear's would not begin where kernels copy; None if they do."""
    outputs = tensor_info(linear.weight.type).shape[0]
    row = outputs * element_of(linear.weight.type).bytes
    if row % ROW_BYTES == 0:
        return None
    return (
        f"a row of its {outputs} outputs takes {row} bytes, and kernels copy rows that begin at multiples of "
        f"{ROW_BYTES}"
    )
