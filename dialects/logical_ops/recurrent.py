"""Recurrent layers over all steps: lstm.

What follows from the input alone is a product of its own, so that an op here is the recurrence and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.kinds import FLAGS
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind, require_float
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import MatrixKernels, PositionalOperands
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["LSTM_GATES", "LstmOp"]

LSTM_GATES = 4
"""Of an LSTM, side by side in this order: input, output, forget, cell."""


@irdl_op_definition
class LstmOp(LogicalOp):
    """``c' = f * c + i * g`` and ``h' = o * tanh(c')`` for each step; f32 and f64.

    With ``z = x + h @ weight.T``, ``i``, ``o`` and ``f`` are the sigmoid of their part of z and ``g`` is tanh of its
    own; the parts lie side by side in the order i, o, f, g. x: ``[S, B, 4 * H]``, what the gates have of the input;
    weight: ``[4 * H, H]``; first: ``[2, B, H]``, h and c before the first step. The result ``[2, S, B, H]`` is
    all h, then all c. ``reverse`` goes from the last step to the first. Hochreiter and Schmidhuber, 1997.
    """

    name = "logical.lstm"
    operand = operand_def()
    weight = operand_def()
    first = operand_def()
    reverse = opt_prop_def(UnitAttr)
    traits = traits_def(PositionalOperands(), MatrixKernels())

    def __init__(self, operand: Operand, weight: Operand, first: Operand, *, reverse: bool = False):
        super().__init__(operand, weight, first, reverse=reverse)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[2, S, B, H]``."""
        x, weight, first = (tensor_info(operand) for operand in operands)
        require_float(x)
        if x.element.bytes < 4:
            raise VerifyException(f"not defined for {x.element.name}; cast to f32 first")
        _check_rank("operand", x, 3, "steps, batch and gates side by side")
        _check_rank("weight", weight, 2, "gates below each other, and states")
        steps, batch, columns = x.sizes
        hidden = weight.sizes[1]
        if (
            not isinstance(hidden, int)
            or weight.sizes[0] != LSTM_GATES * hidden
            or columns != weight.sizes[0]
        ):
            raise VerifyException(
                f"operand {x} and weight {weight} do not fit; they are [S, B, 4 * H] and [4 * H, H], H a number"
            )
        _check_type("weight", weight, weight.sizes, x)
        _check_type("first", first, (2, batch, hidden), x)
        return x.with_sizes([2, steps, batch, hidden])

    def kind_alone(self) -> OwnKind | None:
        """`lstm`, with its direction."""
        return "lstm", {"reverse": FLAGS[self.reverse is not None]}


def _check_rank(name: str, info: TensorInfo, rank: int, what: str) -> None:
    if info.rank != rank:
        raise VerifyException(f"{name} is {info}; it has rank {rank}: {what}")


def _check_type(name: str, info: TensorInfo, sizes: Sequence[Size], like: TensorInfo) -> None:
    wanted = TensorInfo(tuple(sizes), like.element)
    if info != wanted:
        raise VerifyException(f"{name} is {info}; for operand {like} it is {wanted}")
