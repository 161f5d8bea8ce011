"""Ops that move or repeat elements: reshape, transpose, broadcast, slice, window, concat.

They compute nothing; whether one becomes a stride, a copy or nothing at all is decided far below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import dims
from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    OwnKind,
    StatedResultOp,
    TypeText,
    checked_axis,
    counted_axis,
    plural,
    value_per_dimension,
)
from aicf.dialects.logical_ops.properties import Properties, int_value, int_values
from aicf.dialects.traits import PositionalOperands, Rearrangement, StridedView, ViewLike
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["WHOLE", "BroadcastOp", "ConcatOp", "ReshapeOp", "SliceOp", "TransposeOp", "WindowOp"]

WHOLE = -1
"""In ``sizes`` of a slice: the whole dimension, which may be symbolic."""


def _same_elements(source: TensorInfo, target: TensorInfo) -> None:
    if source.element != target.element:
        raise VerifyException(
            f"element type changes from {source.element.name} to {target.element.name}; use logical.cast "
            "for that"
        )


@irdl_op_definition
class ReshapeOp(StatedResultOp):
    """The same elements in row-major order under another shape of equal element count."""

    name = "logical.reshape"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    traits = traits_def(Rearrangement())

    def __init__(self, operand: Operand, sizes: Sequence[Size]):
        result = tensor_info(SSAValue.get(operand).type).with_sizes(sizes)
        super().__init__(operand, result=result)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Equal element counts, as polynomials where a size is symbolic."""
        source, target = tensor_info(operands[0]), tensor_info(result)
        _same_elements(source, target)
        if source.elements != target.elements:
            raise VerifyException(
                f"element counts differ: {source.shape_text} has {source.elements}, "
                f"{target.shape_text} has {target.elements}"
            )


@irdl_op_definition
class TransposeOp(LogicalOp):
    """Result dimension i is operand dimension ``permutation[i]``."""

    name = "logical.transpose"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    permutation = prop_def(DenseArrayBase[I64])
    traits = traits_def(Rearrangement())

    def __init__(self, operand: Operand, permutation: Sequence[int]):
        super().__init__(operand, permutation=permutation)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's sizes, permuted."""
        info = tensor_info(operands[0])
        permutation = int_values(properties.get("permutation"))
        if sorted(permutation) != list(range(info.rank)):
            raise VerifyException(
                f"permutation {list(permutation)} does not name each of the {plural(info.rank, 'dimension')} "
                f"of {info.shape_text} once"
            )
        return info.with_sizes([info.sizes[axis] for axis in permutation])


@irdl_op_definition
class BroadcastOp(StatedResultOp):
    """Operand dimension i becomes result dimension ``dimensions[i]``; others, and size 1, repeat."""

    name = "logical.broadcast"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    dimensions = prop_def(DenseArrayBase[I64])
    traits = traits_def(StridedView())

    def __init__(self, operand: Operand, dimensions: Sequence[int], sizes: Sequence[Size]):
        result = tensor_info(SSAValue.get(operand).type).with_sizes(sizes)
        super().__init__(operand, result=result, dimensions=dimensions)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Every operand dimension lands on a result dimension of its size, or has size 1."""
        source, target = tensor_info(operands[0]), tensor_info(result)
        _same_elements(source, target)
        dimensions = value_per_dimension("dimensions", properties, source)
        if list(dimensions) != sorted(set(dimensions)):
            raise VerifyException(f"dimensions {list(dimensions)} must rise; transpose the operand first")
        for axis, position in enumerate(dimensions):
            checked_axis(position, target.rank, "result dimension")
            size, wanted = source.sizes[axis], target.sizes[position]
            if size not in (1, wanted):
                raise VerifyException(
                    f"dimension {axis} of {source.shape_text} has size {size}, which fits neither 1 nor "
                    f"dimension {position} of {target.shape_text}"
                )


@irdl_op_definition
class SliceOp(LogicalOp):
    """Per dimension ``sizes[i]`` elements from ``starts[i]``, ``strides[i]`` apart; a size of -1 takes all of it."""

    name = "logical.slice"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    starts = prop_def(DenseArrayBase[I64])
    sizes = prop_def(DenseArrayBase[I64])
    strides = prop_def(DenseArrayBase[I64])
    traits = traits_def(StridedView())

    def __init__(
        self,
        operand: Operand,
        starts: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        strides = [1] * len(starts) if strides is None else strides
        super().__init__(operand, starts=starts, sizes=sizes, strides=strides)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with the sizes taken."""
        info = tensor_info(operands[0])
        lists = (value_per_dimension(name, properties, info) for name in ("starts", "sizes", "strides"))
        windows = enumerate(zip(*lists, strict=True))
        return info.with_sizes([_slice_size(info, axis, *window) for axis, window in windows])


