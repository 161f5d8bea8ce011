"""What the kernels can run, and the records of their decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from aicf.backends.common.kernel import AnyKernel, Kernel
from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.dialects.emit_kernels import KernelOp, ReduceOp, StoreOp, YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import EPILOGUES, SCALAR_PROGRAMS
from aicf_plugin_numpy.scalars import SCALARS

DTYPES = ("f32", "f64", "i1")
BYTES_PER_US = 2000.0


def _dtype_reason(work: Workload) -> str | None:
    for operand in (*work.operands, *work.results):
        if operand.dtype not in DTYPES:
            return f"element type {operand.dtype} is not one of {', '.join(DTYPES)}"
    return None


def code_reason(code: KernelOp | None) -> str | None:
    """Why a scalar program cannot be run on whole arrays; None if it can."""
    if code is None:
        return "it has no generated code"
    for index_map in (*code.in_maps, *code.out_maps):
        if not all(isinstance(e, AffineDimExpr | AffineConstantExpr) for e in index_map.results):
            return "an operand is indexed by more than dims"
    for phase in code.phases:
        for op in phase.body.block.ops:
            if op.name not in SCALARS and not isinstance(op, ReduceOp | StoreOp | YieldOp):
                return f"{op.name} is not written in NumPy here"
    return None


@dataclass(frozen=True)
class NumpyKernel(Kernel[None]):
    """One kernel; `needs_code` says whether it runs the generated program."""

    id: str
    kinds: frozenset[str]
    needs_code: bool
    attributes: tuple[str, ...] = ()
    """Attributes of the kind that a launch needs, kept in the record."""
    version: int = 1
    determinism: str = "bitwise"
    simplicity: int = 0

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        if (reason := _dtype_reason(work)) is not None:
            return reason
        return code_reason(work.code) if self.needs_code else None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """A call, and the traffic of every operand."""
        elements = sum(prod(operand.shape) for operand in (*work.operands, *work.results))
        return 2.0 + 4 * elements / BYTES_PER_US

    def schedule(self, work: Workload, target: TargetAttr) -> None:
        """There is nothing to decide."""

    def read(self, work: Workload, record: Record, target: TargetAttr) -> None:
        """There is nothing to read."""

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        """The attributes; results are written after everything is read, so an operand of the same form may be one."""
        forms = [(operand.shape, operand.strides, operand.dtype) for operand in work.operands]
        pairs = [
            ArrayAttr([IntegerAttr(number, i64), IntegerAttr(index, i64)])
            for number, result in enumerate(work.results)
            for index, form in enumerate(forms)
            if form == (result.shape, result.strides, result.dtype) and len(work.results) == 1
        ]
        kept = {name: work.attrs[name] for name in self.attributes}
        return {**kept, "library": StringAttr("numpy"), "may_alias": ArrayAttr(pairs)}


_TRANSPOSES = ("transpose_a", "transpose_b")

KERNELS: Sequence[AnyKernel] = (
    NumpyKernel("numpy.matmul", frozenset({"gemm"}), False, _TRANSPOSES),
    NumpyKernel("numpy.matmul_epilogue", frozenset(EPILOGUES), True, _TRANSPOSES),
    NumpyKernel("numpy.generated", SCALAR_PROGRAMS, True),
    NumpyKernel("numpy.copy", frozenset({"copy"}), False),
)
