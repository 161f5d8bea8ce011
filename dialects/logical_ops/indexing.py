"""Ops that know indices: counting along an axis, padding, reading at indices, the indices of the largest elements.

All are defined for every input. An index counts from the end if it is negative, as in NumPy, and is then clamped into
range. Ops that write at indices are in ``scattering.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import dims
from aicf.dialects.dims import Size
from aicf.dialects.kinds import FLAGS
from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    OwnKind,
    StatedResultOp,
    checked_axis,
    counted_axes,
    counted_axis,
    require_numeric,
    value_per_dimension,
)
from aicf.dialects.logical_ops.properties import Properties, int_value, int_values
from aicf.dialects.traits import Composite, Elementwise, IndexedRead, Moved, PositionalOperands, TakesFloat8
from aicf.dialects.types import AnyTensor, ElementType, TensorInfo, tensor, tensor_info

__all__ = [
    "FlipOp",
    "GatherElementsOp",
    "GatherOp",
    "IotaOp",
    "OneHotOp",
    "PadOp",
    "TileOp",
    "TopkIndicesOp",
]


def axis_of(properties: Properties, info: TensorInfo) -> int:
    """The axis that an op names, one of the operand's. Raises VerifyException if it is none of them."""
    return checked_axis(int_value(properties.get("axis")), info.rank)


def indices_info(type_: Attribute) -> TensorInfo:
    """The indices' type. Raises VerifyException if they are no i32 or i64."""
    info = tensor_info(type_)
    if info.element.name not in ("i32", "i64"):
        raise VerifyException(f"indices are {info.element.name}; cast them to i32 or i64")
    return info


@irdl_op_definition
class IotaOp(StatedResultOp):
    """Each element is its own index along ``axis``: 0, 1, 2 and so on, in the type of the result."""

    name = "logical.iota"
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Elementwise())

    def __init__(self, axis: int, sizes: Sequence[Size], element: str | ElementType):
        super().__init__(result=tensor(sizes, element), axis=axis)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """A numeric tensor that has the axis."""
        info = tensor_info(result)
        require_numeric(info, "count in an integer type and compare")
        axis_of(properties, info)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read ``{axis = 0} : T``."""
        attributes = parser.parse_optional_attr_dict()
        properties = {"axis": attributes.pop("axis")} if "axis" in attributes else {}
        parser.parse_punctuation(":")
        return cls.create(result_types=[parser.parse_type()], properties=properties, attributes=attributes)

    def print(self, printer: Printer) -> None:
        """Write ``{axis = 0} : T``."""
        self.print_dictionary(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class PadOp(LogicalOp):
    """The operand with ``low[i]`` elements before and ``high[i]`` after along dimension i, all of them ``value``."""

    name = "logical.pad"
    operand = operand_def()
    value = operand_def()
    low = prop_def(DenseArrayBase[I64])
    high = prop_def(DenseArrayBase[I64])
    traits = traits_def(IndexedRead(), TakesFloat8())

    def __init__(
        self,
        operand: Operand,
        value: Operand,
        low: Sequence[int],
        high: Sequence[int],
    ):
        super().__init__(operand, value, low=low, high=high)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with larger sizes."""
        info, value = (tensor_info(operand) for operand in operands)
        if value.rank or value.element != info.element:
            raise VerifyException(f"the value is {value}; it is one {info.element.name} of rank 0")
        amounts = {name: value_per_dimension(name, properties, info) for name in ("low", "high")}
        for name, given in amounts.items():
            if any(amount < 0 for amount in given):
                raise VerifyException(
                    f"{name} {list(given)} has a negative amount; take elements away by slice"
                )
        pairs = zip(info.sizes, amounts["low"], amounts["high"], strict=True)
        return info.with_sizes([dims.add(size, low, high) for size, low, high in pairs])


@irdl_op_definition
class GatherOp(LogicalOp):
    """Slices of the operand along ``axis``, one for each index; the indices' dimensions stand in the axis' place.

    A negative index counts from the end; an index out of range is clamped.
    """

    name = "logical.gather"
    operand = operand_def()
    indices = operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Moved(), TakesFloat8())

    def __init__(self, operand: Operand, indices: Operand, axis: int = 0):
        super().__init__(operand, indices, axis=counted_axis(axis, operand))

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's sizes with the indices' in place of the axis."""
        info, indices = tensor_info(operands[0]), indices_info(operands[1])
        axis = axis_of(properties, info)
        return info.with_sizes([*info.sizes[:axis], *indices.sizes, *info.sizes[axis + 1 :]])


@irdl_op_definition
class GatherElementsOp(LogicalOp):
    """Element ``[.., i, ..]`` of the result is element ``[.., indices[.., i, ..], ..]`` of the operand, along ``axis``.

    A negative index counts from the end; an index out of range is clamped. Along other dimensions the indices may be
    fewer than the operand has.
    """

    name = "logical.gather_elements"
    operand = operand_def()
    indices = operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Moved(), TakesFloat8())

    def __init__(self, operand: Operand, indices: Operand, axis: int):
        super().__init__(operand, indices, axis=counted_axis(axis, operand))

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's element type in the indices' shape."""
        info, indices = tensor_info(operands[0]), indices_info(operands[1])
        axis = axis_of(properties, info)
        check_beside(info, indices, axis)
        return info.with_sizes(indices.sizes)


