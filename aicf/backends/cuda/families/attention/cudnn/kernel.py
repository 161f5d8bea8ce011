"""The descriptor of `cuda.attention_cudnn`: attention that cuDNN runs as one operation of its graphs.

Its record is the whole call as `runtime.cudnn` makes it, in cuDNN's terms: four dimensions, of which the second is that
of the heads, and fewer heads of keys and values than of queries where several of these share one. The algorithm is an
engine with its knobs (see `LibraryKernel`). No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import DictionaryAttr, FloatAttr, StringAttr, f64
from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.cudnn.problem import NoCall, call_of
from aicf.backends.cuda.families.attention.problem import (
    HALVES,
    KIND,
    AttentionProblem,
    common_reason,
    problem_of,
    read_scale,
)
from aicf.backends.cuda.families.library import cudnn
from aicf.backends.cuda.families.library.call import LibraryFunction
from aicf.backends.cuda.families.library.kernel_base import (
    Algorithm,
    LibraryKernel,
    device_entries,
    unmeasured,
)
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import TargetAttr

_OPERANDS: Mapping[str, int] = {"q": 0, "k": 1, "v": 2}
_STEP, _MOST = 8, 256
"""Elements of a query or value: a multiple of the first, up to the second; before Hopper the device offers nothing for
more than 128."""


class AttentionCudnnKernel(LibraryKernel):
    """Attention of f16 and bf16 without a mask or a causal one, by NVIDIA's library."""

    id = "cuda.attention_cudnn"
    library = cudnn.LIBRARY
    simplicity = 9
    kinds = frozenset({KIND})
    device_fields = unmeasured(cudnn.MOST_WORKSPACE_BYTES)
    function = LibraryFunction(
        "cudnn.attention", ("dtype", "barred_notes", "q", "k", "v", "y", "scale", "mask")
    )
    result = "y"

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        problem = problem_of(work)
        reason = (
            cudnn.common_reason(work, HALVES)
            or common_reason(work, problem)
            or cudnn.alignment_reason((*work.operands, *work.results), ELEMENT_BYTES)
            or _scores_reason(problem)
            or _rows_reason(problem)
        )
        if reason is not None:
            return reason
        try:
            call_of(problem)
        except NoCall as error:
            return str(error)
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: a launch, then half of the arithmetic peak, or the memory's speed."""
        arch, problem = arch_named(target.arch.data), problem_of(work)
        seen = 1.0 if call_of(problem).mask == "none" else 0.5
        flops = 2.0 * problem.count * problem.m * problem.n * (problem.d + problem.dv) * seen
        elements = problem.count * (problem.m + problem.n) * (problem.d + problem.dv)
        moved = elements * ELEMENT_BYTES[problem.dtype] / arch.bandwidth_gbs / 1e3
        return 3.0 + max(flops / arch.tensor_tflops / 0.5e6, moved)

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Algorithm | None
    ) -> dict[str, Attribute]:
        problem = problem_of(work)
        call = call_of(problem)
        tensors = {
            "q": (call.q, problem.m, problem.d),
            "k": (call.k, problem.n, problem.d),
            "v": (call.v, problem.n, problem.dv),
            "y": (call.y, problem.m, problem.dv),
        }
        return {
            **cudnn.common_record(work),
            **{
                name: cudnn.tensor((call.batch, lies.heads, rows, columns), lies.strides)
                for name, (lies, rows, columns) in tensors.items()
            },
            "scale": FloatAttr(read_scale(work.attrs), f64),
            "mask": StringAttr(call.mask),
            "operands": DictionaryAttr({name: integer(index) for name, index in _OPERANDS.items()}),
            **device_entries(schedule),
        }


def _scores_reason(problem: AttentionProblem) -> str | None:
    """Why scores or probabilities are not cuDNN's. Every query sees a key here, so no row of scores is empty."""
    if problem.mask is not None:
        return "cudnn is given no mask but a causal one"
    if problem.nan_as_zero:
        return "cudnn keeps probabilities that are NaN, here they are 0"
    return None


def _rows_reason(problem: AttentionProblem) -> str | None:
    """Why sizes or strides are not cuDNN's."""
    for name, size in (("a query", problem.d), ("a value", problem.dv)):
        if size % _STEP or size > _MOST:
            return f"{name} has {size} elements: cudnn is given {_STEP}, {2 * _STEP}, ... {_MOST}"
    matrices = (
        ("queries", problem.q, problem.m),
        ("keys", problem.k, problem.n),
        ("values", problem.v, problem.n),
        ("result", problem.result, problem.m),
    )
    for name, rows, count in matrices:
        if not rows.moves_in_eights(count, problem.batch):
            return (
                f"rows of the {name} are not neighbours that start at multiples of 16 bytes: copy them first"
            )
    return None


KERNELS = (AttentionCudnnKernel(),)
"""The kernel of this family."""
