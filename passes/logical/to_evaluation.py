"""``to-evaluation``: a model as it is after training, in which no element is dropped.

A training step stays as it is: dropout is part of it. Of an ONNX graph ``lower-onnx`` takes nodes in evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from aicf.dialects.logical import ROLE_ATTR, DropoutOp, LogicalOp
from aicf.dialects.traits import TrainingOnly
from aicf.passes.support.identity import op_id, replace_with_value
from aicf.passes.support.interface import argument_entry, arguments_of, drop_arguments, functions, results_of
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class ToEvaluationPass(ModulePass):
    """Replaces every dropout by its operand, unless the function is a training step.

    Metas that only dropouts read, such as their seed, are no arguments any more.
    """

    name = "to-evaluation"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if trains(function):
                continue
            unread = drawing_metas(function)
            dropouts = [inner for inner in function.walk() if isinstance(inner, DropoutOp)]
            for dropout in dropouts:
                replace_with_value(PatternRewriter(dropout), dropout, dropout.operand)
            _erase_readers(function, unread)
            drop_arguments(function, unread)
            if ids := [identity for dropout in dropouts if (identity := op_id(dropout)) is not None]:
                record_decision(
                    op,
                    self.name,
                    ids,
                    "evaluation: gives its operand",
                    "a dropout is for training",
                    {"training": "option training keeps it"},
                )


def trains(function: FuncOp) -> bool:
    """Whether a function is a training step: it has gradients or an optimizer, or updates a parameter."""
    params = {
        name for name, argument in arguments_of(function).items() if _role(function, argument) == "param"
    }
    return any(result.updates in params for result in results_of(function)) or any(
        op.has_trait(TrainingOnly) for op in function.walk()
    )


def drawing_metas(function: FuncOp) -> list[str]:
    """The metas that dropouts alone read, or nobody: what evaluation has no use for."""
    return [
        name
        for name, argument in arguments_of(function).items()
        if _role(function, argument) == "meta" and _only_draws(argument)
    ]


def _only_draws(value: SSAValue) -> bool:
    """Whether all that is computed of a value is what dropouts draw by."""
    for use in value.uses:
        op = use.operation
        if isinstance(op, DropoutOp) and use.index > 0:
            continue
        if not isinstance(op, LogicalOp) or not all(_only_draws(result) for result in op.results):
            return False
    return True


def _erase_readers(function: FuncOp, metas: Sequence[str]) -> None:
    """Erases what is computed of metas that no dropout is left to draw by."""
    arguments = arguments_of(function)
    values = set[SSAValue](arguments[name] for name in metas)
    readers: list[Operation] = []
    for op in function.body.block.ops:
        if any(operand in values for operand in op.operands):
            values.update(op.results)
            readers.append(op)
    for op in reversed(readers):
        Rewriter.erase_op(op)


def _role(function: FuncOp, argument: BlockArgument) -> str:
    role = argument_entry(function, argument.index).get(ROLE_ATTR)
    return role.data if isinstance(role, StringAttr) else ""
