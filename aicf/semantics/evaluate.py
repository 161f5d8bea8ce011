"""Running logical ops on NumPy arrays, in one of two arithmetics.

``exact``: floats are float64 whatever their type, integers as typed; the yardstick for rewrites, which
preserve it. ``typed``: every value is rounded to its type; an op computes in float64, or in float32 where f16,
bf16 and floats of 8 bits must accumulate in f32, and rounds once. Which order a kernel sums in is not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from aicf.dialects.logical import CustomOp, GradientOp, LogicalOp
from aicf.dialects.types import ElementType, element_of, tensor_info
from aicf.errors import InvalidIR
from aicf.semantics.base import Array
from aicf.semantics.meanings import SEMANTICS

Mode: TypeAlias = Literal["exact", "typed"]

_REQUESTS: Mapping[type[Operation], str] = {
    GradientOp: "it says what is asked for, not how; run differentiate first"
}


def evaluate(op: Operation, operands: Sequence[Array], mode: Mode) -> tuple[Array, ...]:
    """Run one op.

    Args:
        op: A value-producing logical op of static type.
        operands: One array per operand, of the operand's shape; dtypes are converted as ``mode`` says.
        mode: The arithmetic.

    Returns:
        One array per result: float64 (exact) or the type's dtype (typed) for floats, the type's dtype for the
        others.

    Raises:
        InvalidIR: the op is not in the table, has symbolic sizes, or an operand has the wrong shape.
    """
    if isinstance(op, CustomOp) and op.whole_op is not None:
        return _evaluate_whole(op, operands, mode)
    meaning = SEMANTICS.get(type(op))
    if meaning is None or not isinstance(op, LogicalOp):
        reason = _REQUESTS.get(type(op), "only logical ops that give a value do")
        raise InvalidIR(f"{op.name} has no meaning of its own here: {reason}")
    info = op.info
    if not info.is_static:
        raise InvalidIR(f"{op.name}: result {info} has symbolic dimensions; run specialize-shapes first")
    arrays = [
        _operand(op, index, value, array, mode)
        for index, (value, array) in enumerate(zip(op.operands, operands, strict=True))
    ]
    with np.errstate(all="ignore"):
        found = meaning(op, arrays)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(
            np.asarray(array).astype(value_dtype(element_of(value.type), mode), copy=False)
            for value, array in zip(op.results, results, strict=True)
        )


def _evaluate_whole(op: CustomOp, operands: Sequence[Array], mode: Mode) -> tuple[Array, ...]:
    """Run the op of the dialect that another one stands for."""
    whole = op.unwrapped()
    try:
        return evaluate(whole, operands, mode)
    finally:
        whole.drop_all_references()


def evaluate_block(block: Block, args: Sequence[Array], mode: Mode) -> list[Array]:
    """Run the logical ops of a block and give what its terminator passes on, in order.

    Args:
        block: Logical ops, then ``func.return`` or ``emit.yield``.
        args: One array per block argument.
        mode: The arithmetic.

    Raises:
        InvalidIR: as :func:`evaluate`, or the block has no terminator.
    """
    values: dict[SSAValue, Array] = {
        argument: as_value(array, element_of(argument.type), mode)
        for argument, array in zip(block.args, args, strict=True)
    }
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if op.has_trait(IsTerminator):
            return operands
        values.update(zip(op.results, evaluate(op, operands, mode), strict=True))
    raise InvalidIR("the block ends without func.return or emit.yield")


def value_dtype(element: ElementType, mode: Mode) -> np.dtype[Any]:
    """The dtype that values of an element type have in a mode."""
    return np.dtype(np.float64) if mode == "exact" and element.is_float else element.dtype


def as_value(array: Array, element: ElementType, mode: Mode) -> Array:
    """Convert an array to the dtype of a value."""
    array, dtype = np.asarray(array), value_dtype(element, mode)
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _operand(op: Operation, index: int, value: SSAValue, array: Array, mode: Mode) -> Array:
    info = tensor_info(value.type)
    if array.shape != info.sizes:
        raise InvalidIR(f"{op.name}: operand {index} is {info}, but the array given has shape {array.shape}")
    # Row-major, so that the order of a sum follows from the shape and not from who made the array.
    converted = np.asarray(as_value(array, info.element, mode), order="C")
    return (
        converted.astype(_compute_dtype(info.element), copy=False)
        if info.element.is_float and mode == "typed"
        else converted
    )


def _compute_dtype(element: ElementType) -> np.dtype[Any]:
    return np.dtype(np.float32) if element.bytes <= 2 else np.dtype(np.float64)
