"""The descriptor of `cuda.conv_depthwise`: convolutions with one input channel a group. No code generator is imported
here.

A product of such a convolution has one channel a matrix: tensor cores would multiply zeros. Here a thread adds up its
own results, and what follows the sums is done in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.depthwise.problem import DTYPES, DepthwiseProblem, of_work, refusal
from aicf.backends.cuda.families.conv.depthwise.schedule import (
    Along,
    DepthwiseSpec,
    contradiction,
    depthwise_record,
    offered,
    order_text,
    read_spec,
)
from aicf.backends.cuda.families.conv.pack.kernel import (
    DEPTHWISE_WEIGHT,
    weight_layouts,
    weight_pack_record,
)
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    WEIGHT,
    conv_of_work,
    conv_reason,
    may_alias,
    windows_of,
)
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import FLOATS, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr


class ConvDepthwiseKernel(CudaKernel[DepthwiseSpec]):
    """Depthwise convolutions of any strides with any epilogue: a thread has a vector of outputs of some neighbouring
    pixels, accumulated in f32."""

    id = "cuda.conv_depthwise"
    library = "depthwise"
    simplicity = 4
    kinds = frozenset({"conv"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        reason = _dtype_reason(work) or conv_reason(work) or _ends_reason(work)
        return refusal(conv_of_work(work)) if reason is None else reason

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self.schedule(work, target).cost_us(arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> DepthwiseSpec:
        return _offered(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Record]:
        return [self.record_of(work, target, spec) for spec in _offered(work, target)]

    def record_of(self, work: Workload, target: TargetAttr, schedule: DepthwiseSpec) -> dict[str, Attribute]:
        entries = {
            **depthwise_record(schedule),
            **windows_of(work),
            "rounding": StringAttr(work.rounding),
            "may_alias": may_alias(work, conv_of_work(work)),
            **start_entries(arch_named(target.arch.data)),
        }
        if (name := _layout(work, schedule.along)) is not None:
            entries["layouts"] = weight_layouts(work, WEIGHT, name)
        return entries

    def read(self, work: Workload, record: Record, target: TargetAttr) -> DepthwiseSpec:
        return read_spec(record, problems_of(work))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: DepthwiseSpec) -> str | None:
        return contradiction(schedule)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a thread has all terms of its results, in one order whatever it shares."""
        return order_text(of_work(work, None))

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target, layout.layout.data)


def _dtype_reason(work: Workload) -> str | None:
    """Why operands of this type are not summed here."""
    dtype = work.operands[0].dtype
    return None if dtype in DTYPES else f"sums are f32 here, for {', '.join(DTYPES)}: it is of {dtype}"


def _ends_reason(work: Workload) -> str | None:
    """Why what follows the sums has no code here."""
    if any(one.dtype not in FLOATS for one in (*work.operands[FIRST_EXTRA:], *work.results)):
        return f"what follows reads and gives {', '.join(FLOATS)}"
    return None


def _offered(work: Workload, target: TargetAttr) -> list[DepthwiseSpec]:
    return offered(problems_of(work), arch_named(target.arch.data))


def problems_of(work: Workload) -> Mapping[Along, DepthwiseProblem]:
    """The problem for each order of threads: they want the weight in one of their own."""
    return {along: of_work(work, _layout(work, along)) for along in ("channels", "pixels")}


def _layout(work: Workload, along: Along) -> str | None:
    """The layout of the weight: where it stays, with outputs innermost for threads that have neighbouring ones."""
    weight = work.operands[WEIGHT]
    if weight.layout is not None:
        return weight.layout.layout.data
    lies_so = weight.shape[0] == 1 or weight.strides[0] == 1
    return DEPTHWISE_WEIGHT if along == "channels" and weight.is_weight and not lies_so else None


KERNELS = (ConvDepthwiseKernel(),)
"""The kernel of this family."""
