"""Contractions: matrix products.

f16 and bf16 products accumulate in f32; integers wrap around. A product that widens adds up short integers in i32 and
floats of 8 bits in f32. What multiplies which tiles is no business of this file.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, opt_prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    check_elements,
    require_numeric,
    sums_like,
)
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import Composite, Contraction, MatrixKernels, PositionalOperands, TakesFloat8
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["LinearOp", "MatmulOp"]


@irdl_op_definition
class MatmulOp(LogicalOp):
    """``a @ b`` over the last two dimensions, either transposed first.

    a: ``[batch..., M, K]``, b: ``[batch..., K, N]``; the batches broadcast: their sizes are equal or 1 from the right,
    and those that one of them lacks are the other's. With ``widening`` the operands are of one type or two: integers
    of at most 16 bits, and the result is the exact sums in i32, or floats of 8 bits, and the result is sums in f32.
    """

    name = "logical.matmul"
    lhs = operand_def()
    rhs = operand_def()
    transpose_a = opt_prop_def(UnitAttr)
    transpose_b = opt_prop_def(UnitAttr)
    widening = opt_prop_def(UnitAttr)
    traits = traits_def(Contraction(), PositionalOperands(), MatrixKernels(), TakesFloat8())

    def __init__(
        self,
        lhs: Operand,
        rhs: Operand,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        widening: bool = False,
    ):
        super().__init__(lhs, rhs, transpose_a=transpose_a, transpose_b=transpose_b, widening=widening)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[batch..., M, N]`` of the operands' element type, or of i32 or f32 with ``widening``."""
        lhs, rhs = tensor_info(operands[0]), tensor_info(operands[1])
        widening = "widening" in properties
        _check_factors(lhs, rhs, widening)
        row_dim, lhs_dim = _matrix_dims(lhs, "transpose_a" in properties)
        rhs_dim, column_dim = _matrix_dims(rhs, "transpose_b" in properties)
        if lhs.sizes[lhs_dim] != rhs.sizes[rhs_dim]:
            raise VerifyException(
                f"contracted sizes differ: lhs K = {lhs.sizes[lhs_dim]} (dim {lhs_dim} of {lhs.shape_text}), "
                f"rhs K = {rhs.sizes[rhs_dim]} (dim {rhs_dim} of {rhs.shape_text})"
            )
        batch = _joint_batch(lhs, rhs)
        return sums_like(lhs, widening).with_sizes([*batch, lhs.sizes[row_dim], rhs.sizes[column_dim]])


def _check_factors(lhs: TensorInfo, rhs: TensorInfo, widening: bool) -> None:
    for name, info in (("lhs", lhs), ("rhs", rhs)):
        if info.rank < 2:
            raise VerifyException(f"{name} {info} has rank {info.rank}; a matrix has at least 2 dimensions")
    check_elements({"lhs": lhs, "rhs": rhs}, widening)


def _joint_batch(lhs: TensorInfo, rhs: TensorInfo) -> list[Size]:
    """The batch that both broadcast to."""
    rank = max(lhs.rank, rhs.rank) - 2
    joint: list[Size] = [1] * rank
    for info in (lhs, rhs):
        for dim, size in enumerate(info.sizes[:-2], rank + 2 - info.rank):
            if joint[dim] != 1 and size not in (1, joint[dim]):
                raise VerifyException(
                    f"batch sizes differ: lhs {lhs.shape_text}, rhs {rhs.shape_text}; "
                    "they are equal or 1 from the right"
                )
            joint[dim] = joint[dim] if size == 1 else size
    return joint


def _matrix_dims(info: TensorInfo, transposed: bool) -> tuple[int, int]:
    rows, columns = info.rank - 2, info.rank - 1
    return (columns, rows) if transposed else (rows, columns)


@irdl_op_definition
class LinearOp(LogicalOp):
    """``x @ w.T + b``: x ``[..., K]``, weight ``[N, K]``, optional bias ``[N]``, result ``[..., N]``."""

    name = "logical.linear"
    operand = operand_def()
    weight = operand_def()
    bias = opt_operand_def()
    traits = traits_def(Composite(), Contraction())

    def __init__(
        self,
        operand: Operand,
        weight: Operand,
        bias: Operand | None = None,
    ):
        super().__init__(operand, weight, bias)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[..., N]`` of the operands' element type."""
        x, weight, *rest = (tensor_info(operand) for operand in operands)
        _check_linear_operands(x, weight, rest)
        return x.with_sizes([*x.sizes[:-1], weight.sizes[0]])


def _check_linear_operands(x: TensorInfo, weight: TensorInfo, rest: Sequence[TensorInfo]) -> None:
    require_numeric(x)
    if weight.rank != 2:
        raise VerifyException(f"weight {weight} has rank {weight.rank}; it is [N, K], outputs by inputs")
    if x.rank < 1:
        raise VerifyException(f"operand {x} is a scalar; it is [..., K]")
    if x.sizes[-1] != weight.sizes[1]:
        raise VerifyException(
            f"contracted sizes differ: operand K = {x.sizes[-1]} (dim {x.rank - 1} of {x.shape_text}), "
            f"weight K = {weight.sizes[1]} (dim 1 of {weight.shape_text}; a weight is [N, K])"
        )
    outputs: tuple[Size, ...] = (weight.sizes[0],)
    for bias in rest:
        if bias.sizes != outputs:
            raise VerifyException(
                f"bias has shape {bias.shape_text}, but the weight {weight.shape_text} has "
                f"{weight.sizes[0]} outputs"
            )
    for name, other in zip(("weight", "bias"), (weight, *rest), strict=False):
        if other.element != x.element:
            raise VerifyException(
                f"element types differ: operand {x.element.name}, {name} {other.element.name}"
            )
