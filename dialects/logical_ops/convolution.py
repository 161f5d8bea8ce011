"""Convolutions along any number of dimensions, and their transposes; channels come before those: [N, C, S1..Sk].

f16 and bf16 accumulate in f32; integers wrap around, in i32 where a convolution of short ones widens. Which algorithm
computes one is no business of this file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, opt_prop_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.kinds import CONV_DIMS
from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    OwnKind,
    check_elements,
    plural,
    sums_like,
    value_per_dimension,
)
from aicf.dialects.logical_ops.properties import Properties, int_value, int_values
from aicf.dialects.traits import Composite, Contraction, PositionalOperands
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["ConvOp", "ConvTransposeOp"]

_KIND_ATTRS = (("stride", "strides", 1), ("dilation", "dilations", 1), ("low", "low", 0))
"""Attributes of a kind, one for each dimension, with the property and the value for dimensions that it has not."""


@irdl_op_definition
class ConvOp(LogicalOp):
    """The sums of products of a weight and the windows of each group of channels, padded with zeros or another value.

    Operand [N, C, S1..Sk], weight [M, C / groups, K1..Kk], bias [M], result [N, M, O1..Ok]: ``low`` and ``high``
    zeros lie around, a window is K elements, ``dilations`` apart, and windows are ``strides`` apart, so
    O = (S + low + high - (K - 1) * dilation - 1) / stride + 1, rounded down. Output channel m sees the channels of
    group m / (M / groups) alone. By default ``strides`` and ``dilations`` are 1, ``low`` is 0 and ``high`` is ``low``.
    With ``widening`` operand and weight are integers of at most 16 bits, of one type or two, and bias and result are
    i32: the exact sums. Then ``padding_value``, any integer of the operand's type, lies around instead of zeros.
    """

    name = "logical.conv"
    operand = operand_def()
    weight = operand_def()
    bias = opt_operand_def()
    strides = prop_def(DenseArrayBase[I64])
    low = prop_def(DenseArrayBase[I64])
    high = prop_def(DenseArrayBase[I64])
    dilations = prop_def(DenseArrayBase[I64])
    groups = prop_def(IntegerAttr[I64])
    widening = opt_prop_def(UnitAttr)
    padding_value = opt_prop_def(IntegerAttr[I64])
    traits = traits_def(Composite(), Contraction(), PositionalOperands())

    def __init__(
        self,
        operand: Operand,
        weight: Operand,
        bias: Operand | None = None,
        *,
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        groups: int = 1,
        widening: bool = False,
        padding_value: int = 0,
    ):
        low = for_each_dimension(operand, low, 0)
        super().__init__(
            *(operand, weight, bias),
            strides=for_each_dimension(operand, strides, 1),
            low=low,
            high=low if high is None else high,
            dilations=for_each_dimension(operand, dilations, 1),
            groups=groups,
            widening=widening,
            padding_value=None if padding_value == 0 else padding_value,
        )

    @property
    def around(self) -> int:
        """What lies around the operand."""
        return 0 if self.padding_value is None else self.padding_value.value.data

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[N, M, O1..Ok]`` of the operands' element type, or of i32 with ``widening``."""
        x, weight, *rest = (tensor_info(operand) for operand in operands)
        groups = _check_operands(x, weight, rest, properties)
        _check_padding_value(x, properties)
        _check_channels("operand", x, 1, weight.shape[1] * groups)
        if weight.shape[0] % groups:
            raise VerifyException(f"{weight.shape[0]} output channels do not split into {groups} groups")
        _check_bias(rest, weight.shape[0])
        lists = zip(_dims(x), weight.shape[2:], *_windows(x, properties), strict=True)
        counts = [_count(x, dim, *one) for dim, one in enumerate(lists, 2)]
        return sums_like(x, "widening" in properties).with_sizes([x.sizes[0], weight.sizes[0], *counts])