def check_beside(info: TensorInfo, indices: TensorInfo, axis: int) -> None:
    """Along dimensions other than the axis the indices stay inside the operand."""
    if indices.rank != info.rank:
        raise VerifyException(
            f"indices have shape {indices.shape_text}, the operand {info.shape_text}; ranks are equal"
        )
    for dim, (count, size) in enumerate(zip(indices.sizes, info.sizes, strict=True)):
        fits = count <= size if isinstance(count, int) and isinstance(size, int) else count == size
        if dim != axis and not fits:
            raise VerifyException(
                f"indices have {count} elements along dimension {dim}, the operand {size}; only along axis {axis} "
                "they may have more"
            )


@irdl_op_definition
class FlipOp(LogicalOp):
    """The operand with the order along ``axes`` reversed."""

    name = "logical.flip"
    operand = operand_def()
    axes = prop_def(DenseArrayBase[I64])
    traits = traits_def(Moved(), TakesFloat8())

    def __init__(self, operand: Operand, axes: Sequence[int]):
        super().__init__(operand, axes=counted_axes(axes, operand))

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        axes = int_values(properties.get("axes"))
        for axis in axes:
            checked_axis(axis, info.rank)
        if not axes or list(axes) != sorted(set(axes)):
            raise VerifyException(f"axes {list(axes)} name one dimension or more, each once, in rising order")
        return info.with_sizes(info.sizes)


@irdl_op_definition
class TileOp(LogicalOp):
    """The operand ``repeats[i]`` times along dimension i."""

    name = "logical.tile"
    operand = operand_def()
    repeats = prop_def(DenseArrayBase[I64])
    traits = traits_def(Composite(), TakesFloat8())

    def __init__(self, operand: Operand, repeats: Sequence[int]):
        super().__init__(operand, repeats=repeats)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with its sizes multiplied."""
        info = tensor_info(operands[0])
        repeats = value_per_dimension("repeats", properties, info, 1)
        return info.with_sizes(
            [dims.multiply(size, count) for size, count in zip(info.sizes, repeats, strict=True)]
        )


@irdl_op_definition
class OneHotOp(LogicalOp):
    """Along a new dimension ``axis`` of ``depth`` elements: ``on`` at the index, ``off`` elsewhere.

    A negative index counts from the end of the depth; where an index is out of range all is ``off``.
    """

    name = "logical.one_hot"
    indices = operand_def()
    on = operand_def()
    off = operand_def()
    axis = prop_def(IntegerAttr[I64])
    depth = prop_def(IntegerAttr[I64])
    traits = traits_def(Composite())

    def __init__(
        self,
        indices: Operand,
        on: Operand,
        off: Operand,
        axis: int,
        depth: int,
    ):
        super().__init__(indices, on, off, axis=axis, depth=depth)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The indices' sizes with the depth inserted, in the element type of the two values."""
        indices, on, off = indices_info(operands[0]), tensor_info(operands[1]), tensor_info(operands[2])
        if on != off or on.rank:
            raise VerifyException(f"on is {on} and off {off}; both have rank 0 and one element type")
        depth = int_value(properties.get("depth"))
        if depth < 1:
            raise VerifyException(f"depth is {depth}; it is at least 1")
        axis = checked_axis(int_value(properties.get("axis")), indices.rank + 1)
        return on.with_sizes([*indices.sizes[:axis], depth, *indices.sizes[axis:]])


@irdl_op_definition
class TopkIndicesOp(LogicalOp):
    """The indices of the ``k`` largest elements along ``axis``, in falling order; ``smallest`` turns both round.

    Of equal elements the one at the lower index comes first. NaN counts as larger than every number. The elements
    themselves are what ``gather_elements`` reads at these indices.
    """

    name = "logical.topk_indices"
    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    k = prop_def(IntegerAttr[I64])
    smallest = opt_prop_def(UnitAttr)
    traits = traits_def(PositionalOperands())

    def __init__(self, operand: Operand, axis: int, k: int, *, smallest: bool = False):
        super().__init__(operand, axis=counted_axis(axis, operand), k=k, smallest=smallest)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's sizes with ``k`` along the axis, in i64."""
        info = tensor_info(operands[0])
        axis, k = axis_of(properties, info), int_value(properties.get("k"))
        size = info.sizes[axis]
        if not isinstance(size, int):
            raise VerifyException(
                f"dimension {axis} of {info.shape_text} is symbolic; its size must be known"
            )
        if not 1 <= k <= size:
            raise VerifyException(f"k is {k}; dimension {axis} of {info.shape_text} allows 1 to {size}")
        return tensor([*info.sizes[:axis], k, *info.sizes[axis + 1 :]], "i64")

    def kind_alone(self) -> OwnKind | None:
        """`topk_indices`, with its axis and order."""
        return "topk_indices", {"axis": self.axis, "smallest": FLAGS[self.smallest is not None]}
