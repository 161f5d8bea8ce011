"""Losses: how far a prediction is from what it should be, one number a sample or for all of them.

Names, defaults and reductions are PyTorch's. Where a sample counts nothing, its loss is 0.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Literal

import numpy as np
from xdsl.dialects.builtin import I64, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    checked_axis,
    counted_axis,
    require_float,
    same_types,
)
from aicf.dialects.logical_ops.properties import Properties, float_value, int_value, word_value
from aicf.dialects.traits import Composite
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = [
    "IGNORE_INDEX",
    "REDUCTIONS",
    "BceWithLogitsOp",
    "CrossEntropyOp",
    "HuberLossOp",
    "LossOp",
    "LossReduction",
    "MseLossOp",
]

LossReduction = Literal["mean", "sum", "none"]
REDUCTIONS: tuple[LossReduction, ...] = ("mean", "sum", "none")
IGNORE_INDEX = -100
"""The label that PyTorch ignores if nothing else is said."""


class LossOp(LogicalOp, ABC):
    """A loss with its ``reduction``: the mean or the sum over all samples (rank 0), or ``none`` of them."""

    reduction = prop_def(StringAttr, default_value=StringAttr("mean"))
    traits = traits_def(Composite())

    @staticmethod
    def reduced(info: TensorInfo, sizes: Sequence[Size], properties: Properties) -> AnyTensor:
        """The result type for losses of ``sizes``.

        Raises:
            VerifyException: the reduction is unknown, or the prediction is no float.
        """
        require_float(info)
        reduction = word_value("reduction", properties, REDUCTIONS)
        return info.with_sizes(sizes if reduction == "none" else [])


class _ElementLossOp(LossOp, ABC):
    """A loss for each element of a prediction and a target of one type."""

    operand = operand_def()
    target = operand_def()

    def __init__(self, operand: Operand, target: Operand, reduction: LossReduction = "mean"):
        super().__init__(operand, target, reduction=reduction)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' type, or one number of it."""
        info = same_types(operands)
        return cls.reduced(info, info.sizes, properties)


@irdl_op_definition
class MseLossOp(_ElementLossOp):
    """``(x - target) ** 2``, the squared error."""

    name = "logical.mse_loss"


@irdl_op_definition
class HuberLossOp(_ElementLossOp):
    """``d * d / 2`` of the distance ``d = |x - target|`` up to ``delta``, then the line ``delta * (d - delta / 2)``.

    Huber, Robust Estimation of a Location Parameter, 1964.
    """

    name = "logical.huber_loss"
    delta = prop_def(FloatAttr, default_value=FloatAttr(1.0, f64))

    def __init__(
        self, operand: Operand, target: Operand, reduction: LossReduction = "mean", delta: float = 1.0
    ):
        LogicalOp.__init__(self, operand, target, reduction=reduction, delta=delta)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' type, or one number of it."""
        if "delta" in properties and not 0.0 < (delta := float_value(properties["delta"])) < float("inf"):
            raise VerifyException(f"delta is {delta}; it is positive and finite")
        return super().infer(operands, properties)


@irdl_op_definition
class BceWithLogitsOp(_ElementLossOp):
    """``log(1 + exp(x)) - target * x``: the cross-entropy of sigmoid(x) and a target from 0 to 1, without overflow."""

    name = "logical.bce_with_logits"


@irdl_op_definition
class CrossEntropyOp(LossOp):
    """``-log_softmax(x)`` at the label along ``axis``: x ``[..., C, ...]``, labels of its sizes without the axis.

    By default ``axis`` is dimension 1, or 0 of a single sample.
    ``label_smoothing`` s gives the label the weight ``1 - s`` and spreads s over all C classes (Szegedy et al., 2016).
    A sample with the label ``ignore_index`` counts nothing, for the mean neither; any other label outside 0 to C - 1
    gives NaN.
    """

    name = "logical.cross_entropy"
    operand = operand_def()
    labels = operand_def()
    axis = prop_def(IntegerAttr[I64])
    ignore_index = prop_def(IntegerAttr[I64], default_value=IntegerAttr(IGNORE_INDEX, i64))
    label_smoothing = prop_def(FloatAttr, default_value=FloatAttr(0.0, f64))

    def __init__(
        self,
        operand: Operand,
        labels: Operand,
        axis: int | None = None,
        reduction: LossReduction = "mean",
        ignore_index: int = IGNORE_INDEX,
        label_smoothing: float = 0.0,
    ):
        if axis is None:
            axis = min(1, tensor_info(SSAValue.get(operand).type).rank - 1)
        super().__init__(
            operand,
            labels,
            axis=counted_axis(axis, operand),
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type without the axis, or one number of it."""
        info, labels = (tensor_info(operand) for operand in operands)
        axis = checked_axis(int_value(properties.get("axis")), info.rank)
        sizes = (*info.sizes[:axis], *info.sizes[axis + 1 :])
        if labels.element.name not in ("i32", "i64"):
            raise VerifyException(f"labels are {labels.element.name}; cast them to i32 or i64")
        if labels.sizes != sizes:
            last = info.rank - 1
            way_out = (
                f"; if dimension {last} has the classes, say axis={last}, or transpose"
                if labels.sizes == info.sizes[:-1]
                else ""
            )
            raise VerifyException(
                f"labels have shape {labels.shape_text}; they have that of {info.shape_text} without dimension {axis}, "
                f"the classes{way_out}"
            )
        ignored, limits = int_value(properties["ignore_index"]), np.iinfo(labels.element.dtype)
        if not limits.min <= ignored <= limits.max:
            raise VerifyException(
                f"ignore_index is {ignored}, which no label of {labels.element.name} can be"
            )
        smoothing = properties.get("label_smoothing")
        if smoothing is not None and not 0.0 <= float_value(smoothing) <= 1.0:
            raise VerifyException(f"label_smoothing is {float_value(smoothing)}; it is 0 to 1")
        return cls.reduced(info, sizes, properties)
