"""Pooling: windows that slide along the spatial dimensions of ``[N, C, S1..Sk]``, each combined to one element.

All take the window's ``sizes``, ``strides`` and ``dilations`` and the padding ``low`` before and ``high`` after, one
value each for a spatial dimension. A window that leaves the padded operand is left out. With ``ceil_mode`` the count of
windows is rounded up instead, without the last one if that would start after the operand; beyond the padding a window
finds nothing.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.kinds import CONV_DIMS, FLAGS
from aicf.dialects.logical_ops.base import (
    ElementRule,
    LogicalOp,
    Operand,
    OwnKind,
    TypeText,
    require_float,
    require_numeric,
    value_per_dimension,
)
from aicf.dialects.logical_ops.properties import Properties, int_value, int_values
from aicf.dialects.traits import Composite, StridedOperands
from aicf.dialects.types import AnyTensor, TensorInfo, tensor, tensor_info

__all__ = [
    "MOST_TAPS",
    "AvgPoolOp",
    "LpPoolOp",
    "MaxPoolIndicesOp",
    "MaxPoolOp",
    "MaxPoolTapsOp",
    "PoolOp",
    "PoolWindow",
]

LEADING = 2
"""Dimensions before the spatial ones: batch and channels."""
MOST_TAPS = 127
"""Elements of the longest window of which an i8 says which one is meant, or that none is."""


@dataclass(frozen=True)
class PoolWindow:
    """The windows along one spatial dimension of ``whole`` elements."""

    whole: int
    size: int
    stride: int
    dilation: int
    low: int
    high: int
    ceil_mode: bool

    @property
    def extent(self) -> int:
        """Elements from the first to the last of a window."""
        return (self.size - 1) * self.dilation + 1

    @property
    def count(self) -> int:
        """How many windows there are; less than 1 if not one fits."""
        room = self.whole + self.low + self.high - self.extent
        if not self.ceil_mode:
            return room // self.stride + 1
        count = -(-room // self.stride) + 1
        starts_beyond = (count - 1) * self.stride >= self.whole + self.low
        return count - 1 if starts_beyond else count

    @property
    def reach(self) -> int:
        """How many elements after the operand the windows reach; with `ceil_mode` this may exceed `high`."""
        return max(0, (self.count - 1) * self.stride + self.extent - self.whole - self.low)


class PoolOp(LogicalOp, ABC):
    """What windows of the operand are combined to; the other dimensions stay."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW
    ELEMENTS: ClassVar[ElementRule] = require_float
    RESULT: ClassVar[str | None] = None
    """The element type of the result, where it is not the operand's."""

    operand = operand_def()
    sizes = prop_def(DenseArrayBase[I64])
    strides = prop_def(DenseArrayBase[I64])
    dilations = prop_def(DenseArrayBase[I64])
    low = prop_def(DenseArrayBase[I64])
    high = prop_def(DenseArrayBase[I64])
    ceil_mode = opt_prop_def(UnitAttr)

    def __init__(
        self,
        operand: Operand,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
        **more: int | bool,
    ):
        ones, zeros = [1] * len(sizes), [0] * len(sizes)
        super().__init__(
            operand,
            sizes=sizes,
            strides=ones if strides is None else strides,
            dilations=ones if dilations is None else dilations,
            low=zeros if low is None else low,
            high=zeros if high is None else high,
            ceil_mode=ceil_mode,
            result=None,
            **more,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type with counts of windows in place of the spatial sizes."""
        info = tensor_info(operands[0])
        cls.ELEMENTS(info)
        counts = [window.count for window in _windows(info, properties)]
        for axis, count in enumerate(counts, LEADING):
            if count < 1:
                raise VerifyException(
                    f"dimension {axis} of {info.shape_text} is smaller than a window, padding included"
                )
        return tensor([*info.sizes[:LEADING], *counts], cls.RESULT or info.element)

    @property
    def windows(self) -> list[PoolWindow]:
        """The windows along each spatial dimension."""
        return _windows(tensor_info(self.operand.type), self.properties)


def _windows(info: TensorInfo, properties: Properties) -> list[PoolWindow]:
    spatial = info.rank - LEADING
    if spatial < 1:
        raise VerifyException(
            f"operand {info} has rank {info.rank}; it is [N, C, S1..Sk] with one spatial dimension or more"
        )
    lists = {
        name: value_per_dimension(name, properties, info, least, leading=LEADING)
        for name, least in (("sizes", 1), ("strides", 1), ("dilations", 1), ("low", 0), ("high", 0))
    }
    return [
        PoolWindow(
            whole=_known(info, LEADING + dim),
            ceil_mode="ceil_mode" in properties,
            size=lists["sizes"][dim],
            stride=lists["strides"][dim],
            dilation=lists["dilations"][dim],
            low=lists["low"][dim],
            high=lists["high"][dim],
        )
        for dim in range(spatial)
    ]


def _pool_kind(mode: str, windows: Sequence[PoolWindow], include_pad: bool = False) -> OwnKind | None:
    """Kind `pool`; none of more dimensions than its attributes have room for."""
    if len(windows) > CONV_DIMS:
        return None
    own = {"mode": StringAttr(mode), "count_include_pad": FLAGS[include_pad]}
    return "pool", {**own, **_window_attrs(windows)}


def _window_attrs(windows: Sequence[PoolWindow]) -> dict[str, Attribute]:
    """The attributes of a kind that say how windows slide."""
    attrs: dict[str, Attribute] = {}
    for name, absent in (("size", 1), ("stride", 1), ("dilation", 1), ("low", 0), ("high", 0)):
        for dim in range(CONV_DIMS):
            value = getattr(windows[dim], name) if dim < len(windows) else absent
            attrs[f"{name}_{dim}"] = IntegerAttr(value, i64)
    return attrs


def _known(info: TensorInfo, axis: int) -> int:
    size = info.sizes[axis]
    if not isinstance(size, int):
        raise VerifyException(
            f"dimension {axis} of {info.shape_text} is symbolic; windows slide along dimensions of known size"
        )
    return size


@irdl_op_definition
class MaxPoolOp(PoolOp):
    """The largest element of each window; NaN if it holds one. Padding is smaller than every number."""

    name = "logical.max_pool"
    ELEMENTS: ClassVar[ElementRule] = require_numeric
    traits = traits_def(Composite(), StridedOperands())

    def kind_alone(self) -> OwnKind | None:
        """`pool`, of the largest element."""
        return _pool_kind("max", self.windows)


@irdl_op_definition
class MaxPoolIndicesOp(PoolOp):
    """Where the largest element of each window lies, the first of several, counted in row-major order over the spatial
    dimensions, as i64; a NaN is larger than all. The count of elements itself of a window that finds none.
    """

    name = "logical.max_pool_indices"
    ELEMENTS: ClassVar[ElementRule] = require_numeric
    RESULT: ClassVar[str | None] = "i64"
    traits = traits_def(Composite())


@irdl_op_definition
class MaxPoolTapsOp(PoolOp):
    """Which element of each window is the largest, the first of several, counted in row-major order over the window, as
    i8; a NaN is larger than all. The number of elements of a window where it finds none. Floats only.
    """

    name = "logical.max_pool_taps"
    RESULT: ClassVar[str | None] = "i8"
    traits = traits_def(Composite(), StridedOperands())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """As every pooling's, for windows of no more elements than an i8 counts."""
        found = super().infer(operands, properties)
        if (taps := prod(int_values(properties["sizes"]))) > MOST_TAPS:
            raise VerifyException(
                f"a window has {taps} elements, and an i8 counts {MOST_TAPS}; use logical.max_pool_indices"
            )
        return found

    def kind_alone(self) -> OwnKind | None:
        """`pool_taps`; none of more dimensions than its attributes have room for."""
        windows = self.windows
        return None if len(windows) > CONV_DIMS else ("pool_taps", _window_attrs(windows))


@irdl_op_definition
class AvgPoolOp(PoolOp):
    """The mean of the elements of each window; with ``count_include_pad`` padding counts as zeros. Floats only.

    NaN of a window that finds nothing.
    """

    name = "logical.avg_pool"
    count_include_pad = opt_prop_def(UnitAttr)
    traits = traits_def(Composite(), StridedOperands())

    def __init__(
        self,
        operand: Operand,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ):
        super().__init__(
            operand,
            *(sizes, strides, dilations, low, high),
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )

    def kind_alone(self) -> OwnKind | None:
        """`pool`, of the mean."""
        return _pool_kind("avg", self.windows, self.count_include_pad is not None)


@irdl_op_definition
class LpPoolOp(PoolOp):
    """``(sum of |x| ** p) ** (1 / p)`` over each window, ``p`` a whole number of at least 1; floats only."""

    name = "logical.lp_pool"
    p = prop_def(IntegerAttr[I64])
    traits = traits_def(Composite())

    def __init__(
        self,
        operand: Operand,
        p: int,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
    ):
        super().__init__(operand, *(sizes, strides, dilations, low, high), ceil_mode=ceil_mode, p=p)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """As every pooling's, for p of at least 1."""
        if (p := int_value(properties.get("p"))) < 1:
            raise VerifyException(f"p is {p}; it is a whole number of at least 1")
        return super().infer(operands, properties)
