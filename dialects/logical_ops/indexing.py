"""Ops that know places: counting along an axis, padding, reading at indices, writing at indices, the largest elements.

All are defined for every input. An index that reads counts from the end if it is negative, as in NumPy, and is then
clamped into range. An index that writes counts from the end likewise; out of range it writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import dims
from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import (
    Composite,
    Elementwise,
    IndexedRead,
    LogicalOp,
    Properties,
    checked_axis,
    int_value,
    int_values,
    ints,
    operand_types,
    operand_values,
    plural,
    require_numeric,
)
from aicf.dialects.types import AnyTensor, ElementType, TensorInfo, element_named, tensor, tensor_info

__all__ = [
    "SCATTER_MODES",
    "FlipOp",
    "GatherElementsOp",
    "GatherOp",
    "IotaOp",
    "LastUpdateOp",
    "OneHotOp",
    "PadOp",
    "ScatterCombineOp",
    "ScatterElementsOp",
    "ScatterMode",
    "ScatterNdOp",
    "ScatterOp",
    "TileOp",
    "TopkIndicesOp",
    "WriteRowOp",
]


def _axis(properties: Properties, info: TensorInfo) -> int:
    return checked_axis(int_value(properties.get("axis")), info.rank)


def _indices(type_: Attribute) -> TensorInfo:
    """The indices' type. Raises VerifyException if they are no i32 or i64."""
    info = tensor_info(type_)
    if info.element.name not in ("i32", "i64"):
        raise VerifyException(f"indices are {info.element.name}; cast them to i32 or i64")
    return info


