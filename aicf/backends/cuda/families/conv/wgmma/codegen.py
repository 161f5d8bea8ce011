"""Launches of `cuda.conv_wgmma`: the template of the product with copies of windows in the place of copies of a
matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.conv.parts import point_of
from aicf.backends.cuda.families.conv.problem import FIRST_EXTRA, WEIGHT, ConvProblem, X
from aicf.backends.cuda.families.conv.wgmma.closing import combine_statistics
from aicf.backends.cuda.families.conv.wgmma.kernel import (
    MOMENTS,
    as_matrix,
    reaches,
    runs_across,
    sizes_of,
    stage_channels,
    statistics_of_launch,
    steps_of,
    task_of_launch,
    with_statistics,
)
from aicf.backends.cuda.families.gemm.problem import strided
from aicf.backends.cuda.families.gemm.wgmma.codegen import (
    b_lines,
    copy_of,
    kernel_source,
    sharing,
    tensor_map,
)
from aicf.backends.cuda.families.gemm.wgmma.kernel import clusters_of, spec_of
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec, Task, Tensor
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.runtime.device_program import TensorMap, Windows
from aicf.dialects.emit_kernels import KernelOp

_ACROSS = 64
"""Outputs of a line of the weight in shared memory, where lines run across K: 128 bytes of halves."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The launch of an instruction, and if it takes statistics the one that combines their parts."""
    if launch.kind != MOMENTS:
        problem, task = task_of_launch(launch)
        return [_convolve(launch, problem, task)]
    parts = statistics_of_launch(launch)
    stored = launch.outs[parts.stored]
    others = [ref for ref in launch.outs if ref is not stored]
    reads, beside = (
        [launch.ins[FIRST_EXTRA - 1 + number] for number in numbers]
        for numbers in (parts.reads, parts.beside)
    )
    ins = (*launch.ins[:FIRST_EXTRA], *reads)
    product = replace(launch, kind="conv", code=parts.epilogue, ins=ins, outs=(stored,))
    problem, task = task_of_launch(product)
    task = with_statistics(task, problem, parts, strided(stored), [*map(strided, beside)])
    point = None if parts.summed is None else _line_point(product, parts.summed, problem)
    return [
        _convolve(product, problem, task, beside, launch.ws, point),
        combine_statistics(launch, parts, stored, [*launch.ins[FIRST_EXTRA:], *others]),
    ]


def _line_point(launch: Launch, summed: KernelOp, problem: ConvProblem) -> Snippet | None:
    """What is added up for each channel at one pixel, as `point_of` gives what is stored; it goes nowhere as it is."""
    outs = (launch.outs[0],) * len(summed.out_maps)
    return point_of(replace(launch, code=summed, outs=outs), problem)


def _convolve(
    launch: Launch,
    problem: ConvProblem,
    task: Task,
    beside: Sequence[BufferRef] = (),
    parts: Sequence[BufferRef] = (),
    point: Snippet | None = None,
) -> KernelLaunch:
    """The product.

    Args:
        beside, point: What sums of channels read, and what is added up at one pixel, if it takes any.
        parts: Where its parts of statistics go, if it takes any.
    """
    spec = spec_of(launch.record)
    copies = {
        "COPY_A": _copy_pixels(problem, task, spec),
        "COPY_B": copy_weight(problem, spec, _step_lines(problem)),
    }
    copies |= {} if point is None else {"LINE_POINT": point}
    source = kernel_source(task, spec, point_of(launch, problem), clusters_of(launch.record), copies=copies)
    refs = (*launch.ins[FIRST_EXTRA:], *beside, *launch.outs)
    arguments = (
        _pixel_map(problem, task, spec, launch.ins[X]),
        weight_map(problem, launch.ins[WEIGHT], b_lines(task, spec)),
        *map(address_of, (*refs, *parts)),
    )
    code = KernelCode("conv_wgmma", source, ("ptr",) * len(arguments), spec.threads, spec.blocks_per_sm)
    return launch_in(read_shape(launch.record), code, arguments)


# Pixels


def _pixel_map(problem: ConvProblem, task: Task, spec: Spec, ref: BufferRef) -> TensorMap:
    """The operand: a matrix of pixels and channels, or the elements of windows."""
    lines = spec.tile_m // spec.a_sharers
    if as_matrix(problem):
        return tensor_map(task, Tensor(True, problem.pixels, pixel_step(problem), ()), ref, lines)
    return window_map(problem, ref, lines)


def window_map(problem: ConvProblem, ref: BufferRef, pixels: int) -> TensorMap:
    """The elements of windows, for copies of a stage's channels of so many pixels."""
    size = problem.element_bytes
    corners = zip(problem.high, reaches(problem), strict=True)
    pairs = zip(sizes_of(problem), steps_of(problem), strict=True)
    steps = [step if n > 1 else _whole(problem, problem.channels) for n, step in pairs]
    return TensorMap(
        ref.base,
        ref.offset,
        ref.dtype,
        (problem.channels, *problem.sizes[::-1], problem.batch),
        (*(size * step for step in steps[:0:-1]), size * steps[0]),
        (stage_channels(problem), pixels),
        swizzle=128,
        l2_promotion=256,
        interleave=0,
        out_of_bounds="zeros",
        windows=Windows(
            tuple(-low for low in problem.low[::-1]),
            tuple(high - reach for high, reach in corners)[::-1],
            problem.strides[::-1],
        ),
    )