def _slice_size(info: TensorInfo, axis: int, start: int, size: int, stride: int) -> Size:
    whole = info.sizes[axis]
    where = f"dimension {axis} of {info.shape_text}"
    if size == WHOLE:
        if (start, stride) != (0, 1):
            raise VerifyException(f"{where} is taken whole (size -1), so its start is 0 and its stride 1")
        return whole
    if not isinstance(whole, int):
        raise VerifyException(f"{where} is symbolic; take it whole with size -1")
    if start < 0 or size < 0 or stride < 1:
        raise VerifyException(
            f"{where}: start {start} and size {size} are at least 0, stride {stride} at least 1"
        )
    last = start + (size - 1) * stride
    if last >= whole:
        raise VerifyException(f"{where}: the last element taken is {last}, past the end")
    return size


@irdl_op_definition
class WindowOp(LogicalOp):
    """Windows of ``sizes[i]`` elements, ``dilations[i]`` apart, sliding by ``strides[i]`` along the last dimensions.

    [N.., S1..Sk] becomes [N.., O1..Ok, K1..Kk], where O = (S - (K - 1) * dilation - 1) / stride + 1, rounded down, and
    element (n, o, k) is (n, o * stride + k * dilation) of the operand. Windows that would leave it are left out.
    """

    name = "logical.window"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    sizes = prop_def(DenseArrayBase[I64])
    strides = prop_def(DenseArrayBase[I64])
    dilations = prop_def(DenseArrayBase[I64])
    traits = traits_def(StridedView())

    def __init__(
        self,
        operand: Operand,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
    ):
        ones = [1] * len(sizes)
        super().__init__(
            operand,
            sizes=sizes,
            strides=ones if strides is None else strides,
            dilations=ones if dilations is None else dilations,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with the counts of windows, then the sizes of one window."""
        info = tensor_info(operands[0])
        sizes, strides, dilations = window_values(info, properties)
        lead = info.rank - len(sizes)
        counts = [
            _window_count(info, lead + dim, *one)
            for dim, one in enumerate(zip(sizes, strides, dilations, strict=True))
        ]
        return info.with_sizes([*info.sizes[:lead], *counts, *sizes])


def window_values(
    info: TensorInfo, properties: Properties
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Sizes, strides and dilations of the windows over the last dimensions of a tensor, one of each a dimension.

    Raises:
        VerifyException: lists of different lengths, more values than dimensions, or one below 1.
    """
    found = [int_values(properties.get(name)) for name in ("sizes", "strides", "dilations")]
    for name, values in zip(("sizes", "strides", "dilations"), found, strict=True):
        if len(values) != len(found[0]):
            raise VerifyException(
                f"{name} {list(values)} has {plural(len(values), 'value')}, "
                f"sizes {list(found[0])} has {len(found[0])}"
            )
        if any(value < 1 for value in values):
            raise VerifyException(f"{name} {list(values)} are at least 1 each")
    if not 0 < len(found[0]) <= info.rank:
        raise VerifyException(
            f"sizes {list(found[0])} has {plural(len(found[0]), 'value')} for the last of "
            f"{plural(info.rank, 'dimension')} of {info.shape_text}; give 1 to {info.rank}"
        )
    return found[0], found[1], found[2]


def _window_count(info: TensorInfo, axis: int, size: int, stride: int, dilation: int) -> int:
    whole = info.sizes[axis]
    where = f"dimension {axis} of {info.shape_text}"
    if not isinstance(whole, int):
        raise VerifyException(f"{where} is symbolic; windows slide along dimensions of known size")
    extent = (size - 1) * dilation + 1
    if extent > whole:
        raise VerifyException(f"{where}: a window spans {extent} elements; pad it, or take smaller windows")
    return (whole - extent) // stride + 1


@irdl_op_definition
class ConcatOp(LogicalOp):
    """The operands one after the other along ``axis``; all other sizes are equal."""

    name = "logical.concat"
    parts = var_operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(ViewLike(), PositionalOperands())

    def __init__(self, parts: Sequence[Operand], axis: int):
        super().__init__(parts, axis=counted_axis(axis, parts[0]) if parts else axis)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' type with the sizes along the axis added up."""
        if not operands:
            raise VerifyException("nothing to concatenate; give at least one operand")
        infos = [tensor_info(operand) for operand in operands]
        first = infos[0]
        axis = checked_axis(int_value(properties.get("axis")), first.rank)
        for index, info in enumerate(infos):
            _check_part(first, info, index, axis)
        joined = dims.add(*(info.sizes[axis] for info in infos))
        return first.with_sizes([*first.sizes[:axis], joined, *first.sizes[axis + 1 :]])

    def kind_alone(self) -> OwnKind | None:
        """`concat`, with its axis."""
        return "concat", {"axis": self.axis}


def _check_part(first: TensorInfo, info: TensorInfo, index: int, axis: int) -> None:
    if info.element != first.element:
        raise VerifyException(
            f"element types differ: operand 0 {first.element.name}, operand {index} {info.element.name}"
        )
    if info.rank != first.rank:
        raise VerifyException(
            f"ranks differ: operand 0 {first.shape_text}, operand {index} {info.shape_text}"
        )
    for dim, (size, other) in enumerate(zip(first.sizes, info.sizes, strict=True)):
        if dim != axis and size != other:
            raise VerifyException(
                f"sizes differ in dimension {dim}: operand 0 {first.shape_text}, operand {index} "
                f"{info.shape_text}; "
                f"only dimension {axis} may"
            )
