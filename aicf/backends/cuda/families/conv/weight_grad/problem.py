"""Reads the gradient of a weight from its operands, as a product. Plain data; no code generator.

As a product it has a row for every output channel of a group and a column for every element of a window, in the order
of `windows.KOrder`; K runs over the pixels of all images. Both operands are read pixel by pixel: at a pixel lie the
output channels of what is passed back, and a window of the convolution's operand. K is cut into *parts*, each summed by
blocks of its own: M and N are small, and K is huge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod

from xdsl.ir import Attribute

from aicf.backends.base import Launch
from aicf.backends.common.record import read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.problem import ConvProblem, conv_of, misplaced
from aicf.backends.cuda.families.conv.windows import KOrder, reach_reason
from aicf.backends.cuda.families.gemm.problem import Access, GemmProblem, Strided, strided
from aicf.backends.cuda.target import ELEMENT_BYTES

X, GRAD = 0, 1
"""Numbers of the operands."""


@dataclass(frozen=True)
class WeightGradProblem:
    """The gradient of one weight.

    Args:
        windows: The convolution; its weight lies where the gradient is written.
        grad: What is passed back to its result, as a convolution of single pixels that has as many pixels: its channels
            are the outputs of a group.
        result_alignment: Bytes to which the first element of the gradient is aligned, at most 16.
    """

    windows: ConvProblem
    grad: ConvProblem
    result_alignment: int

    @property
    def dtype(self) -> str:
        """Of operands and result."""
        return self.windows.dtype

    @property
    def pixels(self) -> int:
        """Of all images: K of the product."""
        return self.windows.pixels

    @property
    def outputs(self) -> int:
        """Of a group: rows of the product."""
        return self.windows.outputs

    @property
    def groups(self) -> int:
        """Of channels: matrices of the product."""
        return self.windows.groups

    @property
    def sums(self) -> str:
        """Element type of the sums."""
        return "f64" if self.dtype == "f64" else "f32"

    @property
    def touched(self) -> int:
        """Elements of both operands."""
        x, grad = self.windows, self.grad
        return x.batch * x.groups * x.channels * prod(x.sizes) + grad.groups * grad.channels * grad.pixels

    def steps(self, k: int) -> int:
        """Stages of `k` pixels that K fills."""
        return ceil(self.pixels / k)

    def product(self, columns: int, parts: int, k: int) -> GemmProblem:
        """The product of so many columns: its matrices are parts of `k` pixels each, then groups. Rows of A and columns
        of B are neighbours; where they lie says the convolution, not the product."""
        x, grad, wide = self.windows, self.grad, max(2, columns)
        steps = grad.channels * grad.x_strides[1], x.channels * x.x_strides[1]
        return GemmProblem(
            self.dtype,
            self.outputs,
            columns,
            k,
            (1, max(2, self.outputs)),
            (wide, 1),
            (parts, self.groups),
            (0, steps[0]),
            (0, steps[1]),
            (self.outputs,),
            1,
            1,
            grad.x_alignment,
            x.x_alignment,
        )

    def parts_bytes(self, columns: int, parts: int) -> int:
        """Of the sums of all parts in the workspace."""
        return ELEMENT_BYTES[self.sums] * parts * self.groups * self.outputs * columns

    def parts_access(self, columns: int) -> Access:
        """Where a sum lies in the workspace: ``[part][group][row][column]``."""
        matrix = self.outputs * columns
        return Access(self.sums, 0, (self.groups * matrix, matrix, columns, 1), 16)

    def result_access(self, order: KOrder) -> Access | None:
        """Where a sum lies in the result, if nothing is cut into parts; None if columns are not evenly apart there."""
        run, digits = order.run, order.digits
        chunk = run.times(order.chunk, order.run_chunks)
        steps = [(each.size, each.weight_step) for each in digits if each.size > 1]
        first = (chunk.size, chunk.weight_step)
        lists = steps if chunk.size > 1 else [first, *steps]
        if run.size % order.chunk or any(step != n * before for (n, before), (_, step) in pairwise(lists)):
            return None
        row = self.windows.weight_strides[0]
        return Access(self.dtype, 0, (0, self.outputs * row, row, run.weight_step), self.result_alignment)


def weight_grad_of_work(work: Workload) -> WeightGradProblem:
    """What a work asks for. It has passed `weight_grad_reason`."""
    x, grad = map(strided, work.operands)
    return _problem(work.attrs, x, grad, strided(work.results[0]))


def weight_grad_of_launch(launch: Launch) -> WeightGradProblem:
    """What an instruction computes, as its record says. Raises PlanError if it reaches too far."""
    x, grad = map(strided, launch.ins)
    problem = _problem(launch.record, x, grad, strided(launch.outs[0]))
    if far_reason(problem) is not None:
        raise misplaced(launch)
    return problem


def weight_grad_reason(work: Workload) -> str | None:
    """Why no kernel of this folder runs `work`; None if its operands and sizes say nothing against it."""
    if any(0 in operand.shape for operand in (*work.operands, *work.results)):
        return "there is nothing to sum"
    return far_reason(weight_grad_of_work(work))


def far_reason(problem: WeightGradProblem) -> str | None:
    """Why places within a window, or of pixels, are no 32-bit numbers; None if they are."""
    return reach_reason(problem.windows) or reach_reason(problem.grad)


def _problem(attrs: Mapping[str, Attribute], x: Strided, grad: Strided, result: Strided) -> WeightGradProblem:
    windows = conv_of(attrs, x, result, grad.shape[2:], x.dtype)
    return WeightGradProblem(windows, _pixels(grad, read_integer(attrs, "groups")), result.alignment)


def _pixels(grad: Strided, groups: int) -> ConvProblem:
    """What is passed back as a convolution of single pixels; dimensions that lie as one are one."""
    (batch, *sizes), (image, *steps) = _joined(
        (grad.shape[0], *grad.shape[2:]), (grad.strides[0], *grad.strides[2:])
    )
    if not sizes:
        batch, sizes, image, steps = 1, [batch], 0, [image]
    one, none = (1,) * len(sizes), (0,) * len(sizes)
    return ConvProblem(
        grad.dtype,
        batch=batch,
        groups=groups,
        channels=grad.shape[1] // groups,
        outputs=1,
        sizes=tuple(sizes),
        counts=tuple(sizes),
        taps=one,
        strides=one,
        dilations=one,
        low=none,
        x_strides=(image, grad.strides[1], *steps),
        weight_strides=(1, 1, *none),
        x_alignment=grad.alignment,
        weight_alignment=16,
    )


def _joined(sizes: Sequence[int], steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes and steps of the same elements in fewer dimensions, where some lie as one."""
    found: list[tuple[int, int]] = []
    for size, step in zip(sizes, steps, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * step:
            found[-1] = (found[-1][0] * size, step)
        else:
            found.append((size, step))
    found = found or [(1, 0)]
    return [size for size, _ in found], [step for _, step in found]
