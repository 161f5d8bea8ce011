"""The call of cuDNN that does a convolution: its tensors in cuDNN's terms, and which of its epilogues follows. Plain
data, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import WINDOW_WEIGHT, channels_innermost
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    WEIGHT,
    ConvProblem,
    X,
    conv_of_work,
    epilogue_accesses,
)
from aicf.backends.cuda.families.gemm.problem import Access, strided
from aicf.backends.cuda.families.library.cudnn import strides_reason
from aicf.backends.cuda.families.library.epilogue import library_epilogue

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

    @property
    def rounds_between(self) -> bool:
        """Whether there is a value between the sums and the result."""
        return self.activation != "none" or len(self.operands) > FIRST_EXTRA


class NoCall(Exception):
    """cuDNN cannot be called for this; the message says why."""


def call_of(work: Workload) -> Call:
    """The call that does a work which has passed `conv_reason`. Raises NoCall."""
    problem = problem_of_work(work)
    assert work.code is not None, "a convolution without code has a reason"
    extras = [strided(operand) for operand in work.operands[FIRST_EXTRA:]]
    reads, writes = epilogue_accesses(work.code, problem, extras, [strided(work.results[0])])
    found = library_epilogue(work.code, ACTIVATIONS)
    if found is None:
        raise NoCall("cudnn has no such epilogue")
    tensors = {
        "x": _whole((problem.batch, problem.groups * problem.channels, *problem.sizes), problem.x_strides),
        "weight": _whole(_weight_sizes(problem), problem.weight_strides),
        "y": _result(writes[0], problem),
    }
    operands = {"x": X, "weight": WEIGHT}
    for term in found.terms:
        name, added = _term(reads[term - 1], problem)
        if name in tensors:
            raise NoCall(f"cudnn adds one {name}, here are two")
        tensors[name], operands[name] = added, 1 + term
    if tensors.get("residual", tensors["y"]) != tensors["y"]:
        raise NoCall("cudnn adds a residual that lies as the result does, here it lies otherwise")
    for name, each in tensors.items():
        if (reason := strides_reason(name, each.sizes, each.strides)) is not None:
            raise NoCall(reason)
    return Call(tensors, operands, _high(problem), found.activation)


def problem_of_work(work: Workload) -> ConvProblem:
    """The convolution, with its weight as it lies when the kernel runs."""
    return conv_of_work(work, WINDOW_WEIGHT if packs_weight(work) else None)


def packs_weight(work: Workload) -> bool:
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
    """Elements between channels of the result: a group starts where the one before ends. Raises NoCall."""
    channel = access.strides[-1]
    if problem.groups == 1:
        return channel
    group = access.strides[0]
    if problem.outputs == 1:
        return group
    if group != problem.outputs * channel:
        raise NoCall("cudnn steps over channels evenly, here groups of them lie elsewhere")
    return channel


def _result(access: Access, problem: ConvProblem) -> Tensor:
    """What has the sizes of the result. Raises NoCall."""
    if access.offset:
        raise NoCall("cudnn reads and writes operands from their first element on")
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
        raise NoCall("cudnn adds a contiguous bias, whole")
    one = (1, sizes[1], *(1 for _ in pixels))
    return "bias", Tensor(one, channels_innermost(one))


def _high(problem: ConvProblem) -> tuple[int, ...]:
    """Zeros after the last element: none where windows end before it. Raises NoCall."""
    high = tuple(max(0, n) for n in problem.high)
    each = zip(
        problem.sizes, problem.low, high, problem.taps, problem.dilations, problem.strides, strict=True
    )
    counts = tuple(
        (size + low + after - (k - 1) * apart - 1) // step + 1 for size, low, after, k, apart, step in each
    )
    if min(problem.low) < 0 or counts != problem.counts:
        raise NoCall("cudnn lays zeros around an operand, here windows leave some of it out")
    return high
