"""Reads a transposed convolution from its operands, and takes it apart into phases. Plain data.

Elements of the result that are `stride` apart are a *phase*: the same elements of the weight reach all of them. So each
phase is a convolution of stride 1, of the operand with a part of the weight turned round, and no zeros are multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import gcd, prod

from xdsl.ir import Attribute

from aicf.backends.base import BufferRef
from aicf.backends.common.record import read_integer
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.families.conv.pack.kernel import packed
from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.gemm.problem import Strided, strided
from aicf.backends.cuda.target import ELEMENT_BYTES

KIND = "conv_transpose"
WEIGHT = 1
"""Number of the operand."""
TYPES = ("f16", "bf16")
_MOST_PHASES = 16
_ALIGNMENT = 16


@dataclass(frozen=True)
class Phase:
    """Every `stride`-th element of the result along one dimension.

    Args:
        start: The first of them.
        count: How many there are.
        first: The element of the operand that reaches the first of them with the first of `taps`.
        taps: The elements of the weight with which the operand's elements first, first + 1, .. reach it: descending.
    """

    start: int
    count: int
    first: int
    taps: range


@dataclass(frozen=True)
class TransposedDim:
    """One dimension: sizes of operand and result, and how windows lie in the result."""

    size: int
    count: int
    taps: int
    stride: int
    low: int

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """As many as elements from one window to the next."""
        return tuple(self._phase(start) for start in range(min(self.stride, self.count)))

    def _phase(self, start: int) -> Phase:
        window, least = divmod(start + self.low, self.stride)
        taps = range(least, self.taps, self.stride)[::-1]
        return Phase(start, -(-(self.count - start) // self.stride), window - (len(taps) - 1), taps)


@dataclass(frozen=True)
class TransposedProblem:
    """A transposed convolution along one to three dimensions.

    Args:
        dtype: Of operands and result.
        batch: Images.
        channels, outputs: Of operand and result.
        dims: The spatial dimensions.
        x, weight, y: Operands and result in memory: ``[N, C, S..]``, ``[C, M, K..]``, ``[N, M, O..]``.
    """

    dtype: str
    batch: int
    channels: int
    outputs: int
    dims: tuple[TransposedDim, ...]
    x: Strided
    weight: Strided
    y: Strided

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements of the result from one window to the next."""
        return tuple(dim.stride for dim in self.dims)

    @property
    def phases(self) -> tuple[tuple[Phase, ...], ...]:
        """One along each dimension for every phase of the result, those along the last dimension next to each other."""
        return tuple(product(*(dim.phases for dim in self.dims)))

    @property
    def weight_strides(self) -> tuple[int, ...]:
        """Elements between outputs, between channels, then along each dimension of a window."""
        channel, output, *taps = self.weight.strides
        return output, channel, *taps

    @property
    def elements(self) -> int:
        """Of the operand."""
        return self.batch * self.channels * prod(dim.size for dim in self.dims)


def read_transposed(
    attrs: Mapping[str, Attribute],
    ins: Sequence[OperandInfo] | Sequence[BufferRef],
    out: OperandInfo | BufferRef,
    layout: str | None = None,
) -> TransposedProblem:
    """The problem of an instruction.

    Args:
        attrs: Attributes of its kind, or a record that holds them.
        layout: That in which the weight is packed, None if it lies as the operand says.
    """
    x, weight, y = strided(ins[0]), strided(ins[WEIGHT]), strided(out)
    weight = weight if layout is None else packed(weight, layout)
    dims = tuple(
        TransposedDim(
            *(each.shape[2 + dim] for each in (x, y, weight)),
            *(read_integer(attrs, f"{name}_{dim}") for name in ("stride", "low")),
        )
        for dim in range(len(x.shape) - 2)
    )
    return TransposedProblem(x.dtype, x.shape[0], x.shape[1], y.shape[1], dims, x, weight, y)


def refusal(
    attrs: Mapping[str, Attribute],
    ins: Sequence[OperandInfo] | Sequence[BufferRef],
    out: OperandInfo | BufferRef,
) -> str | None:
    """Why a transposed convolution has no phases that a kernel of this folder runs, None if it has."""
    dtypes = {operand.dtype for operand in (*ins, out)}
    if len(dtypes) > 1 or not dtypes <= set(TYPES):
        return (
            f"tensor cores multiply {' and '.join(TYPES)} here, its operands are {', '.join(sorted(dtypes))}"
        )
    if any(0 in operand.shape for operand in (*ins, out)):
        return "nothing to convolve"
    if (groups := read_integer(attrs, "groups")) > 1:
        return f"it has {groups} groups of channels"
    problem = read_transposed(attrs, ins, out)
    if any(read_integer(attrs, f"dilation_{dim}") > 1 for dim in range(len(problem.dims))):
        return "the elements of its windows lie apart"
    if any(dim.taps < dim.stride for dim in problem.dims):
        return "some elements of the result are in no window: a convolution and zeros around its elements move less"
    if prod(problem.strides) > _MOST_PHASES:
        return f"it has {prod(problem.strides)} phases, more than {_MOST_PHASES}"
    return None


# One phase


@dataclass(frozen=True)
class PhaseOperands:
    """Where the weight and the result of one phase lie: elements from their starts, and elements between neighbours."""

    weight_offset: int
    weight_strides: tuple[int, ...]
    y_offset: int
    y_strides: tuple[int, ...]


def operands_of_phase(problem: TransposedProblem, own: Sequence[Phase]) -> PhaseOperands:
    """The operands of a phase as those of a convolution: the weight is turned round, so that its steps are negative."""
    steps = list(zip(problem.dims, own, problem.weight_strides[2:], problem.y.strides[2:], strict=True))
    return PhaseOperands(
        sum(phase.taps[0] * step for _, phase, step, _ in steps),
        (*problem.weight_strides[:2], *(-dim.stride * step for dim, _, step, _ in steps)),
        sum(phase.start * step for _, phase, _, step in steps),
        (*problem.y.strides[:2], *(dim.stride * step for dim, _, _, step in steps)),
    )


def conv_of_phase(problem: TransposedProblem, own: Sequence[Phase]) -> ConvProblem:
    """The convolution of stride 1 that a phase is."""
    operands, ones = operands_of_phase(problem, own), (1,) * len(own)
    start = operands.weight_offset * ELEMENT_BYTES[problem.dtype]
    return ConvProblem(
        problem.dtype,
        batch=problem.batch,
        groups=1,
        channels=problem.channels,
        outputs=problem.outputs,
        sizes=tuple(dim.size for dim in problem.dims),
        counts=tuple(phase.count for phase in own),
        taps=tuple(len(phase.taps) for phase in own),
        strides=ones,
        dilations=ones,
        low=tuple(-phase.first for phase in own),
        x_strides=problem.x.strides,
        weight_strides=operands.weight_strides,
        x_alignment=problem.x.alignment,
        weight_alignment=gcd(problem.weight.alignment, start, _ALIGNMENT),
    )
