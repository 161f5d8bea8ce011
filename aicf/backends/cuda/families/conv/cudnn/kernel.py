"""The descriptor of `cuda.conv_cudnn`: convolutions that cuDNN runs, with the epilogues that a graph of it may have.

Its record is the whole call as `runtime.cudnn` makes it, in cuDNN's terms; the algorithm is an engine with its knobs
(see `LibraryKernel`). cuDNN takes tensors of any order and copies them where its engines want another one, for which it
uses its workspace: channels-last ones are not copied. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.cudnn.problem import NoCall, call_of, packs_weight, problem_of_work
from aicf.backends.cuda.families.conv.pack.kernel import (
    WINDOW_WEIGHT,
    channels_innermost,
    weight_layouts,
    weight_pack_record,
)
from aicf.backends.cuda.families.conv.problem import WEIGHT, conv_reason
from aicf.backends.cuda.families.library.call import LibraryFunction
from aicf.backends.cuda.families.library.cudnn import (
    DTYPES,
    LIBRARY,
    MOST_WORKSPACE_BYTES,
    alignment_reason,
    common_reason,
    common_record,
    tensor,
)
from aicf.backends.cuda.families.library.kernel_base import (
    Algorithm,
    LibraryKernel,
    device_entries,
    unmeasured,
)
from aicf.backends.cuda.families.records import integers
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

_FUNCTION = LibraryFunction(
    "cudnn.convolution",
    (
        "dtype",
        "barred_notes",
        "x",
        "weight",
        "y",
        "residual",
        "bias",
        "strides",
        "dilations",
        "low",
        "high",
        "activation",
    ),
)


class ConvCudnnKernel(LibraryKernel):
    """Convolutions of f16, bf16 or f32 with residual, bias and activation, by NVIDIA's library."""

    id = "cuda.conv_cudnn"
    library = LIBRARY
    simplicity = 9
    kinds = frozenset({"conv"})
    device_fields = unmeasured(MOST_WORKSPACE_BYTES)
    function = _FUNCTION
    result = "y"

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := conv_reason(work) or common_reason(work, DTYPES)) is not None:
            return reason
        if (reason := alignment_reason((*work.operands, *work.results), ELEMENT_BYTES)) is not None:
            return reason
        try:
            call = call_of(work)
        except NoCall as error:
            return str(error)
        if work.rounding == "strict" and call.rounds_between and work.results[0].dtype != "f32":
            return "cudnn rounds once after its epilogue, the policy wants every value rounded"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: a launch, then three quarters of the arithmetic peak, or the memory's speed; and a copy of each
        tensor that is not channels-last."""
        arch, problem, call = arch_named(target.arch.data), problem_of_work(work), call_of(work)
        peak = arch.f32_tflops if problem.dtype == "f32" else arch.tensor_tflops
        if work.tf32 and problem.dtype == "f32":
            peak = arch.tensor_tflops / 2
        copied = [each for each in call.tensors.values() if each.strides != channels_innermost(each.sizes)]
        bytes_us = ELEMENT_BYTES[problem.dtype] / arch.bandwidth_gbs / 1e3
        moved = sum(prod(each.sizes) for each in call.tensors.values()) * bytes_us
        copies = sum(3.0 + 2 * prod(each.sizes) * bytes_us for each in copied)
        return 3.0 + max(problem.flops / peak / 0.75e6, moved) + copies

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Algorithm | None
    ) -> dict[str, Attribute]:
        problem, call = problem_of_work(work), call_of(work)
        tensors = {name: tensor(each.sizes, each.strides) for name, each in call.tensors.items()}
        entries: dict[str, Attribute] = {
            **common_record(work),
            **{name: tensors[name] for name in ("x", "weight", "y")},
            **{name: _optional(tensors, name) for name in ("residual", "bias")},
            "strides": integers(problem.strides),
            "dilations": integers(problem.dilations),
            "low": integers(problem.low),
            "high": integers(call.high),
            "activation": StringAttr(call.activation),
            "operands": DictionaryAttr({name: integer(index) for name, index in call.operands.items()}),
            **device_entries(schedule),
        }
        if packs_weight(work):
            entries["layouts"] = weight_layouts(work, WEIGHT, WINDOW_WEIGHT)
        return entries

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target)


def _optional(tensors: Mapping[str, DictionaryAttr], name: str) -> ArrayAttr[Attribute]:
    """None or one, as a list."""
    return ArrayAttr([tensors[name]] if name in tensors else [])


KERNELS = (ConvCudnnKernel(),)
"""The kernel of this family."""
