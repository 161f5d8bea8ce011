"""What a piece of work takes whatever kernel runs it: arithmetic operations, and bytes that must be read and written.

Predicted times are the kernels' own business (`Kernel.cost_us`); this is what they can be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute, Block, BlockArgument, Operation

from aicf.dialects import logical
from aicf.dialects.emit import BufferType, GroupOp, ResolvedOp, YieldOp, buffer_of
from aicf.dialects.types import tensor_info


@dataclass(frozen=True)
class WorkDone:
    """The arithmetic and the memory traffic that work takes at least.

    Args:
        operations: Arithmetic operations of scalars; a fused multiply and add counts two, exp and the like one.
        bytes_read, bytes_written: Distinct elements of each operand and result; what a broadcast repeats counts once.
            Of matrices that indices choose, one for each index, and no more than there are.
    """

    operations: int
    bytes_read: int
    bytes_written: int


def work_done_by_instruction(op: ResolvedOp, body: Block) -> WorkDone:
    """What an instruction with its body does."""
    sizes = [_buffer_bytes(buffer_of(value)) for value in op.ins]
    read = sum(map(_read_bytes, body.args, sizes))
    return WorkDone(operations(body), read, sum(_buffer_bytes(buffer_of(value)) for value in op.outs))


def work_done_by_group(op: GroupOp) -> WorkDone:
    """What a group does."""
    body = op.body.block
    read = sum(map(_read_bytes, body.args, map(_tensor_bytes, op.operand_types)))
    return WorkDone(operations(body), read, sum(map(_tensor_bytes, op.result_types)))


def _buffer_bytes(type_: BufferType) -> int:
    sizes = (
        size for size, step in zip(type_.get_shape(), type_.get_strides(), strict=True) if step or not size
    )
    return prod(sizes) * type_.element_bytes


def _tensor_bytes(type_: Attribute) -> int:
    return _elements(type_) * tensor_info(type_).element.bytes


def _read_bytes(argument: BlockArgument, nbytes: int) -> int:
    """Of the bytes of an operand, those that a body reads."""
    readers = [use.operation for use in argument.uses]
    chosen = [indices for op in readers if (indices := _chooses(op, argument)) is not None]
    if not readers or len(chosen) < len(readers):
        return nbytes
    matrices, indices = tensor_info(argument.type).shape[0], sum(map(_elements, chosen))
    return nbytes * min(matrices, indices) // max(matrices, 1)


def _chooses(op: Operation, matrices: BlockArgument) -> Attribute | None:
    """The type of the indices by which an op chooses among matrices; None if it reads all of them."""
    if not isinstance(op, logical.MatmulBlocksOp) or op.indices is None or op.packed is not matrices:
        return None
    return op.indices.type


def _elements(type_: Attribute) -> int:
    return prod(tensor_info(type_).shape)


def operations(body: Block) -> int:
    """Scalar operations of a body of primitive logical ops."""
    return sum(operations_of(op) for op in body.ops if not isinstance(op, YieldOp))


def operations_of(op: Operation) -> int:
    """Scalar operations of one primitive logical op."""
    if isinstance(op, logical.MatmulOp):
        depth = tensor_info(op.lhs.type).shape[-2 if op.transpose_a is not None else -1]
        return 2 * depth * _elements(op.result.type)
    if isinstance(op, logical.MatmulBlocksOp | logical.RoundedMatmulBlocksOp):
        return 2 * tensor_info(op.operand.type).shape[-1] * _elements(op.result.type)
    if op.has_trait(logical.Reduction):
        return _elements(op.operands[0].type)
    return _elements(op.results[0].type) if op.has_trait(logical.Elementwise) else 0
