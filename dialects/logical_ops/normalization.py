"""Normalisations of rows (softmax, log_softmax, layer_norm, rms_norm), and of channels (batch_norm, group_norm)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, Float64Type, FloatAttr, IntegerAttr, UnitAttr, f64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    TypeText,
    checked_axis,
    counted_axis,
    require_float,
)
from aicf.dialects.logical_ops.properties import Properties, int_value
from aicf.dialects.traits import Normalization
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = [
    "DEFAULT_EPSILON",
    "BatchNormOp",
    "GroupNormOp",
    "LayerNormOp",
    "LogSoftmaxOp",
    "RmsNormOp",
    "SoftmaxOp",
    "normalized_axes",
]


DEFAULT_EPSILON = 1e-5


class _AlongAxisOp(LogicalOp, ABC):
    """Normalises the elements along ``axis``; floats only."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME

    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Normalization())

    def __init__(self, operand: Operand, axis: int = -1):
        super().__init__(operand, axis=counted_axis(axis, operand))

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_float(info)
        checked_axis(int_value(properties.get("axis")), info.rank)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class SoftmaxOp(_AlongAxisOp):
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` along ``axis``.

    Where all elements along the axis are -inf, the results are NaN, or 0 with ``empty_as_zero``.
    """

    name = "logical.softmax"
    empty_as_zero = opt_prop_def(UnitAttr)

    def __init__(self, operand: Operand, axis: int = -1, *, empty_as_zero: bool = False):
        LogicalOp.__init__(self, operand, axis=counted_axis(axis, operand), empty_as_zero=empty_as_zero)


@irdl_op_definition
class LogSoftmaxOp(_AlongAxisOp):
    """``x - max(x) - log(sum(exp(x - max(x))))`` along ``axis``: the logarithm of softmax, without underflow."""

    name = "logical.log_softmax"


class _StandardizingOp(LogicalOp, ABC):
    """Divides by a root of a mean square, to which ``epsilon`` is added; floats only. Operands after the first are
    scales and the like."""

    epsilon = prop_def(FloatAttr[Float64Type], default_value=FloatAttr(DEFAULT_EPSILON, f64))
    traits = traits_def(Normalization())

    @classmethod
    def check_parameters(
        cls, operands: Sequence[Attribute], properties: Properties, wanted: TensorInfo, why: str
    ) -> None:
        """Refuses an epsilon that is not positive, and operands after the first that are not as ``wanted``."""
        epsilon = properties.get("epsilon")
        if isinstance(epsilon, FloatAttr) and not 0.0 < epsilon.value.data < float("inf"):
            raise VerifyException(f"epsilon is {epsilon.value.data}; it is positive and finite")
        for (name, _), type_ in zip(cls.get_irdl_definition().operands[1:], operands[1:], strict=True):
            if (given := tensor_info(type_)) != wanted:
                raise VerifyException(f"{name} is {given}, but {why} need {wanted}")


class _OverTrailingOp(_StandardizingOp, ABC):
    """Over the dimensions ``axis`` to the last, whose shape scale and bias have."""

    axis = prop_def(IntegerAttr[I64])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_float(info)
        axis = checked_axis(int_value(properties.get("axis")), info.rank)
        why = f"dimensions {axis} to {info.rank - 1} of {info}"
        cls.check_parameters(operands, properties, TensorInfo(info.sizes[axis:], info.element), why)
        return info.with_sizes(info.sizes)


class _OfChannelsOp(_StandardizingOp, ABC):
    """Of channels, which are dimension 1; there is one of each other operand for each channel."""

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_float(info)
        if info.rank < 2:
            raise VerifyException(
                f"operand {info} has rank {info.rank}; it is [N, C, ...], channels along dimension 1"
            )
        why = f"the channels of {info} (dimension 1)"
        cls.check_parameters(operands, properties, TensorInfo(info.sizes[1:2], info.element), why)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class LayerNormOp(_OverTrailingOp):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the dimensions ``axis`` to the last.

    The variance is the biased one; scale and bias have the shape of those dimensions. Ba, Kiros and Hinton,
    2016.
    """

    name = "logical.layer_norm"
    operand = operand_def()
    scale = operand_def()
    bias = operand_def()

    def __init__(
        self,
        operand: Operand,
        scale: Operand,
        bias: Operand,
        axis: int = -1,
        epsilon: float = DEFAULT_EPSILON,
    ):
        super().__init__(operand, scale, bias, axis=counted_axis(axis, operand), epsilon=epsilon)


@irdl_op_definition
class RmsNormOp(_OverTrailingOp):
    """``x / sqrt(mean(x * x) + epsilon) * scale`` over the dimensions ``axis`` to the last.

    The scale has the shape of those dimensions. Zhang and Sennrich, 2019.
    """

    name = "logical.rms_norm"
    operand = operand_def()
    scale = operand_def()

    def __init__(
        self,
        operand: Operand,
        scale: Operand,
        axis: int = -1,
        epsilon: float = DEFAULT_EPSILON,
    ):
        super().__init__(operand, scale, axis=counted_axis(axis, operand), epsilon=epsilon)


@irdl_op_definition
class BatchNormOp(_OfChannelsOp):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` of each channel, with the statistics of training.

    x: ``[N, C, ...]``, channels along dimension 1; scale, bias, mean and variance: ``[C]``. Ioffe and Szegedy, 2015.
    """

    name = "logical.batch_norm"
    operand = operand_def()
    scale = operand_def()
    bias = operand_def()
    mean = operand_def()
    variance = operand_def()

    def __init__(
        self,
        operand: Operand,
        scale: Operand,
        bias: Operand,
        mean: Operand,
        variance: Operand,
        epsilon: float = DEFAULT_EPSILON,
    ):
        super().__init__(operand, scale, bias, mean, variance, epsilon=epsilon)


@irdl_op_definition
class GroupNormOp(_OfChannelsOp):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, mean and variance of ``groups`` groups of channels.

    x: ``[N, C, ...]``; the channels of a group are neighbours along dimension 1; scale and bias: ``[C]``. Wu and He,
    2018.
    """

    name = "logical.group_norm"
    operand = operand_def()
    scale = operand_def()
    bias = operand_def()
    groups = prop_def(IntegerAttr[I64])

    def __init__(
        self,
        operand: Operand,
        scale: Operand,
        bias: Operand,
        groups: int,
        epsilon: float = DEFAULT_EPSILON,
    ):
        super().__init__(operand, scale, bias, groups=groups, epsilon=epsilon)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        type_, info = super().infer(operands, properties), tensor_info(operands[0])
        groups, channels = int_value(properties.get("groups")), info.sizes[1]
        if not isinstance(channels, int):
            raise VerifyException(f"the channels of {info} are symbolic; give dimension 1 a number")
        if groups < 1 or channels % groups:
            raise VerifyException(f"groups is {groups}; it divides the {channels} channels of {info}")
        return type_


def normalized_axes(op: LayerNormOp | RmsNormOp) -> tuple[int, ...]:
    """The dimensions that a layer_norm or rms_norm averages over."""
    return tuple(range(op.axis.value.data, tensor_info(op.operand.type).rank))
