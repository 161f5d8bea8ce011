"""Reads products with packed weights from their operands: the problem, the row program, and what the epilogue reads and
writes. No code generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aicf.backends.common.loop_nest import Access, LoopNest, Strided, access_of, nest_of
from aicf.backends.common.record import Record, read_integer, read_text
from aicf.backends.cpu.families.blocks.problem import BlocksProblem
from aicf.backends.cpu.families.gemm.problem import contiguous
from aicf.dialects.emit_kernels import KernelOp


@dataclass(frozen=True)
class FusedProblem:
    """``epilogue(rows(x) @ weight.T, ...)`` of one packed weight, or of two of one shape.

    Args:
        product: Of one of the weights, with rows that lie where the row program leaves them, if there is one.
        rights: Which operands the weights are.
        rows: The row program over all rows; None where operand 0 is multiplied as it is.
        row_operands: Which operands it reads, x first.
        extras: Which operands the epilogue reads besides the sums.
        accesses: Of these, then of the result; strides per (dims of the result).
    """

    product: BlocksProblem
    rights: tuple[int, ...]
    rows: LoopNest | None
    row_operands: tuple[int, ...]
    extras: tuple[int, ...]
    accesses: tuple[Access, ...]

    @property
    def whole(self) -> BlocksProblem:
        """The product of all weights side by side, for what it costs."""
        result = self.product.result
        shape = (*result.shape[:-1], len(self.rights) * result.shape[-1])
        return replace(self.product, result=replace(result, shape=shape))


def read_fused(
    operands: Sequence[Strided],
    result: Strided,
    entries: Record,
    code: KernelOp,
    prologue: KernelOp | None,
) -> FusedProblem:
    """The work of an instruction of kind `matmul_blocks_fused`.

    Operand 0 is x; the weights follow, then what else the row program reads, then what the epilogue reads.

    Args:
        entries: The attributes of a work or the entries of a kernel record. Raises RecordError if one is missing.
    """
    count = read_integer(entries, "products")
    inner = 0 if prologue is None else len(prologue.in_maps) - 1
    first = 1 + count
    x, rows = operands[0], None
    row_operands = () if prologue is None else (0, *range(first, first + inner))
    if prologue is not None:
        made = Strided(x.shape, contiguous(x.shape), "f32")
        given = (*(operands[index] for index in row_operands), made)
        rows = nest_of(prologue, [each.strides for each in given], [each.dtype for each in given])
        x = made
    extras = tuple(range(first + inner, len(operands)))
    maps = (*code.in_maps[count:], *code.out_maps)
    read = [*(operands[index] for index in extras), result]
    accesses = [access_of(map_, each.strides, each.dtype) for map_, each in zip(maps, read, strict=True)]
    product = BlocksProblem(read_text(entries, "scheme"), x, result)
    return FusedProblem(product, tuple(range(1, first)), rows, row_operands, extras, tuple(accesses))
