"""Descriptor of the kernel that writes rows into a state, as a step of a decoder does. No code generator is imported
here."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.common.write_row import operand_numbers, written_in
from aicf.backends.cuda.families.loops.kernel import operand_reason
from aicf.backends.cuda.families.records import CudaKernel, Shape, integers, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import SCALAR_PROGRAMS

THREADS = 256
_LAUNCH_US = 1.5
"""Of a kernel that overlaps with its neighbours."""


class WriteRowKernel(UndecidedKernel, CudaKernel[None]):
    """A thread for each element of the rows. In place nothing else is touched; elsewhere the state is copied first."""

    id = "cuda.write_row"
    simplicity = 2
    kinds = SCALAR_PROGRAMS

    def is_for(self, work: Workload) -> bool:
        """See `Kernel`."""
        return super().is_for(work) and written_in(work.body) is not None

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if written_in(work.body) is None:
            return "it does more than write rows"
        if any(prod(operand.shape) >= 1 << 31 for operand in (*work.operands, *work.results)):
            return "an operand has 2^31 elements or more"
        return operand_reason(work)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: what it writes into is copied unless it is a state, which is mostly overwritten in place."""
        rows, old = _operands(work)
        moved = prod(rows.shape) if old.role == "state" else prod(rows.shape) + prod(old.shape)
        nbytes = 2 * moved * ELEMENT_BYTES[old.dtype]
        return _LAUNCH_US + nbytes / arch_named(target.arch.data).bandwidth_gbs / 1e3

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        op = written_in(work.body)
        assert op is not None
        numbers = operand_numbers(op)
        blocks = [-(-prod(operand.shape) // THREADS) for operand in reversed(_operands(work))]
        shape = Shape((1, 1, 1), (THREADS, 1, 1)).entries()
        del shape["grid"]
        return {
            "axis": integer(op.axis.value.data),
            "operands": integers(numbers),
            "grids": ArrayAttr([integers((count, 1, 1)) for count in blocks]),
            **shape,
            "rounding": StringAttr(work.rounding),
            "combination_order": StringAttr("none"),
            "may_alias": ArrayAttr([integers((0, numbers[2]))]),
            **start_entries(arch_named(target.arch.data)),
        }

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


def _operands(work: Workload) -> tuple[OperandInfo, OperandInfo]:
    """The rows, and the old state."""
    op = written_in(work.body)
    assert op is not None
    rows, _, old = operand_numbers(op)
    return work.operands[rows], work.operands[old]


KERNELS = (WriteRowKernel(),)
"""The kernel of this family."""
