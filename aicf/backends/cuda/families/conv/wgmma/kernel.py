"""The descriptors of `cuda.conv_wgmma` and `cuda.conv_wgmma_int8`: which convolutions are a product of
`cuda.gemm_wgmma` or `cuda.gemm_wgmma_int8` without windows in memory.

Bulk tensor copies read an element of each window at once, for as many neighbouring pixels as a tile has rows (the
im2col mode of TMA), zeros where a window reaches out of the image. A stage of the ring is 64 channels of halves or 128
of bytes, of one element of the windows. Everything else is the product's. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import (
    WINDOW_WEIGHT,
    weight_layouts,
    weight_pack_record,
)
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    WEIGHT,
    ConvProblem,
    conv_of_launch,
    conv_of_work,
    conv_reason,
    epilogue_accesses,
    misplaced,
    windows_of,
)
from aicf.backends.cuda.families.conv.wgmma.moments import (
    Statistics,
    closing_nest,
    closing_spec,
    closing_us,
    order_text,
    pixels_reason,
    statistics_bytes,
    statistics_of,
)
from aicf.backends.cuda.families.conv.windows import padded_dims
from aicf.backends.cuda.families.gemm.byte_operands import INTEGERS
from aicf.backends.cuda.families.gemm.problem import Strided, early_b, strided
from aicf.backends.cuda.families.gemm.wgmma.kernel import (
    INTEGER_VALUES,
    WgmmaKernel,
    arch_reason,
    combination_order,
    functions_in,
    operands_reason,
    task_reason,
)
from aicf.backends.cuda.families.gemm.wgmma.schedule import K_BYTES, Spec, Task
from aicf.backends.cuda.families.records import integers, read_early
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

MOMENTS = "conv_moments"
"""The kind of convolutions beside which statistics of channels are taken, moments or sums."""
_WHOLE_BYTES = 16
"""Bulk tensor copies need strides of whole ones."""
_CORNER_BITS, _ELEMENT_BITS = 16, 16
"""Of a descriptor for the corners of the windows, of an instruction for the element of one, shared by all dims."""
_MOST_STEP = 8
"""Of windows along a dimension."""


def as_matrix(problem: ConvProblem) -> bool:
    """Whether the windows are the pixels themselves, one after the other: A is a matrix in memory."""
    single = all(n == 1 for n in (*problem.taps, *problem.strides)) and not any(problem.low)
    return single and problem.sizes == problem.counts and _is_one_run(problem)


def runs_across(problem: ConvProblem) -> bool:
    """Whether neighbouring outputs of the weight are neighbours in memory, not its channels: so lies that of a data
    gradient of one element a window, which is a transposed view of the convolution's own."""
    output, channel = problem.weight_strides[:2]
    return output == 1 and problem.outputs > 1 and channel != 1 and problem.channels > 1


def stage_channels(problem: ConvProblem) -> int:
    """Channels of a stage: of a copy."""
    return K_BYTES // problem.element_bytes


def sizes_of(problem: ConvProblem) -> tuple[int, ...]:
    """Images, and the sizes of one along each dimension."""
    return problem.batch, *problem.sizes


def steps_of(problem: ConvProblem) -> tuple[int, ...]:
    """Elements from one to the next of `sizes_of`."""
    return problem.x_strides[0], *problem.x_strides[2:]


def _is_one_run(problem: ConvProblem) -> bool:
    """Whether all pixels of all images are evenly apart in memory."""
    many = [(n, step) for n, step in zip(sizes_of(problem), steps_of(problem), strict=True) if n > 1]
    return all(outer == n * step for (_, outer), (n, step) in pairwise(many))


def task_of(
    problem: ConvProblem, code: KernelOp | None, own: tuple[list[Strided], list[Strided]], early: bool
) -> Task:
    """The product. `own` are the other operands of the epilogue, and the results."""
    channels = stage_channels(problem)
    chunks = ceil(problem.channels / channels)
    k = problem.channels if as_matrix(problem) else problem.window * chunks * channels
    product = problem.product(k)
    if runs_across(problem):
        product = replace(product, b_strides=(problem.weight_strides[1], 1))
    reads, writes = epilogue_accesses(code, problem, *own)
    elements = problem.batch * prod(problem.sizes) * problem.channels
    return Task(product, reads, writes[0], early, functions_in(code), writes[1:], 0, elements)


def task_of_launch(launch: Launch) -> tuple[ConvProblem, Task]:
    """What an instruction computes, as its record says. Raises PlanError if its operands do not lie as that says."""
    problem = conv_of_launch(launch)
    if problem_reason(problem) is not None:
        raise misplaced(launch)
    own = [strided(ref) for ref in launch.ins[FIRST_EXTRA:]], [strided(ref) for ref in launch.outs]
    return problem, task_of(problem, launch.code, own, bool(read_early(launch.record)))


