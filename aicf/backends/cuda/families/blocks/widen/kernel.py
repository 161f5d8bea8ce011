"""The kernel that widens rows of blocks. No code generator is imported here."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import read_text
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.blocks.layout import odd_reason
from aicf.backends.cuda.families.loops.kernel import operand_reason
from aicf.backends.cuda.families.records import CudaKernel, Shape, start_entries
from aicf.backends.cuda.target import arch_named
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit_types import TargetAttr

THREADS = 128
"""Of a block; four of them widen a block of the scheme, which all have neighbouring quarters of its runs."""
QUARTERS = 4
_LAUNCH_US = 2.0
_BANDWIDTH_SHARE = 0.8
"""What a copy reaches of the memory's bandwidth."""


class DequantizeBlocksKernel(UndecidedKernel, CudaKernel[None]):
    """Rows of blocks to f32, four elements at a time."""

    id = "cuda.dequantize_blocks"
    kinds = frozenset({"dequantize_blocks"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: blocks at even addresses, elements of the result in sixteens of bytes."""
        packed, result = work.operands[0], work.results[0]
        if (reason := operand_reason(work) or odd_reason(read_text(work.attrs, "scheme"))) is not None:
            return reason
        if not _starts_at_multiples(packed, 2):
            return "the packed rows are not in one piece, or start at odd bytes"
        if not _starts_at_multiples(result, 4):
            return "the rows of the result are not in one piece, or start at no multiple of 16 bytes"
        return "there are 2^31 blocks or more" if _threads(work) >= 1 << 31 else None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: all bytes at the speed of a copy."""
        elements = prod(work.results[0].shape)
        nbytes = prod(work.operands[0].shape) + 4 * elements
        return _LAUNCH_US + nbytes / (_BANDWIDTH_SHARE * arch_named(target.arch.data).bandwidth_gbs * 1e3)

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        shape = Shape((-(-_threads(work) // THREADS), 1, 1), (THREADS, 1, 1))
        return {
            "scheme": work.attrs["scheme"],
            **shape.entries(),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch_named(target.arch.data)),
        }

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


def _threads(work: Workload) -> int:
    scheme = BLOCK_SCHEMES[read_text(work.attrs, "scheme")]
    return prod(work.operands[0].shape) // scheme.nbytes * QUARTERS


def _starts_at_multiples(operand: OperandInfo, count: int) -> bool:
    """Whether each row lies in one piece and starts at a multiple of `count` elements."""
    return operand.strides[-1] == 1 and not any(
        step % count for step in (*operand.strides[:-1], operand.offset)
    )


KERNELS = (DequantizeBlocksKernel(),)
"""The kernel of this family."""
