"""Normalisations along dimensions: softmax, layer_norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, Float64Type, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Normalization,
    Properties,
    TypeText,
    checked_axis,
    int_value,
    operand_types,
    operand_values,
    require_float,
)
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["DEFAULT_EPSILON", "LayerNormOp", "SoftmaxOp", "normalized_axes"]


DEFAULT_EPSILON = 1e-5


@irdl_op_definition
class SoftmaxOp(LogicalOp):
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` along ``axis``."""

    name = "logical.softmax"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME

    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Pure(), Normalization())

    def __init__(self, operand: SSAValue | Operation, axis: int):
        value = SSAValue.get(operand)
        properties: dict[str, Attribute] = {"axis": IntegerAttr(axis, i64)}
        super().__init__(
            operands=[value], result_types=[self.infer([value.type], properties)], properties=properties
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_float(info)
        checked_axis(int_value(properties.get("axis")), info.rank)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class LayerNormOp(LogicalOp):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the dimensions ``axis`` to the last.

    The variance is the biased one; scale and bias have the shape of those dimensions. Ba, Kiros and Hinton,
    2016.
    """

    name = "logical.layer_norm"
    operand = operand_def()
    scale = operand_def()
    bias = operand_def()
    axis = prop_def(IntegerAttr[I64])
    epsilon = prop_def(FloatAttr[Float64Type], default_value=FloatAttr(DEFAULT_EPSILON, f64))
    traits = traits_def(Pure(), Normalization())

    def __init__(
        self,
        operand: SSAValue | Operation,
        scale: SSAValue | Operation,
        bias: SSAValue | Operation,
        axis: int,
        epsilon: float = DEFAULT_EPSILON,
    ):
        values = operand_values(operand, scale, bias)
        properties: dict[str, Attribute] = {
            "axis": IntegerAttr(axis, i64),
            "epsilon": FloatAttr(epsilon, f64),
        }
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_float(info)
        axis = checked_axis(int_value(properties.get("axis")), info.rank)
        epsilon = properties.get("epsilon")
        if isinstance(epsilon, FloatAttr) and not 0.0 < epsilon.value.data < float("inf"):
            raise VerifyException(f"epsilon is {epsilon.value.data}; it is positive and finite")
        for name, other in (("scale", tensor_info(operands[1])), ("bias", tensor_info(operands[2]))):
            expected = TensorInfo(info.sizes[axis:], info.element)
            if other != expected:
                raise VerifyException(
                    f"{name} is {other}, but dimensions {axis} to {info.rank - 1} of {info} need {expected}"
                )
        return info.with_sizes(info.sizes)


def normalized_axes(op: LayerNormOp) -> tuple[int, ...]:
    """The dimensions that a layer_norm averages over."""
    return tuple(range(op.axis.value.data, tensor_info(op.operand.type).rank))
