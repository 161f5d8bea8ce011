"""What a training step says beside its network: gradients, and values that its backward part reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, TypeText
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.types import AnyTensor, tensor_info

__all__ = ["GradientOp", "SaveOp"]


@irdl_op_definition
class GradientOp(LogicalOp):
    """The derivative of a loss, one float of rank 0, by a value: of its type.

    It stands behind the loss. `differentiate` replaces all gradients of one loss at once; until then nothing runs them.
    """

    name = "logical.gradient"
    loss = operand_def()
    by = operand_def()
    traits = traits_def(Pure())

    def __init__(self, loss: Operand, by: Operand):
        super().__init__(loss, by)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The type of what it is the derivative by."""
        loss, by = (tensor_info(operand) for operand in operands)
        if loss.rank or not loss.element.is_float:
            raise VerifyException(
                f"the loss is {loss}; it is one float of rank 0, such as a reduce_mean over all axes"
            )
        if not by.element.is_float:
            raise VerifyException(f"{by} has no derivative by it; only floats have")
        return by.with_sizes(by.sizes)


@irdl_op_definition
class SaveOp(LogicalOp):
    """The operand, marked as what the backward part of a training step reads of the forward part.

    `eliminate-saves` decides where it comes from: kept in memory, found in another value, or computed again.
    """

    name = "logical.save"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    operand = operand_def()
    traits = traits_def(Pure())

    def __init__(self, operand: Operand):
        super().__init__(operand)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        return info.with_sizes(info.sizes)