@irdl_op_definition
class ConvTransposeOp(LogicalOp):
    """What a convolution passes back to its operand: each element, times the weight, added to all of its window.

    Operand [N, C, S1..Sk], weight [C, M / groups, K1..Kk], bias [M], result [N, M, O1..Ok]: windows of K elements,
    ``dilations`` apart, are added up ``strides`` apart; then ``low`` and ``high`` elements are cut off and ``extra``
    zeros added at the end: O = (S - 1) * stride + (K - 1) * dilation + 1 - low - high + extra. The channels of group g
    of the operand reach group g of the result alone. Defaults are those of ``conv``, and no ``extra``.
    """

    name = "logical.conv_transpose"
    operand = operand_def()
    weight = operand_def()
    bias = opt_operand_def()
    strides = prop_def(DenseArrayBase[I64])
    low = prop_def(DenseArrayBase[I64])
    high = prop_def(DenseArrayBase[I64])
    extra = prop_def(DenseArrayBase[I64])
    dilations = prop_def(DenseArrayBase[I64])
    groups = prop_def(IntegerAttr[I64])
    traits = traits_def(Composite(), Contraction(), PositionalOperands())

    def __init__(
        self,
        operand: Operand,
        weight: Operand,
        bias: Operand | None = None,
        *,
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        extra: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        groups: int = 1,
    ):
        low = for_each_dimension(operand, low, 0)
        super().__init__(
            *(operand, weight, bias),
            strides=for_each_dimension(operand, strides, 1),
            low=low,
            high=low if high is None else high,
            extra=for_each_dimension(operand, extra, 0),
            dilations=for_each_dimension(operand, dilations, 1),
            groups=groups,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[N, M, O1..Ok]`` of the operands' element type."""
        x, weight, *rest = (tensor_info(operand) for operand in operands)
        groups = _check_operands(x, weight, rest, properties)
        _check_channels("operand", x, 1, weight.shape[0])
        if weight.shape[0] % groups:
            raise VerifyException(f"{weight.shape[0]} input channels do not split into {groups} groups")
        outputs = weight.shape[1] * groups
        _check_bias(rest, outputs)
        extra = value_per_dimension("extra", properties, x, 0, leading=2)
        sizes = [
            (size - 1) * stride + (taps - 1) * dilation + 1 - low - high + more
            for size, taps, stride, low, high, dilation, more in zip(
                _dims(x), weight.shape[2:], *_windows(x, properties), extra, strict=True
            )
        ]
        for dim, size in enumerate(sizes, 2):
            if size < 1:
                raise VerifyException(f"dimension {dim} of the result has {size} elements; cut off less")
        return x.with_sizes([x.sizes[0], outputs, *sizes])

    def kind_alone(self) -> OwnKind | None:
        """`conv_transpose`; none with a bias, or of more dimensions than its attributes have room for."""
        if self.bias is not None or len(int_values(self.strides)) > CONV_DIMS:
            return None
        return "conv_transpose", {"groups": self.groups, **window_attrs(self)}


def window_attrs(op: LogicalOp) -> dict[str, Attribute]:
    """The attributes of a kind that say how the windows of a convolution slide, one for each dimension."""
    attrs: dict[str, Attribute] = {}
    for name, source, absent in _KIND_ATTRS:
        values = int_values(op.properties[source])
        for dim in range(CONV_DIMS):
            attrs[f"{name}_{dim}"] = IntegerAttr(values[dim] if dim < len(values) else absent, i64)
    return attrs


def for_each_dimension(operand: Operand, values: Sequence[int] | None, default: int) -> Sequence[int]:
    """The values, or the default for each dimension of a window."""
    if values is not None:
        return values
    return [default] * max(tensor_info(SSAValue.get(operand).type).rank - 2, 0)


def _check_operands(
    x: TensorInfo, weight: TensorInfo, rest: Sequence[TensorInfo], properties: Properties
) -> int:
    """Ranks, element types and known sizes; gives the number of groups."""
    widening = "widening" in properties
    check_elements({"operand": x, "weight": weight}, widening)
    sums = sums_like(x, widening).element
    if x.rank < 3 or weight.rank != x.rank:
        raise VerifyException(
            f"operand {x} and weight {weight} have ranks {x.rank} and {weight.rank}; both are channels of "
            "as many dimensions: rank 3 for one, 4 for two"
        )
    for name, info, dims in (("operand", x, x.sizes[1:]), ("weight", weight, weight.sizes)):
        check_known(name, info, dims)
    for bias in rest:
        if bias.element != sums:
            raise VerifyException(
                f"element types differ: {'sums' if widening else 'operand'} {sums.name}, bias {bias.element.name}"
            )
    return group_count(properties)


def check_known(name: str, info: TensorInfo, dims: Sequence[Size]) -> None:
    """Refuse symbolic sizes. Raises VerifyException."""
    if not all(isinstance(size, int) for size in dims):
        raise VerifyException(f"{name} {info}: only the first size of the operand may be symbolic")


def group_count(properties: Properties) -> int:
    """The property `groups`. Raises VerifyException if it is less than 1."""
    groups = int_value(properties.get("groups"))
    if groups < 1:
        raise VerifyException(f"groups is {groups}; it is at least 1")
    return groups


def _check_padding_value(x: TensorInfo, properties: Properties) -> None:
    """An integer that the operand's type holds, of a convolution that widens."""
    if "padding_value" not in properties:
        return
    value = int_value(properties["padding_value"])
    if "widening" not in properties:
        raise VerifyException(
            "padding_value is of short integers; add widening, or pad the operand with logical.pad"
        )
    limits = np.iinfo(x.element.dtype)
    if not limits.min <= value <= limits.max:
        raise VerifyException(
            f"padding_value is {value}; {x.element.name} holds {limits.min} to {limits.max}"
        )


def _dims(x: TensorInfo) -> list[int]:
    """The sizes after the channels, of an operand that was checked."""
    return [size for size in x.sizes[2:] if isinstance(size, int)]


def _check_channels(name: str, info: TensorInfo, dim: int, wanted: int) -> None:
    if info.sizes[dim] != wanted:
        raise VerifyException(
            f"{name} {info.shape_text} has {info.sizes[dim]} channels (dim {dim}), the weight takes {wanted}"
        )


def _check_bias(rest: Sequence[TensorInfo], outputs: int) -> None:
    for bias in rest:
        if bias.sizes != (outputs,):
            raise VerifyException(
                f"bias has shape {bias.shape_text}, but there are {plural(outputs, 'output channel')}"
            )


def _windows(x: TensorInfo, properties: Properties) -> list[tuple[int, ...]]:
    """Strides, low, high and dilations, one value each for every dimension of a window."""
    least = {"strides": 1, "low": 0, "high": 0, "dilations": 1}
    return [value_per_dimension(name, properties, x, bound, leading=2) for name, bound in least.items()]


def _count(
    x: TensorInfo, dim: int, size: int, taps: int, stride: int, low: int, high: int, dilation: int
) -> int:
    span = (taps - 1) * dilation + 1
    if span > size + low + high:
        raise VerifyException(
            f"dimension {dim} of {x.shape_text}: a window spans {span} elements of {size + low + high}; "
            "pad it, or take smaller windows"
        )
    return (size + low + high - span) // stride + 1
