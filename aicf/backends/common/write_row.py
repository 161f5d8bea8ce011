"""Bodies that only write rows into a state, as a step of a decoder does."""

from __future__ import annotations

from xdsl.ir import Block, BlockArgument

from aicf.dialects.emit_kernels import YieldOp
from aicf.dialects.logical import WriteRowOp


def written_in(body: Block) -> WriteRowOp | None:
    """The op of a body that only writes rows of one argument into another; None of others."""
    match [*body.ops]:
        case [WriteRowOp() as op, YieldOp() as last] if tuple(last.operands) == (op.result,):
            return op if all(isinstance(value, BlockArgument) for value in op.operands) else None
        case _:
            return None


def operand_numbers(op: WriteRowOp) -> tuple[int, ...]:
    """Which operands of the instruction are the rows, the index and the old state."""
    return tuple(value.index for value in op.operands if isinstance(value, BlockArgument))
