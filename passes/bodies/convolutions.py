"""A convolution in a body, with the pointwise ops after it, or the statistics of its channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation

from aicf.dialects import logical
from aicf.dialects.emit_kernels import YieldOp
from aicf.dialects.kinds import CONV_DIMS
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.products import Piece

CHANNEL = 1
"""The dimension of a result that has its channels."""

_LISTS = {"stride": ("strides", 1), "dilation": ("dilations", 1), "low": ("low", 0)}
"""Attributes of the kind, one for each dimension, to a property of the op, and the value for dimensions it has not."""


@dataclass(frozen=True)
class Convolution:
    """A body of one convolution, without a bias of its own, of its first two operands.

    Args:
        epilogue: The ops after it, pointwise on the sums or on what is one for a channel, and reductions over all but
            the channels; constants included.
    """

    op: logical.ConvOp
    epilogue: tuple[Operation, ...]
    block: Block

    @property
    def piece(self) -> Piece:
        """The program of the epilogue: the sums, then the other operands."""
        last = self.block.last_op
        assert last is not None
        return Piece((self.op.result, *self.block.args[2:]), self.epilogue, tuple(last.operands))

    @property
    def kind(self) -> str:
        """Opcode of the body."""
        return "conv_moments" if any(op.has_trait(logical.Reduction) for op in self.epilogue) else "conv"

    @property
    def attrs(self) -> dict[str, Attribute]:
        """Attributes of the kind."""
        found: dict[str, Attribute] = {"groups": self.op.groups}
        for name, (source, absent) in _LISTS.items():
            values = int_values(self.op.properties[source])
            for dim in range(CONV_DIMS):
                value = values[dim] if dim < len(values) else absent
                found[f"{name}_{dim}"] = IntegerAttr(value, i64)
        return found | {"padding_value": IntegerAttr(self.op.around, i64)}


def convolution_of(block: Block) -> Convolution | None:
    """The convolution of a folded body, None if it has none or is more than kernels know."""
    ops = [op for op in block.ops if not isinstance(op, YieldOp)]
    convolutions = [op for op in ops if isinstance(op, logical.ConvOp)]
    if len(convolutions) != 1 or convolutions[0].bias is not None:
        return None
    op = convolutions[0]
    arguments = [value.index if isinstance(value, BlockArgument) else -1 for value in op.operands]
    if arguments != [0, 1] or len(op.info.shape) - 2 > CONV_DIMS:
        return None
    rest = tuple(other for other in ops if other is not op)
    if any(other.has_trait(logical.Contraction) for other in rest):
        return None
    if not all(
        reduces_channels(other, op.info.shape) for other in rest if other.has_trait(logical.Reduction)
    ):
        return None
    if any(operand in block.args[:2] for other in rest for operand in other.operands):
        return None
    return Convolution(op, rest, block)


def reduces_channels(op: Operation, shape: Sequence[int]) -> bool:
    """Whether `op` adds up each channel of what has the shape ``[N, C, ..]``."""
    if not isinstance(op, logical.ReduceSumOp) or tensor_info(op.operand.type).shape != tuple(shape):
        return False
    return int_values(op.axes) == tuple(axis for axis in range(len(shape)) if axis != CHANNEL)