def pixel_step(problem: ConvProblem) -> int:
    """Elements from one pixel to the next, where all are evenly apart."""
    many = [step for n, step in zip(sizes_of(problem), steps_of(problem), strict=True) if n > 1]
    return many[-1] if many else _whole(problem, problem.channels)


def _whole(problem: ConvProblem, elements: int) -> int:
    """Elements of whole 16 bytes that hold so many: a stride along what has a size of 1."""
    whole = 16 // problem.element_bytes
    return ceil(elements / whole) * whole


def _copy_pixels(problem: ConvProblem, task: Task, spec: Spec) -> Snippet:
    """Copies this block's share of a stage of A: pixels from `row` on, of the element of the windows and the channels
    that `k` says."""
    if as_matrix(problem):
        return copy_of(task, Tensor(True, problem.pixels, pixel_step(problem), ()), spec, "a")
    return copy_pixels_call(problem, spec, _step_lines(problem), coordinates(problem))


def copy_pixels_call(
    problem: ConvProblem, spec: Spec, lines: Sequence[str], places: tuple[Sequence[str], Sequence[str]]
) -> Snippet:
    """Copies this block's share of a stage of A from `row` on.

    Args:
        lines: Statements that name the first `channel` of step `k`, and what `places` reads.
        places: Of pixel `pixel`, as `coordinates` gives them.
    """
    tile, sharers, own, mask = sharing(spec, "a")
    body = [
        f"place = {own} * {tile // sharers}" if sharers > 1 else "place = 0",
        "pixel = row + place",
        *lines,
    ]
    firsts, elements = places
    image = f"i32(pixel // {prod(problem.counts)})"
    call = ["u32(at + u32(place * 128))", "a_map", "ready", "i32(channel)", *firsts, image, *elements]
    function = f"copy_windows_{problem.rank + 2}d" + ("_multicast" if sharers > 1 else "")
    body.append(f"{function}({', '.join(call + ([mask] if sharers > 1 else []))})")
    return Snippet(("at", "ready", "k", "row", "matrix"), tuple(body))


def _step_lines(problem: ConvProblem) -> list[str]:
    """Statements that take a step of K apart: the element of the windows, and the first channel."""
    channels = stage_channels(problem)
    chunks = ceil(problem.channels / channels)
    return [
        f"step_of_k = k // {channels}",
        f"element = step_of_k // {chunks}",
        f"channel = (step_of_k - element * {chunks}) * {channels}",
    ]


def coordinates(problem: ConvProblem) -> tuple[list[str], list[str]]:
    """For each dimension, innermost first: the first element of the window of a pixel, and which of its elements."""
    firsts: list[str] = []
    elements: list[str] = []
    for dim in reversed(range(problem.rank)):
        index = f"((pixel // {prod(problem.counts[dim + 1 :])}) % {problem.counts[dim]})"
        firsts.append(f"i32({index} * {problem.strides[dim]} - {problem.low[dim]})")
        tap = f"((element // {prod(problem.taps[dim + 1 :])}) % {problem.taps[dim]})"
        elements.append(f"u16({tap} * {problem.dilations[dim]})")
    return firsts, elements


# Weight


def weight_map(problem: ConvProblem, ref: BufferRef, lines: int) -> TensorMap:
    """The weight: channels, elements of a window, outputs; or outputs first and channels last, where it `runs_across`.

    Args:
        lines: Outputs of a copy, if its lines run along channels.
    """
    size, channels, outputs = problem.element_bytes, problem.channels, problem.outputs
    output, channel, *taps = problem.weight_strides
    many = [step for n, step in zip(problem.taps, taps, strict=True) if n > 1]
    across = runs_across(problem)
    inner, lead, outer = (outputs, channel, channels) if across else (channels, output, outputs)
    step = many[-1] if many else _whole(problem, inner)
    box = (_ACROSS, 1, stage_channels(problem)) if across else (stage_channels(problem), 1, lines)
    return TensorMap(
        ref.base,
        ref.offset,
        ref.dtype,
        (inner, problem.window, outer),
        (size * step, size * (lead if outer > 1 else step * problem.window)),
        box,
        swizzle=128,
        l2_promotion=256,
        interleave=0,
        out_of_bounds="zeros",
    )


def copy_weight(problem: ConvProblem, spec: Spec, lines: Sequence[str]) -> Snippet:
    """Copies this block's share of a stage of B: outputs from `row` on, at once or as many as a line has.

    Args:
        lines: Statements that name the first `channel` of step `k`, and the `element` of the windows.
    """
    tile, sharers, own, mask = sharing(spec, "b")
    share, across = tile // sharers, runs_across(problem)
    function = "copy_tensor_3d" + ("_multicast" if sharers > 1 else "")
    body = list(lines)
    for first in range(0, share, _ACROSS if across else share):
        body.append(f"place = {own} * {share} + {first}" if sharers > 1 else f"place = {first}")
        indices = ["i32(channel)", "i32(element)", "i32(row + place)"]
        call = ["u32(at + u32(place * 128))", "b0_map", "ready", *(indices[::-1] if across else indices)]
        body.append(f"{function}({', '.join(call + ([mask] if sharers > 1 else []))})")
    return Snippet(("at", "ready", "k", "row", "matrix"), tuple(body))
