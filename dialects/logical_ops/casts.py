"""Change of the element type: of the numbers to those of another type, or of what the bits are read as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, TypeText
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import Elementwise
from aicf.dialects.types import AnyTensor, ElementType, tensor, tensor_info

__all__ = ["BitcastOp", "CastOp"]


@irdl_op_definition
class CastOp(LogicalOp):
    """Changes the element type.

    Between floats: rounds to nearest even. Float to integer: truncates toward zero, saturates, NaN gives 0.
    Integer to integer: wraps. To i1: ``x != 0``. From i1: 0 or 1.
    """

    name = "logical.cast"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    traits = traits_def(Pure(), Elementwise())

    def __init__(self, operand: Operand, element: ElementType | str):
        result = tensor(tensor_info(SSAValue.get(operand).type).sizes, element)
        super().__init__(operand, result=result)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type: the cast that changes nothing; the real target is the stated result type."""
        info = tensor_info(operands[0])
        return info.with_sizes(info.sizes)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Equal shapes."""
        source, target = tensor_info(operands[0]), tensor_info(result)
        if source.sizes != target.sizes:
            raise VerifyException(
                f"shape changes from {source.shape_text} to {target.shape_text}; a cast keeps it"
            )


@irdl_op_definition
class BitcastOp(LogicalOp):
    """The bits of each element as an element of another type of as many bytes; i1 is a byte of 0 or 1, and any but 0 is
    true. Of a NaN of 16 bits it is left to the target which NaN it is."""

    name = "logical.bitcast"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    traits = traits_def(Pure(), Elementwise())

    def __init__(self, operand: Operand, element: ElementType | str):
        result = tensor(tensor_info(SSAValue.get(operand).type).sizes, element)
        super().__init__(operand, result=result)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type: the bits as they are; the real target is the stated result type."""
        info = tensor_info(operands[0])
        return info.with_sizes(info.sizes)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Equal shapes, and elements of equal size."""
        source, target = tensor_info(operands[0]), tensor_info(result)
        if source.sizes != target.sizes:
            raise VerifyException(
                f"shape changes from {source.shape_text} to {target.shape_text}; bits keep their place"
            )
        if source.element.bytes != target.element.bytes:
            raise VerifyException(
                f"{source.element.name} has {source.element.bytes} bytes, {target.element.name} "
                f"{target.element.bytes}; only types of one size have the same bits"
            )
