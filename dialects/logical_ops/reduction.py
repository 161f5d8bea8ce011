"""Reductions along axes, indices of extremes and running sums along one.

Integer sums and products wrap around in their type; ``reduce_max`` and ``reduce_min`` propagate NaN. The order of
combination is not part of the meaning.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    I64,
    DenseArrayBase,
    IntegerAttr,
    UnitAttr,
)
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import (
    ElementRule,
    LogicalOp,
    Operand,
    TypeText,
    any_element,
    checked_axis,
    counted_axes,
    counted_axis,
    require_float,
    require_numeric,
)
from aicf.dialects.logical_ops.properties import Properties, int_value, int_values
from aicf.dialects.traits import Composite, PrimitiveReduction, Reduction, Scan
from aicf.dialects.types import AnyTensor, tensor, tensor_info

__all__ = [
    "ArgOp",
    "ArgmaxOp",
    "ArgminOp",
    "CumsumOp",
    "ReduceAllOp",
    "ReduceAnyOp",
    "ReduceL2Op",
    "ReduceLogSumExpOp",
    "ReduceMaxOp",
    "ReduceMeanOp",
    "ReduceMinOp",
    "ReduceOp",
    "ReduceProdOp",
    "ReduceSumOp",
]


class ReduceOp(LogicalOp, ABC):
    """Combines all elements along ``axes`` (sorted, unique, non-negative); ``keepdims`` leaves size 1 there."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW
    ELEMENTS: ClassVar[ElementRule] = require_numeric
    RESULT: ClassVar[str | None] = None
    """The element type of the result, where it is not the operand's."""

    operand = operand_def()
    axes = prop_def(DenseArrayBase[I64])
    keepdims = opt_prop_def(UnitAttr)

    def __init__(self, operand: Operand, axes: Sequence[int], *, keepdims: bool = False):
        super().__init__(operand, axes=counted_axes(axes, operand), keepdims=keepdims)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type without the axes, or with size 1 there."""
        info = tensor_info(operands[0])
        cls.ELEMENTS(info)
        axes = int_values(properties.get("axes"))
        _check_axes(axes, info.rank)
        sizes = reduced_sizes(info.sizes, axes, keepdims="keepdims" in properties)
        return tensor(sizes, cls.RESULT or info.element)


def reduced_sizes(sizes: Sequence[Size], axes: Sequence[int], *, keepdims: bool) -> list[Size]:
    """The sizes without those of ``axes``, or with 1 there."""
    if keepdims:
        return [1 if axis in axes else size for axis, size in enumerate(sizes)]
    return [size for axis, size in enumerate(sizes) if axis not in axes]


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
    traits = traits_def(PrimitiveReduction("sum"))


@irdl_op_definition
class ReduceMeanOp(ReduceOp):
    """The arithmetic mean along the axes; floats only."""

    name = "logical.reduce_mean"
    ELEMENTS: ClassVar[ElementRule] = require_float
    traits = traits_def(Reduction(), Composite())


@irdl_op_definition
class ReduceMaxOp(ReduceOp):
    """The largest element along the axes; the or of i1."""

    name = "logical.reduce_max"
    ELEMENTS: ClassVar[ElementRule] = any_element
    traits = traits_def(PrimitiveReduction("max"))


@irdl_op_definition
class ReduceMinOp(ReduceOp):
    """The smallest element along the axes; the and of i1."""

    name = "logical.reduce_min"
    ELEMENTS: ClassVar[ElementRule] = any_element
    traits = traits_def(PrimitiveReduction("min"))


@irdl_op_definition
class ReduceProdOp(ReduceOp):
    """The product along the axes."""

    name = "logical.reduce_prod"
    traits = traits_def(PrimitiveReduction("prod"))


@irdl_op_definition
class ReduceL2Op(ReduceOp):
    """The Euclidean norm along the axes, ``sqrt(sum(x * x))``; floats only."""

    name = "logical.reduce_l2"
    ELEMENTS: ClassVar[ElementRule] = require_float
    traits = traits_def(Reduction(), Composite())


@irdl_op_definition
class ReduceLogSumExpOp(ReduceOp):
    """``log(sum(exp(x)))`` along the axes, without overflow for any x; floats only."""

    name = "logical.reduce_logsumexp"
    ELEMENTS: ClassVar[ElementRule] = require_float
    traits = traits_def(Reduction(), Composite())


class _TruthOp(ReduceOp, ABC):
    """Asks of the elements along the axes whether they are other than 0 (NaN is); the answer is i1."""

    ELEMENTS: ClassVar[ElementRule] = any_element
    RESULT: ClassVar[str | None] = "i1"


@irdl_op_definition
class ReduceAnyOp(_TruthOp):
    """Whether any element along the axes is other than 0; the answer is i1."""

    name = "logical.reduce_any"
    traits = traits_def(Reduction(), Composite())


@irdl_op_definition
class ReduceAllOp(_TruthOp):
    """Whether all elements along the axes are other than 0; the answer is i1."""

    name = "logical.reduce_all"
    traits = traits_def(Reduction(), Composite())


@irdl_op_definition
class CumsumOp(LogicalOp):
    """The sum of all elements along ``axis`` up to each one, and of itself.

    ``exclusive`` leaves the element itself out, so that the first is 0; ``reverse`` sums from the last one on. Integers
    wrap around.
    """

    name = "logical.cumsum"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME

    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    exclusive = opt_prop_def(UnitAttr)
    reverse = opt_prop_def(UnitAttr)
    traits = traits_def(Scan())

    def __init__(self, operand: Operand, axis: int = -1, *, exclusive: bool = False, reverse: bool = False):
        super().__init__(operand, axis=counted_axis(axis, operand), exclusive=exclusive, reverse=reverse)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_numeric(info)
        checked_axis(int_value(properties.get("axis")), info.rank)
        return info.with_sizes(info.sizes)


class ArgOp(LogicalOp, ABC):
    """The index of an extreme element along ``axis``, as i64."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    keepdims = opt_prop_def(UnitAttr)
    traits = traits_def(Reduction(), Composite())

    def __init__(self, operand: Operand, axis: int = -1, *, keepdims: bool = False):
        super().__init__(operand, axis=counted_axis(axis, operand), keepdims=keepdims)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """i64 of the operand's sizes without the axis, or with size 1 there."""
        info = tensor_info(operands[0])
        axis = checked_axis(int_value(properties.get("axis")), info.rank)
        sizes = reduced_sizes(info.sizes, [axis], keepdims="keepdims" in properties)
        return tensor(sizes, "i64")


@irdl_op_definition
class ArgmaxOp(ArgOp):
    """The index of the largest element along ``axis``, as i64: the lowest of several; a NaN is larger than all."""

    name = "logical.argmax"


@irdl_op_definition
class ArgminOp(ArgOp):
    """The index of the smallest element along ``axis``, as i64: the lowest of several; a NaN is smaller than all."""

    name = "logical.argmin"
