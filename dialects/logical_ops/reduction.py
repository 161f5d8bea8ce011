"""Reductions along axes.

Integer sums wrap around in their type; ``reduce_max`` propagates NaN. The order of combination is not part of
the meaning.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    I64,
    DenseArrayBase,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    Composite,
    LogicalOp,
    Properties,
    Reduction,
    TypeText,
    checked_axis,
    int_values,
    ints,
    require_float,
    require_numeric,
)
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["ReduceMaxOp", "ReduceMeanOp", "ReduceOp", "ReduceSumOp"]


class ReduceOp(LogicalOp, ABC):
    """Combines all elements along ``axes`` (sorted, unique, non-negative); ``keepdims`` leaves size 1 there."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    axes = prop_def(DenseArrayBase[I64])
    keepdims = opt_prop_def(UnitAttr)

    def __init__(self, operand: SSAValue | Operation, axes: Sequence[int], *, keepdims: bool = False):
        value = SSAValue.get(operand)
        properties: dict[str, Attribute] = {"axes": ints(axes)}
        if keepdims:
            properties["keepdims"] = UnitAttr()
        super().__init__(
            operands=[value], result_types=[self.infer([value.type], properties)], properties=properties
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type without the axes, or with size 1 there."""
        info = tensor_info(operands[0])
        cls.check_element(info)
        axes = int_values(properties.get("axes"))
        _check_axes(axes, info.rank)
        if "keepdims" in properties:
            return info.with_sizes([1 if axis in axes else size for axis, size in enumerate(info.sizes)])
        return info.with_sizes([size for axis, size in enumerate(info.sizes) if axis not in axes])

    @classmethod
    def check_element(cls, info: TensorInfo) -> None:
        """Refuse element types the reduction is not defined for."""
        require_numeric(info, "cast to a number first")


def _check_axes(axes: Sequence[int], rank: int) -> None:
    if not axes:
        raise VerifyException("axes is empty; name at least one dimension to reduce")
    for axis in axes:
        checked_axis(axis, rank)
    if list(axes) != sorted(set(axes)):
        raise VerifyException(f"axes {list(axes)} must be sorted and unique; write {sorted(set(axes))}")


@irdl_op_definition
class ReduceSumOp(ReduceOp):
    """The sum along the axes."""

    name = "logical.reduce_sum"
    traits = traits_def(Pure(), Reduction())


@irdl_op_definition
class ReduceMeanOp(ReduceOp):
    """The arithmetic mean along the axes; floats only."""

    name = "logical.reduce_mean"
    traits = traits_def(Pure(), Reduction(), Composite())

    @classmethod
    def check_element(cls, info: TensorInfo) -> None:
        """Floats only."""
        require_float(info)


@irdl_op_definition
class ReduceMaxOp(ReduceOp):
    """The largest element along the axes; the or of i1."""

    name = "logical.reduce_max"
    traits = traits_def(Pure(), Reduction())

    @classmethod
    def check_element(cls, info: TensorInfo) -> None:
        """Every element type has an order."""
