"""The descriptor of `cuda.conv_cudnn`: convolutions that cuDNN runs, with the epilogues that a graph of it may have.

Its record is the whole call as `runtime.cudnn` makes it, in cuDNN's terms; the algorithm is an engine with its knobs
(see `LibraryKernel`). cuDNN takes tensors of any order and copies them where its engines want another one, for which it
uses its workspace: channels-last ones are not copied. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import (
    WINDOW_WEIGHT,
    channels_innermost,
    weight_layouts,
    weight_pack_record,
)
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    WEIGHT,
    ConvProblem,
    X,
    conv_of_work,
    conv_reason,
    epilogue_accesses,
)
from aicf.backends.cuda.families.gemm.problem import Access, strided
from aicf.backends.cuda.families.library.call import LibraryFunction
from aicf.backends.cuda.families.library.cudnn import (
    DTYPES,
    LIBRARY,
    MOST_WORKSPACE_BYTES,
    alignment_reason,
    common_reason,
    common_record,
    strides_reason,
    tensor,
)
from aicf.backends.cuda.families.library.epilogue import library_epilogue
from aicf.backends.cuda.families.library.kernel_base import (
    Algorithm,
    LibraryKernel,
    device_entries,
    unmeasured,
)
from aicf.backends.cuda.families.records import integers
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


@dataclass(frozen=True)
class Tensor:
    """An operand or the result, in the order of cuDNN: images, channels, then each dimension."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A call without the plan.

    Args:
        tensors: `x`, `weight`, `y`, and if they are added `residual` and `bias`.
        operands: Which operand of the instruction is what.
        high: Zeros after the last element along each dimension.
        activation: One of `ACTIVATIONS`.
    """

    tensors: Mapping[str, Tensor]
    operands: Mapping[str, int]
    high: tuple[int, ...]
    activation: str


class _NoCall(Exception):
    """cuDNN cannot be called for this; the message says why."""


def call_of(work: Workload) -> Call:
    """The call that does a work which has passed `conv_reason`. Raises _NoCall."""
    problem = problem_of_work(work)
    assert work.code is not None, "a convolution without code has a reason"
    extras = [strided(operand) for operand in work.operands[FIRST_EXTRA:]]
    reads, writes = epilogue_accesses(work.code, problem, extras, [strided(work.results[0])])
    found = library_epilogue(work.code, ACTIVATIONS)
    if found is None:
        raise _NoCall("cudnn has no such epilogue")
    tensors = {
        "x": _whole((problem.batch, problem.groups * problem.channels, *problem.sizes), problem.x_strides),
        "weight": _whole(_weight_sizes(problem), problem.weight_strides),
        "y": _result(writes[0], problem),
    }
    operands = {"x": X, "weight": WEIGHT}
    for term in found.terms:
        name, added = _term(reads[term - 1], problem)
        if name in tensors:
            raise _NoCall(f"cudnn adds one {name}, here are two")
        tensors[name], operands[name] = added, 1 + term
    if tensors.get("residual", tensors["y"]) != tensors["y"]:
        raise _NoCall("cudnn adds a residual that lies as the result does, here it lies otherwise")
    for name, each in tensors.items():
        if (reason := strides_reason(name, each.sizes, each.strides)) is not None:
            raise _NoCall(reason)
    return Call(tensors, operands, _high(problem), found.activation)


def problem_of_work(work: Workload) -> ConvProblem:
    """The convolution, with its weight as it lies when the kernel runs."""
    return conv_of_work(work, WINDOW_WEIGHT if _packs(work) else None)


def _packs(work: Workload) -> bool:
    """Whether the weight is packed ahead: it is a parameter that stays, and channels are not innermost."""
    weight = work.operands[WEIGHT]
    return weight.layout is not None or (
        weight.is_weight and weight.strides != channels_innermost(weight.shape)
    )


def _weight_sizes(problem: ConvProblem) -> tuple[int, ...]:
    return problem.groups * problem.outputs, problem.channels, *problem.taps


def _whole(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A tensor; along dimensions of one element it has the strides of a channels-last one."""
    own = zip(sizes, strides, channels_innermost(sizes), strict=True)
    return Tensor(sizes, tuple(last if size == 1 else stride for size, stride, last in own))


def _result_sizes(problem: ConvProblem) -> tuple[int, ...]:
    return problem.batch, problem.groups * problem.outputs, *problem.counts


def _channel_stride(access: Access, problem: ConvProblem) -> int:
    """Elements between channels of the result: a group starts where the one before ends. Raises _NoCall."""
    channel = access.strides[-1]
    if problem.groups == 1:
        return channel
    group = access.strides[0]
    if problem.outputs == 1:
        return group
    if group != problem.outputs * channel:
        raise _NoCall("cudnn steps over channels evenly, here groups of them lie elsewhere")
    return channel


def _result(access: Access, problem: ConvProblem) -> Tensor:
    """What has the sizes of the result. Raises _NoCall."""
    if access.offset:
        raise _NoCall("cudnn reads and writes operands from their first element on")
    image, *pixels = access.strides[-2 - problem.rank : -1]
    return _whole(_result_sizes(problem), (image, _channel_stride(access, problem), *pixels))


def _term(access: Access, problem: ConvProblem) -> tuple[str, Tensor]:
    """What is added: a vector along the channels, or a tensor of the result's sizes."""
    sizes = _result_sizes(problem)
    image, *pixels = access.strides[-2 - problem.rank : -1]
    outer = zip((sizes[0], *sizes[2:]), (image, *pixels), strict=True)
    if not all(stride == 0 or size == 1 for size, stride in outer):
        return "residual", _result(access, problem)
    if access.offset or (sizes[1] > 1 and _channel_stride(access, problem) != 1):
        raise _NoCall("cudnn adds a contiguous bias, whole")
    one = (1, sizes[1], *(1 for _ in pixels))
    return "bias", Tensor(one, channels_innermost(one))


def _high(problem: ConvProblem) -> tuple[int, ...]:
    """Zeros after the last element: none where windows end before it. Raises _NoCall."""
    high = tuple(max(0, n) for n in problem.high)
    each = zip(
        problem.sizes, problem.low, high, problem.taps, problem.dilations, problem.strides, strict=True
    )
    counts = tuple(
        (size + low + after - (k - 1) * apart - 1) // step + 1 for size, low, after, k, apart, step in each
    )
    if min(problem.low) < 0 or counts != problem.counts:
        raise _NoCall("cudnn lays zeros around an operand, here windows leave some of it out")
    return high


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
        except _NoCall as error:
            return str(error)
        if work.rounding == "strict" and _rounds_between(call) and work.results[0].dtype != "f32":
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
        if _packs(work):
            entries["layouts"] = weight_layouts(work, WEIGHT, WINDOW_WEIGHT)
        return entries

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target)


def _optional(tensors: Mapping[str, DictionaryAttr], name: str) -> ArrayAttr[Attribute]:
    """None or one, as a list."""
    return ArrayAttr([tensors[name]] if name in tensors else [])


def _rounds_between(call: Call) -> bool:
    """Whether there is a value between the sums and the result."""
    return call.activation != "none" or len(call.operands) > FIRST_EXTRA


KERNELS = (ConvCudnnKernel(),)
"""The kernel of this family."""
