"""`check-finite`: a step whose loss or gradients are not all finite changes nothing, and its number is kept.

The test is arithmetic like the rest of the step, and so is what it holds back: a device decides it by itself, without
a word to the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects import logical
from aicf.dialects.logical import START_ATTR, LogicalOp
from aicf.dialects.step_names import BAD_STEP, OWN, STEP
from aicf.dialects.types import element_named, element_of, tensor, tensor_info
from aicf.errors import InvalidIR
from aicf.passes.support.identity import (
    IdTable,
    invalid_function,
    name_after,
    op_id,
    position_of,
)
from aicf.passes.support.interface import (
    Result,
    add_argument,
    arguments_of,
    functions,
    results_of,
    set_results,
)
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS
from aicf.passes.support.writing import Writer


@dataclass(frozen=True)
class CheckFinitePass(ModulePass):
    """Adds the meta scalar `aicf.bad_step`: 0, or the number of the first step that was not finite, which stays.

    Looked at are all scalar results, such as the loss, the gradients of optimizers' steps, and the new values of what
    no optimizer updates (but not of what a training step keeps of its own, `aicf.*`). While the flag is set every
    update, counters included, is the value as it was. Setting it to 0 lets the steps go on. The step is the new value
    of the meta `step`; without it the pass raises InvalidIR.
    """

    name = "check-finite"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids = IdTable(op)
        steps = [each for each in functions(op) if any(result.updates for result in results_of(each))]
        if not steps:
            raise InvalidIR(
                "check-finite holds updates back, and no function of the module updates anything; leave it out",
                location=position_of(op),
            )
        for function in steps:
            checked = _check(function, ids)
            record_decision(
                op,
                self.name,
                [function.sym_name.data, *checked],
                f"updates held back by {BAD_STEP}",
                f"{len(checked)} values are tested: 0 times what is finite is 0, and no number else",
            )


def _check(function: func.FuncOp, ids: IdTable) -> list[str]:
    """Writes test, flag and choices of one function; gives the ids of what is tested."""
    results, arguments = results_of(function), arguments_of(function)
    if BAD_STEP in arguments:
        raise invalid_function(function, f"has '{BAD_STEP}' already; run check-finite once")
    now = next((result.value for result in results if result.updates == STEP), None)
    if now is None or not isinstance(now, OpResult) or now.type != tensor([], "i64"):
        raise invalid_function(
            function, f"check-finite names a bad step by its number; let an i64 result update '{STEP}'"
        )
    assert isinstance(now.op, LogicalOp)
    writer = _Check(now.op, function, ids)
    tested = list(dict.fromkeys(_tested(results)))
    start = logical.ConstantOp(0, tensor([], "i64")).value
    flag = add_argument(function, BAD_STEP, "meta", tensor([], "i64"), {START_ATTR: start})
    bad = writer.flag(flag, writer.are_finite(tested), now)
    fine = writer.equal(bad, 0, "fine")
    kept = [writer.held_back(result, fine, arguments) for result in results]
    update = Result(bad, {logical.UPDATES_ATTR: StringAttr(BAD_STEP)})
    set_results(function, [*kept, update])
    return [_subject(value) for value in tested]


def _tested(results: Sequence[Result]) -> Iterator[SSAValue]:
    """The loss and other scalars that are given, gradients, and new values that come from no optimizer."""
    for result in results:
        value = result.value
        if not element_of(value.type).is_float:
            continue
        if result.updates is None:
            if not tensor_info(value.type).rank:
                yield value
        elif isinstance(value.owner, logical.OptimizerOp):
            yield value.owner.gradient
        elif not result.updates.startswith(OWN):
            yield value


def _subject(value: SSAValue) -> str:
    """The id of what gives the value, or what the text calls it."""
    identity = op_id(value.owner) if isinstance(value.owner, Operation) else None
    return identity or value.name_hint or "argument"


def _elements(value: SSAValue) -> int:
    return math.prod(tensor_info(value.type).shape)


def _alignment(value: SSAValue) -> int:
    """The largest power of two that divides the number of elements."""
    return _elements(value) & -_elements(value)


class _Check(Writer):
    """Writes before the return, on behalf of the op that counts the step and of those that are held back."""

    def __init__(self, counter: LogicalOp, function: func.FuncOp, ids: IdTable) -> None:
        self.op = counter
        self._counter = counter
        returned = function.body.block.last_op
        assert returned is not None
        self._before = returned
        self._ids = ids

    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        """Adds an op called `<id of the op it is for>.<suffix>`."""
        name_after(op, self.op, suffix, self._ids)
        Rewriter.insert_op(op, InsertPoint.before(self._before))
        return op.result

    def _on_behalf_of(self, value: SSAValue) -> None:
        self.op = value.owner if isinstance(value.owner, LogicalOp) else self._counter

    def equal(self, value: SSAValue, number: float, name: str) -> SSAValue:
        """Whether a scalar is a number, as i1."""
        return self.add(logical.CompareOp("eq", value, self.splat(number, value, "zero")), name)

    def are_finite(self, values: Sequence[SSAValue]) -> SSAValue:
        """Whether all elements of all values are finite, as one i1."""
        total: SSAValue | None = None
        for value in self._joined(values):
            nothing = self._nothing(value)
            total = nothing if total is None else self.apply(logical.AddOp, total, nothing, name="nothing")
        self.op = self._counter
        assert total is not None
        return self.equal(total, 0, "finite")

    def _joined(self, values: Sequence[SSAValue]) -> Iterator[SSAValue]:
        """The numbers as they are, and the tensors of one element type as one, which is read by one instruction.

        Tensors lie side by side, those first whose sizes keep what comes after them aligned. So most are written
        straight to their offset, see `elide-concats`.
        """
        by_type: dict[str, list[SSAValue]] = {}
        for value in values:
            if tensor_info(value.type).rank:
                by_type.setdefault(element_of(value.type).name, []).append(value)
            else:
                yield value
        for tensors in by_type.values():
            flat = [self._flat(value) for value in sorted(tensors, key=_alignment, reverse=True)]
            self.op = self._counter
            yield self.add(logical.ConcatOp(flat, 0), "tested") if len(flat) > 1 else flat[0]

    def _flat(self, value: SSAValue) -> SSAValue:
        self._on_behalf_of(value)
        return self.add(logical.ReshapeOp(value, [_elements(value)]), "flat")

    def _nothing(self, value: SSAValue) -> SSAValue:
        """0 as f32, or NaN if an element is infinite or NaN."""
        zeros = self.apply(logical.MulOp, value, 0.0, name="nothing")
        if axes := range(tensor_info(value.type).rank):
            zeros = self.add(logical.ReduceSumOp(zeros, axes), "nothing")
        return self.cast(zeros, element_named("f32"), "nothing")

    def flag(self, old: SSAValue, finite: SSAValue, now: SSAValue) -> SSAValue:
        """The flag after this step: as it was if it is set, else 0 or the step's number."""
        nothing = self.splat(0, now, "zero")
        found = self.add(logical.SelectOp(finite, nothing, now), "found")
        return self.add(logical.SelectOp(self.equal(old, 0, "going"), found, old), "bad")

    def held_back(self, result: Result, fine: SSAValue, arguments: Mapping[str, SSAValue]) -> Result:
        """The result, or the old value of what it updates where the flag is set."""
        if result.updates is None:
            return result
        self._on_behalf_of(result.value)
        sizes = tensor_info(result.value.type).sizes
        condition = self.broadcast(fine, (), sizes, "fine")
        choice = logical.SelectOp(condition, result.value, arguments[result.updates])
        return result.with_value(self.add(choice, "held"))