def with_statistics(
    task: Task, problem: ConvProblem, parts: Statistics, stored: Strided, others: list[Strided]
) -> Task:
    """The product with what its rows leave of columns; `stored` is its result, `others` are what the sums read."""
    if parts.summed is None:
        return replace(task, moments=True)
    sums = len(parts.summed.out_maps)
    reads, _ = epilogue_accesses(
        parts.summed, problem, others, [stored] * sums
    )  # they go nowhere as they are
    return replace(task, column_sums=sums, beside=reads)


def statistics_of_launch(launch: Launch) -> Statistics:
    """The scalar program of an instruction that takes statistics. Raises PlanError if it does not."""
    parts = "it has none" if launch.code is None else statistics_of(launch.code)
    if isinstance(parts, str):
        raise misplaced(launch)
    return parts


class ConvWgmmaKernel(WgmmaKernel):
    """Convolutions of channels-last f16 or bf16 with any epilogue, by warpgroup products out of bulk tensor copies."""

    id = "cuda.conv_wgmma"
    kinds = frozenset({"conv"})
    row_bytes = 0

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        arch = arch_named(target.arch.data)
        if (reason := arch_reason(arch) or self.dtype_reason(work)) is not None:
            return reason
        if (reason := conv_reason(work, self.widens) or operands_reason(work, self.values)) is not None:
            return reason
        if (reason := problem_reason(_problem(work))) is not None:
            return reason
        return task_reason(self.task(work), arch)

    def task(self, work: Workload) -> Task:
        own = [strided(one) for one in work.operands[FIRST_EXTRA:]], [strided(one) for one in work.results]
        return task_of(_problem(work), work.code, own, bool(early_b(work)))

    def problem_entries(self, work: Workload) -> Mapping[str, Attribute]:
        return _entries(work, _packs(work), work.attrs if self.widens else None)

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target)


class ConvWgmmaIntegerKernel(ConvWgmmaKernel):
    """Convolutions of channels-last 8-bit integers with any epilogue, with sums of i32."""

    id = "cuda.conv_wgmma_int8"
    widens = True
    values = INTEGER_VALUES

    def dtype_reason(self, work: Workload) -> str | None:
        return INTEGERS.reason(work)


class ConvWgmmaMomentsKernel(ConvWgmmaKernel):
    """Convolutions of channels-last f16 or bf16 beside which statistics of each channel are taken of what a block
    stores: the mean and the squares around it, for a batch norm, or up to three sums, for its gradient. See
    `moments.py`."""

    id = "cuda.conv_wgmma_moments"
    kinds = frozenset({MOMENTS})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if work.code is None:
            return "what follows the convolution has no generated code"
        parts = statistics_of(work.code)
        if isinstance(parts, str):
            return parts
        if (reason := super().legal(_convolution(work, parts), target)) is not None:
            return reason
        task = self.task(work)
        if task.store(False) != "packed":
            return "statistics are taken of results that are stored as lines of 16 bytes"
        return pixels_reason(task.problem.m) or task_reason(task, arch_named(target.arch.data))

    def task(self, work: Workload) -> Task:
        if work.kind != MOMENTS:
            return super().task(work)
        parts = _statistics(work)
        others = [strided(work.operands[FIRST_EXTRA - 1 + number]) for number in parts.beside]
        task, stored = super().task(_convolution(work, parts)), strided(work.results[parts.stored])
        return with_statistics(task, _problem_of(work), parts, stored, others)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return super().cost_us(work, target) + closing_us(_closing_nest(work), arch_named(target.arch.data))

    def problem_entries(self, work: Workload) -> Mapping[str, Attribute]:
        return _entries(work, _packs(_convolution(work, _statistics(work))))

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        nest = _closing_nest(work)
        spec = closing_spec(nest)
        order = f"{combination_order(schedule)}; {order_text(_statistics(work), nest)}"
        return {
            **super().record_of(work, target, schedule),
            "combination_order": StringAttr(order),
            "workspace_bytes": integer(statistics_bytes(nest)),
            "sum_grid": integers(spec.grids(nest)[-1]),
            "sum_block": integers((spec.threads, 1, 1)),
        }


def _statistics(work: Workload) -> Statistics:
    assert work.code is not None
    parts = statistics_of(work.code)
    assert not isinstance(parts, str), "asked of legal work"
    return parts


def _convolution(work: Workload, parts: Statistics) -> Workload:
    """The convolution of a work that takes statistics, too, as a work of its own."""
    extras = (work.operands[FIRST_EXTRA - 1 + number] for number in parts.reads)
    operands, results = (*work.operands[:FIRST_EXTRA], *extras), (work.results[parts.stored],)
    return replace(work, kind="conv", code=parts.epilogue, operands=operands, results=results)


