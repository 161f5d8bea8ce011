"""Formulas of ops of users, and ops of the dialect that no kernel keeps whole."""

from __future__ import annotations

from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.custom_ops import plain_values
from aicf.errors import UnsupportedOp
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.support.identity import position_of


def has_formula(op: logical.CustomOp) -> bool:
    """Whether the op can be written in other ops."""
    return op.whole_op is not None or (op.definition is not None and op.definition.formula is not None)


def expanded(lower: Lowering, op: logical.CustomOp) -> SSAValue | None:
    """What its formula says, or the op of the dialect that it stands for; None if it has none."""
    if op.whole_op is not None:
        return lower.add(op.unwrapped(), "")
    definition = op.definition
    if definition is None or definition.formula is None:
        return None
    function = definition.formula(op.operand_types, plain_values(op.parameters))
    values = dict[SSAValue, SSAValue](zip(function.body.block.args, op.operands, strict=True))
    for each in function.body.block.ops:
        if isinstance(each, ReturnOp):
            return _result(values[each.operands[0]], op)
        copy = each.clone(values)
        assert isinstance(copy, logical.LogicalOp)
        lower.add(copy, each.name.removeprefix("logical."))
    raise AssertionError("a function of the builder returns")


def _result(value: SSAValue, op: logical.CustomOp) -> SSAValue:
    """The value. Raises UnsupportedOp if it is of another type than the op."""
    if value.type != op.result.type:
        raise UnsupportedOp(
            f"op '{op.label}': its formula gives {value.type}, its result rule {op.result.type}",
            location=position_of(op),
        )
    return value


FORMULAS: Formulas = {logical.CustomOp: expanded}
