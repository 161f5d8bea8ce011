"""Gradients of ops of users: the rule that the definition gives, else its formula."""

from __future__ import annotations

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.custom_ops import plain_values
from aicf.passes.logical.lowerings.custom import has_formula
from aicf.passes.training.gradients.base import BY_FORMULA, Adjoint, Gradient, Gradients


def _gradient_of(op: Operation) -> Gradient | None:
    """The rule of an op; None where its definition has neither a gradient nor a formula."""
    assert isinstance(op, logical.CustomOp)
    if op.definition is not None and op.definition.gradient is not None:
        return (_by_definition,)
    return BY_FORMULA if has_formula(op) else None


def _by_definition(adjoint: Adjoint, op: logical.CustomOp) -> SSAValue:
    """What the definition's function gives for the operand; what it computes for the others is dropped again."""
    definition = op.definition
    assert definition is not None and definition.gradient is not None
    function = definition.gradient([*op.operand_types, op.result.type], plain_values(op.parameters))
    *arguments, grad = function.body.block.args
    values: dict[SSAValue, SSAValue] = {grad: adjoint.passed}
    for argument, operand in zip(arguments, op.operands, strict=True):
        if argument.uses:
            values[argument] = adjoint.stored(operand)
    for each in function.body.block.ops:
        if isinstance(each, ReturnOp):
            return values[each.operands[adjoint.operand_index]]
        copy = each.clone(values)
        assert isinstance(copy, logical.LogicalOp)
        values[each.results[0]] = adjoint.add(copy, each.name.removeprefix("logical."))
    raise AssertionError("a function of the builder returns")


GRADIENTS: Gradients = {
    logical.CustomOp: _gradient_of,
}