def _problem_of(work: Workload) -> ConvProblem:
    """The convolution of a work that takes statistics."""
    return _problem(_convolution(work, _statistics(work)))


def _closing_nest(work: Workload) -> LoopNest:
    """The second launch of a work that takes statistics."""
    parts = _statistics(work)
    others = [result for number, result in enumerate(work.results) if number != parts.stored]
    return closing_nest(parts.closing, work.results[parts.stored], [*work.operands[FIRST_EXTRA:], *others])


def _problem(work: Workload) -> ConvProblem:
    """The convolution, with its weight as it lies when the kernel runs."""
    return conv_of_work(work, WINDOW_WEIGHT if _packs(work) else None)


def _entries(
    work: Workload, packs: bool, windows: Mapping[str, Attribute] | None = None
) -> Mapping[str, Attribute]:
    """Its windows, by default without what lies around the operand, and the layout of a weight that is packed."""
    found = windows_of(work) if windows is None else windows
    return {**found, "layouts": weight_layouts(work, WEIGHT, WINDOW_WEIGHT)} if packs else found


def _packs(work: Workload) -> bool:
    """Whether the weight is packed ahead: it is a parameter that stays, and lies otherwise."""
    weight = work.operands[WEIGHT]
    if weight.layout is not None:
        return True
    return weight.is_weight and weight_reason(conv_of_work(work)) is not None


def problem_reason(problem: ConvProblem) -> str | None:
    """Why bulk tensor copies do not read the windows of a convolution, or its weight; None if they do."""
    if (reason := operand_reason(problem) or weight_reason(problem)) is not None:
        return reason
    return None if as_matrix(problem) else window_reason(problem)


def operand_reason(problem: ConvProblem) -> str | None:
    """Why bulk tensor copies do not read the operand where it lies; None if they do."""
    if problem.groups > 1:
        return f"it has {problem.groups} groups of channels, and a stage is channels of all of them"
    if not problem.is_channels_last:
        return "bulk tensor copies read neighbouring channels, its operand is not channels-last"
    steps = [step for n, step in zip(sizes_of(problem), steps_of(problem), strict=True) if n > 1]
    if not _are_whole(problem, steps) or problem.x_alignment % _WHOLE_BYTES:
        return f"the bulk tensor copy needs strides of whole 16 bytes, its operand has {steps} elements"
    return None


def _are_whole(problem: ConvProblem, steps: Sequence[int]) -> bool:
    """Whether strides are of whole 16 bytes."""
    whole = _WHOLE_BYTES // problem.element_bytes
    return all(step % whole == 0 and step >= whole for step in steps)


def weight_reason(problem: ConvProblem) -> str | None:
    """Why bulk tensor copies do not read the weight where it lies."""
    output, channel, *taps = problem.weight_strides
    many = [(n, step) for n, step in zip(problem.taps, taps, strict=True) if n > 1]
    across = runs_across(problem)
    if across and problem.element_bytes != ELEMENT_BYTES["f16"]:
        return f"warpgroup products of {problem.dtype} read neighbouring channels, its weight has outputs innermost"
    if not across and channel != 1 and problem.channels > 1:
        return "bulk tensor copies read neighbouring channels or outputs, its weight has others innermost"
    if any(outer != n * step for (_, outer), (n, step) in pairwise(many)):
        return "the elements of a window of its weight are not evenly apart"
    lines = (problem.channels, channel) if across else (problem.outputs, output)
    steps = [step for n, step in (lines, *many) if n > 1]
    if not _are_whole(problem, steps) or problem.weight_alignment % _WHOLE_BYTES:
        return f"the bulk tensor copy needs strides of whole 16 bytes, its weight has {steps} elements"
    return None


def window_reason(problem: ConvProblem) -> str | None:
    """Why no descriptor or instruction says where the windows are, or what lies around the operand."""
    if problem.padding_value != 0 and padded_dims(problem):
        return f"bulk tensor copies put zeros around the operand, here it is {problem.padding_value}"
    corner, element = 1 << (_CORNER_BITS // problem.rank - 1), 1 << (_ELEMENT_BITS // problem.rank)
    for low, high, reach in zip(problem.low, problem.high, reaches(problem), strict=True):
        if reach >= element or low > corner or not -corner <= high - reach < corner:
            return f"windows that reach {reach} elements, with {low} and {high} zeros around, are too long for a copy"
    if (step := max(problem.strides)) > _MOST_STEP:
        return f"windows {step} apart are further than the {_MOST_STEP} of a copy"
    return None


def reaches(problem: ConvProblem) -> tuple[int, ...]:
    """From the first to the last element of a window, along each dimension."""
    return tuple((k - 1) * apart for k, apart in zip(problem.taps, problem.dilations, strict=True))


KERNELS = (ConvWgmmaKernel(), ConvWgmmaMomentsKernel(), ConvWgmmaIntegerKernel())
"""The kernels of this family."""
