"""`differentiate`: the gradients of a loss become ops, by reverse mode.

Griewank and Walther, Evaluating Derivatives, 2008, chapter 3. What each op passes back is in `training/gradients`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.types import element_of
from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.logical.lowerings import FORMULAS
from aicf.passes.logical.lowerings.base import LowerBy
from aicf.passes.support.identity import IdTable, invalid, op_id, position_of, replace_with_value
from aicf.passes.support.interface import functions
from aicf.passes.support.works_on import WorksOn
from aicf.passes.training.gradients import Adjoint, ByFormula, Gradient, Tape, gradient_of
from aicf.passes.training.gradients.totals import total


class NoGradient(AicfError):
    """There are no ops for a gradient; callers may fall back to another source of gradients."""


class NoRule(NoGradient, UnsupportedOp):
    """Nothing says what an op passes back."""


class Unreachable(NoGradient, InvalidIR):
    """The loss passes nothing back to a value.

    Args:
        message, location: See `AicfError`.
        stop: Location of the op that stops the gradient, if there is one.
    """

    def __init__(self, message: str, *, location: str | None = None, stop: str | None = None) -> None:
        super().__init__(message, location=location)
        self.stop = stop


@dataclass(frozen=True)
class DifferentiatePass(ModulePass):
    """Replaces every `logical.gradient` by ops that compute it, after the loss.

    What they read of the forward part is marked by `logical.save`. Raises Unreachable, an InvalidIR, for a value that
    the loss does not depend on, or only in ways that pass nothing back.
    """

    name = "differentiate"
    works_on = WorksOn(("logical.gradient",))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids = IdTable(op)
        for block in [function.body.block for function in functions(op)]:
            while (first := next(_gradients(block), None)) is not None:
                of_one_loss = [gradient for gradient in _gradients(block) if gradient.loss is first.loss]
                _differentiate(of_one_loss, ids)


def _gradients(block: Block) -> Iterator[logical.GradientOp]:
    return (op for op in block.ops if isinstance(op, logical.GradientOp))


def _differentiate(gradients: Sequence[logical.GradientOp], ids: IdTable) -> None:
    loss, roots = gradients[0].loss, [gradient.by for gradient in gradients]
    needed = _needed(loss)
    _write_formulas(needed, roots, gradients[0], ids)
    order = [op for op in _ops_before(gradients[0]) if op in needed]
    active = _active(order, roots)
    found = _backward(order, active, gradients[0], Tape(gradients[0], ids))
    for gradient in gradients:
        if gradient.by not in found:
            message, stop = _why_not(gradient.by, loss, needed)
            wrong = invalid(gradient, message)
            place = None if stop is None else position_of(stop)
            raise Unreachable(wrong.message, location=wrong.location, stop=place)
    rewriter = PatternRewriter(gradients[0])
    for gradient in gradients:
        replace_with_value(rewriter, gradient, found[gradient.by])


def _ops_before(op: Operation) -> Iterator[Operation]:
    block = op.parent
    assert block is not None
    for other in block.ops:
        if other is op:
            return
        yield other


def _needed(loss: SSAValue) -> set[Operation]:
    """All ops that the loss depends on."""
    needed: set[Operation] = set()
    stack = [loss]
    while stack:
        value = stack.pop()
        if isinstance(value, OpResult) and value.op not in needed:
            needed.add(value.op)
            stack.extend(value.op.operands)
    return needed


def _rule_of(op: Operation) -> Gradient:
    """What the op passes back. Raises NoRule if nothing says so."""
    if (gradient := gradient_of(op)) is None:
        name = f"op '{op.label}'" if isinstance(op, logical.CustomOp) else op.name
        raise NoRule(
            f"{name} '{op_id(op)}' has no gradient; take the derivative by values computed after it",
            location=position_of(op),
        )
    return gradient


def _write_formulas(
    needed: set[Operation], roots: Sequence[SSAValue], before: Operation, ids: IdTable
) -> None:
    """Writes ops on the way that pass back what their formula does as that formula; `needed` follows."""
    active = set(roots)
    pending = [op for op in _ops_before(before) if op in needed]
    while pending:
        op = pending.pop(0)
        if not any(operand in active for operand in op.operands):
            continue
        if isinstance(_rule_of(op), ByFormula):
            parts = _expanded(op, ids)
            needed.remove(op)
            needed.update(parts)
            pending[:0] = parts
        else:
            active.update(op.results)


def _expanded(op: Operation, ids: IdTable) -> list[Operation]:
    """The ops of the formula in its place, in order."""
    before, after, block = op.prev_op, op.next_op, op.parent
    assert block is not None
    LowerBy(FORMULAS[type(op)], ids).match_and_rewrite(op, PatternRewriter(op))
    current = block.first_op if before is None else before.next_op
    parts: list[Operation] = []
    while current is not None and current is not after:
        parts.append(current)
        current = current.next_op
    return parts


def passes_to(op: Operation, index: int) -> bool:
    """Whether the op passes anything back to an operand, as far as that can be told before its formula is written."""
    if isinstance(gradient_of(op) or ByFormula(), ByFormula):
        return element_of(op.operands[index].type).is_float
    return _passes_to(op, index)


def _passes_to(op: Operation, index: int) -> bool:
    """Whether the op passes anything back to an operand."""
    rules = _rule_of(op)
    assert not isinstance(rules, ByFormula)
    return rules[min(index, len(rules) - 1)] is not None and element_of(op.operands[index].type).is_float


def _active(order: Sequence[Operation], roots: Sequence[SSAValue]) -> set[SSAValue]:
    """The values through which the loss passes something back to a root."""
    active = set(roots)
    for op in order:
        if any(operand in active and _passes_to(op, index) for index, operand in enumerate(op.operands)):
            active.update(op.results)
    return active


def _backward(
    order: Sequence[Operation], active: set[SSAValue], gradient: logical.GradientOp, tape: Tape
) -> dict[SSAValue, SSAValue]:
    """The derivatives by all active values that the loss of `gradient` passes something back to."""
    loss = gradient.loss
    if loss not in active:
        return {}
    owner = loss.op if isinstance(loss, OpResult) else gradient
    found = {loss: tape.write(logical.ConstantOp(1.0, loss.type), "grad", owner)}
    for op in reversed(order):
        if op.results[0] in found:
            assert isinstance(op, logical.LogicalOp)
            _pass_back(op, active, found, tape)
    return found


def _pass_back(
    op: logical.LogicalOp, active: set[SSAValue], found: dict[SSAValue, SSAValue], tape: Tape
) -> None:
    """Adds what `op` passes back to the derivatives by its operands."""
    rules = _rule_of(op)
    assert not isinstance(rules, ByFormula)
    adjoint: Adjoint | None = None
    for number, operand in enumerate(op.operands):
        rule = rules[min(number, len(rules) - 1)]
        if operand not in active or rule is None or not element_of(operand.type).is_float:
            continue
        adjoint = adjoint or Adjoint(tape, op, found[op.result])
        adjoint.operand_index = number
        part = adjoint.cast(rule(adjoint, op), element_of(operand.type), "narrow")
        if operand in found:
            part = total(tape, op, found[operand], part)
        found[operand] = part


def _why_not(root: SSAValue, loss: SSAValue, needed: set[Operation]) -> tuple[str, Operation | None]:
    """Why the loss passes nothing back to `root`, in a user's words, and the op that does not."""
    path = _path(root, loss, needed)
    if path is None:
        return f"the loss does not depend on {_name(root)}; {_WAY_OUT}", None
    values = [root, *(op.results[0] for op in path)]
    step, stop = next(
        (step, op)
        for step, (value, op) in enumerate(zip(values, path, strict=False), 1)
        if not any(o is value and _passes_to(op, i) for i, o in enumerate(op.operands))
    )
    message = (
        f"the loss depends on {_name(root)} in steps alone: {_way(values, step)}; "
        f"{stop.name} '{op_id(stop)}' passes nothing back; {_WAY_OUT}"
    )
    return message, stop