@irdl_op_definition
class IotaOp(LogicalOp):
    """Each element is its own place along ``axis``: 0, 1, 2 and so on, in the type of the result."""

    name = "logical.iota"
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Pure(), Elementwise())

    def __init__(self, axis: int, sizes: Sequence[Size], element: str | ElementType):
        result = tensor(sizes, element_named(element) if isinstance(element, str) else element)
        properties: dict[str, Attribute] = {"axis": IntegerAttr(axis, i64)}
        self.check_result([], properties, result)
        super().__init__(result_types=[result], properties=properties)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """Nothing gives the type: it is stated."""
        raise VerifyException("the result type is stated, not inferred")

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """A numeric tensor that has the axis."""
        info = tensor_info(result)
        require_numeric(info, "count in an integer type and compare")
        _axis(properties, info)

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
    """The operand with ``low[i]`` elements in front and ``high[i]`` behind along dimension i, all of them ``value``."""

    name = "logical.pad"
    operand = operand_def()
    value = operand_def()
    low = prop_def(DenseArrayBase[I64])
    high = prop_def(DenseArrayBase[I64])
    traits = traits_def(Pure(), IndexedRead())

    def __init__(
        self,
        operand: SSAValue | Operation,
        value: SSAValue | Operation,
        low: Sequence[int],
        high: Sequence[int],
    ):
        values = operand_values(operand, value)
        properties: dict[str, Attribute] = {"low": ints(low), "high": ints(high)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with larger sizes."""
        info, value = (tensor_info(operand) for operand in operands)
        if value.rank or value.element != info.element:
            raise VerifyException(f"the value is {value}; it is one {info.element.name} of rank 0")
        amounts = {name: int_values(properties.get(name)) for name in ("low", "high")}
        for name, given in amounts.items():
            if len(given) != info.rank:
                raise VerifyException(
                    f"{name} {list(given)} has {plural(len(given), 'value')} for the "
                    f"{plural(info.rank, 'dimension')} of {info.shape_text}"
                )
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
    traits = traits_def(Pure(), IndexedRead())

    def __init__(self, operand: SSAValue | Operation, indices: SSAValue | Operation, axis: int):
        values = operand_values(operand, indices)
        properties: dict[str, Attribute] = {"axis": IntegerAttr(axis, i64)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's sizes with the indices' in place of the axis."""
        info, indices = tensor_info(operands[0]), _indices(operands[1])
        axis = _axis(properties, info)
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
    traits = traits_def(Pure(), IndexedRead())

    def __init__(self, operand: SSAValue | Operation, indices: SSAValue | Operation, axis: int):
        values = operand_values(operand, indices)
        properties: dict[str, Attribute] = {"axis": IntegerAttr(axis, i64)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's element type in the indices' shape."""
        info, indices = tensor_info(operands[0]), _indices(operands[1])
        axis = _axis(properties, info)
        _check_beside(info, indices, axis)
        return info.with_sizes(indices.sizes)


def _check_beside(info: TensorInfo, indices: TensorInfo, axis: int) -> None:
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
    traits = traits_def(Pure(), IndexedRead())

    def __init__(self, operand: SSAValue | Operation, axes: Sequence[int]):
        values = operand_values(operand)
        properties: dict[str, Attribute] = {"axes": ints(axes)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

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
    traits = traits_def(Pure(), Composite())

    def __init__(self, operand: SSAValue | Operation, repeats: Sequence[int]):
        values = operand_values(operand)
        properties: dict[str, Attribute] = {"repeats": ints(repeats)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with its sizes multiplied."""
        info = tensor_info(operands[0])
        repeats = int_values(properties.get("repeats"))
        if len(repeats) != info.rank:
            raise VerifyException(
                f"repeats {list(repeats)} has {plural(len(repeats), 'value')} for the "
                f"{plural(info.rank, 'dimension')} of {info.shape_text}"
            )
        if any(count < 1 for count in repeats):
            raise VerifyException(f"repeats {list(repeats)} has a value below 1")
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
    traits = traits_def(Pure(), Composite())

    def __init__(
        self,
        indices: SSAValue | Operation,
        on: SSAValue | Operation,
        off: SSAValue | Operation,
        axis: int,
        depth: int,
    ):
        values = operand_values(indices, on, off)
        properties: dict[str, Attribute] = {
            "axis": IntegerAttr(axis, i64),
            "depth": IntegerAttr(depth, i64),
        }
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The indices' sizes with the depth inserted, in the element type of the two values."""
        indices, on, off = _indices(operands[0]), tensor_info(operands[1]), tensor_info(operands[2])
        if on != off or on.rank:
            raise VerifyException(f"on is {on} and off {off}; both have rank 0 and one element type")
        depth = int_value(properties.get("depth"))
        if depth < 1:
            raise VerifyException(f"depth is {depth}; it is at least 1")
        axis = checked_axis(int_value(properties.get("axis")), indices.rank + 1)
        return on.with_sizes([*indices.sizes[:axis], depth, *indices.sizes[axis:]])


ScatterMode = Literal["set", "add", "max", "min"]
SCATTER_MODES: tuple[ScatterMode, ...] = ("set", "add", "max", "min")


def _check_scatter(
    operands: Sequence[Attribute], properties: Properties
) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
    """Types of operand, indices and updates, with what all scatters ask of them checked."""
    info, indices, updates = tensor_info(operands[0]), _indices(operands[1]), tensor_info(operands[2])
    mode = properties.get("mode")
    if not isinstance(mode, StringAttr) or mode.data not in SCATTER_MODES:
        raise VerifyException(f"mode is {mode}; use one of {', '.join(SCATTER_MODES)}")
    if updates.element != info.element:
        raise VerifyException(
            f"updates are {updates.element.name}, the operand is {info.element.name}; cast one"
        )
    if mode.data != "set":
        require_numeric(info, "scatter with mode set, or cast to an integer type first")
    return info, indices, updates


def _check_updates(updates: TensorInfo, wanted: Sequence[Size]) -> None:
    if updates.sizes != tuple(wanted):
        shape = "x".join(str(size) for size in wanted) or "()"
        raise VerifyException(f"updates have shape {updates.shape_text}, the indices ask for {shape}")


class _Scatter(LogicalOp):
    """What scatters share."""

    operand = operand_def()
    indices = operand_def()
    updates = operand_def()
    mode = prop_def(StringAttr)

    def __init__(
        self,
        operand: SSAValue | Operation,
        indices: SSAValue | Operation,
        updates: SSAValue | Operation,
        mode: ScatterMode = "set",
        **properties: Attribute,
    ):
        values = operand_values(operand, indices, updates)
        given: dict[str, Attribute] = {"mode": StringAttr(mode), **properties}
        super().__init__(
            operands=values, result_types=[self.infer(operand_types(values), given)], properties=given
        )

    @property
    def scatter_mode(self) -> ScatterMode:
        """How updates are combined; only for an op that verifies."""
        return next(mode for mode in SCATTER_MODES if mode == self.mode.data)


@irdl_op_definition
class ScatterOp(_Scatter):
    """The operand with update i combined into its row ``indices[i]``, rows counted along dimension 0.

    Modes: ``set`` (of several updates of a row the last one stays), ``add`` (the operand's element first, then its
    updates in rising order), ``max`` and ``min`` (NaN wins). A negative index counts from the end; out of range it
    drops its update.
    """

    name = "logical.scatter"
    traits = traits_def(Pure(), Composite())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info, indices, updates = _check_scatter(operands, properties)
        if not info.rank or indices.rank != 1:
            raise VerifyException(
                f"the operand has shape {info.shape_text} and the indices {indices.shape_text}; the operand has rows "
                "and the indices rank 1"
            )
        _check_updates(updates, [*indices.sizes, *info.sizes[1:]])
        return info.with_sizes(info.sizes)


@irdl_op_definition
class ScatterCombineOp(_Scatter):
    """``logical.scatter`` with mode ``add``, ``max`` or ``min``, as a primitive op."""

    name = "logical.scatter_combine"
    traits = traits_def(Pure())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        if properties.get("mode") == StringAttr("set"):
            raise VerifyException("mode is set, which combines nothing; use logical.scatter")
        return ScatterOp.infer(operands, properties)


@irdl_op_definition
class LastUpdateOp(LogicalOp):
    """For each of ``rows`` rows the number (i32) of the last index that names it, -1 if none does.

    Indices as in ``logical.scatter``.
    """

    name = "logical.last_update"
    indices = operand_def()
    rows = prop_def(IntegerAttr[I64])
    traits = traits_def(Pure())

    def __init__(self, indices: SSAValue | Operation, rows: int):
        values = operand_values(indices)
        properties: dict[str, Attribute] = {"rows": IntegerAttr(rows, i64)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """One i32 a row."""
        indices, rows = _indices(operands[0]), int_value(properties.get("rows"))
        if indices.rank != 1:
            raise VerifyException(f"indices have shape {indices.shape_text}; they have rank 1")
        if rows < 1:
            raise VerifyException(f"rows is {rows}; it is at least 1")
        return tensor([rows], "i32")


@irdl_op_definition
class WriteRowOp(LogicalOp):
    """The operand with ``row`` in place of its slice at ``index`` along ``axis``.

    A negative index counts from the end; out of range it writes nothing. The row has the operand's shape, with size 1
    along the axis.
    """

    name = "logical.write_row"
    row = operand_def()
    index = operand_def()
    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Pure(), IndexedRead())

    def __init__(
        self,
        row: SSAValue | Operation,
        index: SSAValue | Operation,
        operand: SSAValue | Operation,
        axis: int,
    ):
        values = operand_values(row, index, operand)
        properties: dict[str, Attribute] = {"axis": IntegerAttr(axis, i64)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        row, index, info = tensor_info(operands[0]), _indices(operands[1]), tensor_info(operands[2])
        axis = _axis(properties, info)
        wanted = tensor_info(info.with_sizes([*info.sizes[:axis], 1, *info.sizes[axis + 1 :]]))
        if index.rank:
            raise VerifyException(f"the index has shape {index.shape_text}; it is one number of rank 0")
        if row != wanted:
            raise VerifyException(f"the row is {row}; it is a slice of {info} along axis {axis}, {wanted}")
        return info.with_sizes(info.sizes)


@irdl_op_definition
class ScatterElementsOp(_Scatter):
    """The operand with each update combined into the element that its index names along ``axis``.

    Modes and indices as in ``logical.scatter``; updates come in row-major order.
    """

    name = "logical.scatter_elements"
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Pure(), Composite())

    def __init__(
        self,
        operand: SSAValue | Operation,
        indices: SSAValue | Operation,
        updates: SSAValue | Operation,
        axis: int,
        mode: ScatterMode = "set",
    ):
        super().__init__(operand, indices, updates, mode, axis=IntegerAttr(axis, i64))

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info, indices, updates = _check_scatter(operands, properties)
        _check_beside(info, indices, _axis(properties, info))
        _check_updates(updates, indices.sizes)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class ScatterNdOp(_Scatter):
    """The operand with slices combined into it at places: the last dimension of the indices names one.

    Modes and indices as in ``logical.scatter``; a place is out of range if one of its indices is.
    """

    name = "logical.scatter_nd"
    traits = traits_def(Pure(), Composite())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info, indices, updates = _check_scatter(operands, properties)
        depth = indices.sizes[-1] if indices.rank else 0
        if not isinstance(depth, int) or not 1 <= depth <= info.rank:
            raise VerifyException(
                f"indices have shape {indices.shape_text}; the last dimension names 1 to {info.rank} dimensions of "
                f"{info.shape_text}"
            )
        _check_updates(updates, [*indices.sizes[:-1], *info.sizes[depth:]])
        return info.with_sizes(info.sizes)


@irdl_op_definition
class TopkIndicesOp(LogicalOp):
    """The places of the ``k`` largest elements along ``axis``, in falling order; ``smallest`` turns both round.

    Of equal elements the one at the lower place comes first. NaN counts as larger than every number. The elements
    themselves are what ``gather_elements`` reads at these places.
    """

    name = "logical.topk_indices"
    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    k = prop_def(IntegerAttr[I64])
    smallest = opt_prop_def(UnitAttr)
    traits = traits_def(Pure())

    def __init__(self, operand: SSAValue | Operation, axis: int, k: int, *, smallest: bool = False):
        values = operand_values(operand)
        properties: dict[str, Attribute] = {"axis": IntegerAttr(axis, i64), "k": IntegerAttr(k, i64)}
        if smallest:
            properties["smallest"] = UnitAttr()
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's sizes with ``k`` along the axis, in i64."""
        info = tensor_info(operands[0])
        axis, k = _axis(properties, info), int_value(properties.get("k"))
        size = info.sizes[axis]
        if not isinstance(size, int):
            raise VerifyException(
                f"dimension {axis} of {info.shape_text} is symbolic; its size must be known"
            )
        if not 1 <= k <= size:
            raise VerifyException(f"k is {k}; dimension {axis} of {info.shape_text} allows 1 to {size}")
        return tensor([*info.sizes[:axis], k, *info.sizes[axis + 1 :]], "i64")
