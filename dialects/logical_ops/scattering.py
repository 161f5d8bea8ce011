"""Ops that write at indices: rows, elements or slices of an operand, of which each gives a new value.

All are defined for every input. An index counts from the end if it is negative, as in NumPy; out of range it writes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from xdsl.dialects.builtin import I64, IntegerAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind, counted_axis, require_numeric
from aicf.dialects.logical_ops.indexing import axis_of, check_beside, indices_info
from aicf.dialects.logical_ops.properties import Properties, int_value, word_value
from aicf.dialects.traits import Composite, IndexedRead, Internal, PositionalOperands, TakesFloat8
from aicf.dialects.types import AnyTensor, TensorInfo, tensor, tensor_info

__all__ = [
    "SCATTER_MODES",
    "LastUpdateOp",
    "ScatterCombineOp",
    "ScatterElementsOp",
    "ScatterMode",
    "ScatterNdOp",
    "ScatterOp",
    "WriteRowOp",
]

ScatterMode = Literal["set", "add", "max", "min", "mul"]
SCATTER_MODES: tuple[ScatterMode, ...] = ("set", "add", "max", "min", "mul")


def _check_scatter(
    operands: Sequence[Attribute], properties: Properties
) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
    """Types of operand, indices and updates, with what all scatters ask of them checked."""
    info, indices, updates = tensor_info(operands[0]), indices_info(operands[1]), tensor_info(operands[2])
    mode = word_value("mode", properties, SCATTER_MODES)
    if updates.element != info.element:
        raise VerifyException(
            f"updates are {updates.element.name}, the operand is {info.element.name}; cast one"
        )
    if mode != "set":
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
        operand: Operand,
        indices: Operand,
        updates: Operand,
        mode: ScatterMode = "set",
        **properties: object,
    ):
        super().__init__(operand, indices, updates, result=None, mode=mode, **properties)

    @property
    def scatter_mode(self) -> ScatterMode:
        """How updates are combined; only for an op that verifies."""
        return next(mode for mode in SCATTER_MODES if mode == self.mode.data)


@irdl_op_definition
class ScatterOp(_Scatter):
    """The operand with update i combined into its row ``indices[i]``, rows counted along dimension 0.

    Modes: ``set`` (of several updates of a row the last one stays), ``add`` and ``mul`` (the operand's element
    first, then its updates in rising order), ``max`` and ``min`` (NaN wins). A negative index counts from the end;
    out of range it drops its update.
    """

    name = "logical.scatter"
    traits = traits_def(Composite())

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
    """``logical.scatter`` with mode ``add``, ``max``, ``min`` or ``mul``, as a primitive op."""

    name = "logical.scatter_combine"
    traits = traits_def(PositionalOperands(), Internal())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        if properties.get("mode") == StringAttr("set"):
            raise VerifyException("mode is set, which combines nothing; use logical.scatter")
        return ScatterOp.infer(operands, properties)

    def kind_alone(self) -> OwnKind | None:
        """`scatter_combine`, with its mode."""
        return "scatter_combine", {"mode": self.mode}


@irdl_op_definition
class ScatterElementsOp(_Scatter):
    """The operand with each update combined into the element that its index names along ``axis``.

    Modes and indices as in ``logical.scatter``; updates come in row-major order.
    """

    name = "logical.scatter_elements"
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(Composite())

    def __init__(
        self,
        operand: Operand,
        indices: Operand,
        updates: Operand,
        axis: int,
        mode: ScatterMode = "set",
    ):
        super().__init__(operand, indices, updates, mode, axis=counted_axis(axis, operand))

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info, indices, updates = _check_scatter(operands, properties)
        check_beside(info, indices, axis_of(properties, info))
        _check_updates(updates, indices.sizes)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class ScatterNdOp(_Scatter):
    """The operand with slices combined into it at indices: the last dimension of the indices names one.

    Modes and indices as in ``logical.scatter``; an index is out of range if one of its indices is.
    """

    name = "logical.scatter_nd"
    traits = traits_def(Composite())

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
class LastUpdateOp(LogicalOp):
    """For each of ``rows`` rows the number (i32) of the last index that names it, -1 if none does.

    Indices as in ``logical.scatter``.
    """

    name = "logical.last_update"
    indices = operand_def()
    rows = prop_def(IntegerAttr[I64])
    traits = traits_def(PositionalOperands(), Internal())

    def __init__(self, indices: Operand, rows: int):
        super().__init__(indices, rows=rows)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """One i32 a row."""
        indices, rows = indices_info(operands[0]), int_value(properties.get("rows"))
        if indices.rank != 1:
            raise VerifyException(f"indices have shape {indices.shape_text}; they have rank 1")
        if rows < 1:
            raise VerifyException(f"rows is {rows}; it is at least 1")
        return tensor([rows], "i32")

    def kind_alone(self) -> OwnKind | None:
        """`last_update`."""
        return "last_update", {}


@irdl_op_definition
class WriteRowOp(LogicalOp):
    """The operand with the rows of ``row`` in place of its slices from ``index`` on along ``axis``.

    Row i goes to ``index + i``, which counts from the end if it is negative; out of range it is not written. ``row``
    has the operand's shape, but along the axis one row or several, at most those of the operand. The index is one
    number of rank 0, or one for each of as many leading dimensions as it has, all of them before the axis.
    """

    name = "logical.write_row"
    row = operand_def()
    index = operand_def()
    operand = operand_def()
    axis = prop_def(IntegerAttr[I64])
    traits = traits_def(IndexedRead(), Internal(), TakesFloat8())

    def __init__(
        self,
        row: Operand,
        index: Operand,
        operand: Operand,
        axis: int,
    ):
        super().__init__(row, index, operand, axis=axis)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        row, index, info = tensor_info(operands[0]), indices_info(operands[1]), tensor_info(operands[2])
        axis = axis_of(properties, info)
        rows, most = row.sizes[axis] if row.rank == info.rank else 1, info.sizes[axis]
        if isinstance(rows, int) and isinstance(most, int) and not 1 <= rows <= most:
            raise VerifyException(f"there are {rows} rows to write along axis {axis}, which has {most}")
        wanted = tensor_info(info.with_sizes([*info.sizes[:axis], rows, *info.sizes[axis + 1 :]]))
        if index.rank > axis or index.sizes != info.sizes[: index.rank]:
            raise VerifyException(
                f"the index has shape {index.shape_text}; it is one number of rank 0, or one for each of leading "
                f"dimensions of {info} before axis {axis}"
            )
        if row != wanted:
            raise VerifyException(f"the row is {row}; it is a slice of {info} along axis {axis}, {wanted}")
        return info.with_sizes(info.sizes)

    @property
    def rows(self) -> int:
        """How many rows are written. Raises VerifyException if their number is a symbol."""
        return tensor_info(self.row.type).shape[self.axis.value.data]
