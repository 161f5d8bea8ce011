"""What is known while an ONNX graph is lowered: which values are, and which can be constants of the program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Block, SSAValue

from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.dialects.types import element_of_dtype, tensor
from aicf.passes.onnx.ops import Counted, Items, Known, Result, Value
from aicf.passes.onnx.ops.base import Array, OneResult

MAX_FOLDED_ELEMENTS = 1 << 16
"""Largest operand or result, in elements, of a node that is evaluated instead of written."""


def is_known(value: Value) -> bool:
    """Whether nothing of a value is computed at run time."""
    if isinstance(value, Items):
        return not any(isinstance(item, SSAValue) for item in value.items)
    return not isinstance(value, SSAValue | Counted)


def placeholder(array: Array) -> SSAValue:
    """A value of the type of an array, which no op gives."""
    return Block(arg_types=[tensor(array.shape, element_of_dtype(array.dtype))]).args[0]


def listed(result: Result) -> list[OneResult]:
    """What a row gave, as one entry for each output."""
    if result is None or isinstance(result, SSAValue | Known | Items | Counted | np.ndarray):
        return [result]
    return list(result)


def as_value(result: OneResult) -> Value:
    """What a row gave for one output, where it is nothing that the row wrote."""
    return Known(result) if isinstance(result, np.ndarray) else result


def is_splat(array: Array) -> bool:
    """Whether all elements have the same bits, as far as the layout tells where there are many."""
    if array.size > MAX_FOLDED_ELEMENTS:
        return all(stride == 0 for stride, size in zip(array.strides, array.shape, strict=True) if size > 1)
    raw = array.tobytes()
    return array.size > 0 and raw == raw[: array.itemsize] * array.size


def follows_from_weights(value: Known, operands: Sequence[Value]) -> bool:
    """Whether the elements of a known result are those of weights, computed with, and not sizes or indices."""
    is_float = element_of_dtype(value.array.dtype).is_float
    return is_float and any(isinstance(operand, Known) and operand.is_weight for operand in operands)


def fits(array: Array) -> bool:
    """Whether a tensor can be a constant of the program."""
    return array.size <= MAX_CONSTANT_ELEMENTS or is_splat(array)
