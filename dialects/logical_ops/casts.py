"""Change of the element type: of the numbers to those of another type, or of what the bits are read as."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import Operand, StatedResultOp, TypeText
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import Elementwise, TakesFloat8
from aicf.dialects.types import ElementType, tensor, tensor_info

__all__ = ["BitcastOp", "CastOp"]


class _ElementwiseCast(StatedResultOp, ABC):
    """Another element type in the same shape."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW
    KEPT: ClassVar[str]
    """Why the shape stays, in a user's words."""

    operand = operand_def()
    traits = traits_def(Elementwise(), TakesFloat8())

    def __init__(self, operand: Operand, element: ElementType | str):
        result = tensor(tensor_info(SSAValue.get(operand).type).sizes, element)
        super().__init__(operand, result=result)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Equal shapes."""
        source, target = tensor_info(operands[0]), tensor_info(result)
        if source.sizes != target.sizes:
            raise VerifyException(
                f"shape changes from {source.shape_text} to {target.shape_text}; {cls.KEPT}"
            )


@irdl_op_definition
class CastOp(_ElementwiseCast):
    """Changes the element type.

    Between floats: rounds to nearest even. What is too large becomes infinity, or NaN in f8E4M3FN, which has no
    infinity; a ``logical.clamp`` before the cast makes it the largest number instead. Float to integer: truncates
    toward zero, saturates, NaN gives 0. Integer to integer: wraps. To i1: ``x != 0``. From i1: 0 or 1.
    """

    name = "logical.cast"
    KEPT: ClassVar[str] = "a cast keeps it"


@irdl_op_definition
class BitcastOp(_ElementwiseCast):
    """The bits of each element as an element of another type of as many bytes; i1 is a byte of 0 or 1, and any but 0 is
    true. Of a NaN of 8 or 16 bits it is left to the target which NaN it is."""

    name = "logical.bitcast"
    KEPT: ClassVar[str] = "bits keep their place"

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Equal shapes, and elements of equal size."""
        super().check_result(operands, properties, result)
        source, target = tensor_info(operands[0]), tensor_info(result)
        if source.element.bytes != target.element.bytes:
            raise VerifyException(
                f"{source.element.name} has {source.element.bytes} bytes, {target.element.name} "
                f"{target.element.bytes}; only types of one size have the same bits"
            )