_WAY_OUT = "leave it out, or declare it frozen"
_NEIGHBOURS = 2


def _way(values: Sequence[SSAValue], step: int) -> str:
    """The names of values on a way, of a long one those near its ends and near `step`."""
    near = (0, step, len(values) - 1)
    names: list[str] = []
    for index, value in enumerate(values):
        if any(abs(index - end) <= _NEIGHBOURS for end in near):
            names.append(_name(value))
        elif names[-1] != "...":
            names.append("...")
    return " -> ".join(names)


def _path(root: SSAValue, loss: SSAValue, needed: set[Operation]) -> list[Operation] | None:
    """A shortest way from `root` to the loss, as ops; None if there is none."""
    ways: list[tuple[SSAValue, list[Operation]]] = [(root, [])]
    seen: set[Operation] = set()
    for value, way in ways:
        if value is loss:
            return way
        for use in value.uses:
            if use.operation in needed and use.operation not in seen:
                seen.add(use.operation)
                ways.append((use.operation.results[0], [*way, use.operation]))
    return None


def _name(value: SSAValue) -> str:
    """The id of what gives the value, or the name of the argument."""
    if isinstance(value, OpResult):
        return f"'{op_id(value.op)}'"
    assert isinstance(value, BlockArgument)
    function = value.owner.parent_op()
    assert isinstance(function, func.FuncOp)
    name = argument_attrs(function, value.index).get(logical.NAME_ATTR)
    return f"'{name.data}'" if name is not None else f"argument {value.index}"
