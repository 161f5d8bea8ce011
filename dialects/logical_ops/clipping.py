"""Clipping of gradients by the norm of all of them: what ``torch.nn.utils.clip_grad_norm_`` does, as values.

Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks, 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, TypeText, require_float
from aicf.dialects.logical_ops.properties import Properties, float_value
from aicf.dialects.traits import Composite
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["ClipFactorOp", "GlobalNormOp"]


def _require_wide(info: TensorInfo) -> None:
    """Refuse all but f32 and f64."""
    require_float(info)
    if info.element.bytes == 2:
        raise VerifyException(f"not defined for {info.element.name}; cast to f32 first")


@irdl_op_definition
class GlobalNormOp(LogicalOp):
    """The root of the sum of the squares of all elements of all operands: one number.

    The operands have any shapes and one element type, f32 or f64, which is also the result's.
    """

    name = "logical.global_norm"
    parts = var_operand_def()
    traits = traits_def(Composite())

    def __init__(self, parts: Sequence[Operand]):
        super().__init__(parts)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """One number of the operands' element type."""
        if not operands:
            raise VerifyException("nothing to take the norm of; give one value or more")
        first, *others = (tensor_info(operand) for operand in operands)
        _require_wide(first)
        for number, other in enumerate(others, 1):
            if other.element != first.element:
                raise VerifyException(
                    f"element types differ: operand 0 {first.element.name}, operand {number} {other.element.name}"
                )
        return first.with_sizes([])


@irdl_op_definition
class ClipFactorOp(LogicalOp):
    """``min(1, max_norm / (norm + 1e-6))``: what brings gradients of that norm down to ``max_norm``.

    1 for gradients that are small enough; NaN of NaN.
    """

    EPSILON: ClassVar[float] = 1e-6
    """PyTorch's."""

    name = "logical.clip_factor"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    norm = operand_def()
    max_norm = prop_def(FloatAttr)
    traits = traits_def(Composite())

    def __init__(self, norm: Operand, max_norm: float):
        super().__init__(norm, max_norm=max_norm)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The norm's type."""
        info = tensor_info(operands[0])
        _require_wide(info)
        if info.rank:
            raise VerifyException(f"the norm is {info}; it is one float of rank 0")
        if not 0.0 <= (bound := float_value(properties.get("max_norm"))) < float("inf"):
            raise VerifyException(f"max_norm is {bound}; it is 0 or more, and finite")
        return info.with_sizes([])
