"""The descriptor of `cuda.conv_transpose_mma`: each phase is a convolution of `cuda.conv_mma`, one launch after the
other, which writes every `stride`-th element of the result. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record, integer, read_parts
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.mma.kernel import ConvMmaKernel, ranked_specs
from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.conv.transposed.problem import (
    KIND,
    WEIGHT,
    conv_of_phase,
    read_transposed,
    refusal,
)
from aicf.backends.cuda.families.conv.windows import reach_reason
from aicf.backends.cuda.families.gemm.mma.kernel import MmaSpec, spec_of
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

_CONV = ConvMmaKernel()


class ConvTransposeMmaKernel(CudaKernel[Sequence[MmaSpec]]):
    """Transposed convolutions of f16 or bf16 of any strides, accumulated in f32 by tensor cores, phase after phase."""

    id = "cuda.conv_transpose_mma"
    library = "mma"
    simplicity = 3
    kinds = frozenset({KIND})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := refusal(work.attrs, work.operands, work.results[0])) is not None:
            return reason
        if work.operands[WEIGHT].layout is not None:
            return "its weight is packed for another kernel"
        for problem in _problems(work):
            if (reason := reach_reason(problem)) is not None:
                return reason
            if not _ranked(problem, arch_named(target.arch.data), work.batch_invariant):
                return "no tile fits"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        arch = arch_named(target.arch.data)
        return sum(_ranked(problem, arch, work.batch_invariant)[0][0] for problem in _problems(work))

    def schedule(self, work: Workload, target: TargetAttr) -> Sequence[MmaSpec]:
        arch = arch_named(target.arch.data)
        return [_ranked(problem, arch, work.batch_invariant)[0][1] for problem in _problems(work)]

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Sequence[MmaSpec]
    ) -> dict[str, Attribute]:
        arch = arch_named(target.arch.data)
        pairs = list(zip(_problems(work), schedule, strict=True))
        return {
            "parts": ArrayAttr(
                [DictionaryAttr(_CONV.entries(spec, problem, arch)) for problem, spec in pairs]
            ),
            "combination_order": StringAttr(_order(work, schedule)),
            "workspace_bytes": integer(0),
            **work.attrs,
            "rounding": StringAttr(work.rounding),
            **start_entries(arch),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Sequence[MmaSpec]:
        return [spec_of({**record, **part}) for part in read_parts(record, "parts", len(_problems(work)))]

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Sequence[MmaSpec]) -> str | None:
        arch = arch_named(target.arch.data)
        for problem, spec in zip(_problems(work), schedule, strict=True):
            reason = _workspace_reason(spec) or _CONV.reason(spec, problem, arch)
            if reason is not None:
                return f"in its 'parts', {reason}"
        return None

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warp has all terms of its elements, and no tile changes that."""
        return _order(work, self.schedule(work, target))


def _order(work: Workload, specs: Sequence[MmaSpec]) -> str:
    """How the sums of one element are combined, in each phase that does it otherwise."""
    pairs = zip(_problems(work), specs, strict=True)
    return "; ".join(dict.fromkeys(_CONV.order_text(spec, problem) for problem, spec in pairs))


def _problems(work: Workload) -> list[ConvProblem]:
    """The convolutions of all phases."""
    problem = read_transposed(work.attrs, work.operands, work.results[0])
    return [conv_of_phase(problem, own) for own in problem.phases]


def _ranked(problem: ConvProblem, arch: GpuArch, fixed: bool) -> list[tuple[float, MmaSpec]]:
    """The specs that need no workspace, with their predicted microseconds, the cheapest first."""
    return [pair for pair in ranked_specs(problem, arch, fixed) if _workspace_reason(pair[1]) is None]


def _workspace_reason(spec: MmaSpec) -> str | None:
    return "its phases share no workspace" if spec.through == "workspace" else None


KERNELS = (ConvTransposeMmaKernel(),)
"""The kernel of this family."""
