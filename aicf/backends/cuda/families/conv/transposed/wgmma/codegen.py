"""The launch of `cuda.conv_transpose_wgmma`: the template of the product, with copies that know the phase of a tile by
the number of its matrix."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.conv.transposed.problem import TransposedProblem
from aicf.backends.cuda.families.conv.transposed.wgmma.kernel import (
    chunks_of,
    problem_of_launch,
    reads_of,
    task_of,
    weight_of,
    windows_of,
)
from aicf.backends.cuda.families.conv.wgmma.codegen import (
    copy_pixels_call,
    copy_weight,
    weight_map,
    window_map,
)
from aicf.backends.cuda.families.conv.wgmma.kernel import stage_channels
from aicf.backends.cuda.families.gemm.wgmma.codegen import b_lines, kernel_source
from aicf.backends.cuda.families.gemm.wgmma.kernel import clusters_of, spec_of
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec
from aicf.backends.cuda.families.records import read_shape


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an instruction."""
    problem, spec = problem_of_launch(launch), spec_of(launch.record)
    task, windows, weight = task_of(problem), windows_of(problem), weight_of(problem)
    copies = {
        "COPY_A": _copy_pixels(problem, spec),
        "COPY_B": copy_weight(
            weight, spec, [*_phase_lines(problem), *_step_lines(problem), *_tap_lines(problem)]
        ),
        "STEPS": _steps(problem),
    }
    source = kernel_source(task, spec, None, clusters_of(launch.record), copies=copies)
    arguments = (
        window_map(windows, launch.ins[0], spec.tile_m // spec.a_sharers),
        weight_map(weight, launch.ins[1], b_lines(task, spec)),
        address_of(launch.outs[0]),
    )
    code = KernelCode(
        "conv_transpose_wgmma", source, ("ptr",) * len(arguments), spec.threads, spec.blocks_per_sm
    )
    return [launch_in(read_shape(launch.record), code, arguments)]


def _of_phase(values: Sequence[int], phase: str) -> str:
    """The number that a dimension's phase has."""
    text = str(values[-1])
    for number in reversed(range(len(values) - 1)):
        if not text.isdigit() or values[number] != int(text):
            text = f"({values[number]} if {phase} == {number} else {text})"
    return text


def _phase_lines(problem: TransposedProblem) -> list[str]:
    """Statements that name the phase of matrix `matrix` along each dimension, and how many elements reach it."""
    lines: list[str] = []
    for dim, reads in enumerate(reads_of(problem)):
        after, size = prod(problem.strides[dim + 1 :]), problem.strides[dim]
        lines.append(f"phase{dim} = (matrix // {after}) % {size}")
        lines.append(f"count{dim} = {_of_phase(reads.counts, f'phase{dim}')}")
    return lines


def _steps(problem: TransposedProblem) -> Snippet:
    """Parameter matrix: how many stages its K fills."""
    counts = (f"count{dim}" for dim in range(len(problem.dims)))
    total = " * ".join([*counts, str(chunks_of(problem))])
    return Snippet(("matrix",), tuple(_phase_lines(problem)), f"i32({total})")


def _step_lines(problem: TransposedProblem) -> list[str]:
    """Statements that take a step of K apart: which of the elements of the operand that reach a pixel, and the first
    channel."""
    channels, chunks = stage_channels(windows_of(problem)), chunks_of(problem)
    lines = [
        f"step_of_k = k // {channels}",
        f"rest = step_of_k // {chunks}",
        f"channel = (step_of_k - rest * {chunks}) * {channels}",
    ]
    for dim in reversed(range(len(problem.dims))):
        lines += [f"number{dim} = rest % count{dim}", f"rest = rest // count{dim}"]
    return lines


def _tap_lines(problem: TransposedProblem) -> list[str]:
    """Statements that name the element of the weight: the next one of the operand takes one `stride` before."""
    terms: list[str] = []
    for dim, reads in enumerate(reads_of(problem)):
        last = _of_phase(reads.last_taps, f"phase{dim}")
        after = prod(each.taps for each in problem.dims[dim + 1 :])
        terms.append(f"({last} - number{dim} * {problem.strides[dim]}) * {after}")
    return [f"element = {' + '.join(terms)}"]


def _copy_pixels(problem: TransposedProblem, spec: Spec) -> Snippet:
    """Copies this block's share of a stage of A: pixels from `row` on, of the element of the operand and the channels
    that `k` says."""
    windows = windows_of(problem)
    firsts, elements = list[str](), list[str]()
    for dim, reads in reversed(list(enumerate(reads_of(problem)))):
        index = f"((pixel // {prod(windows.counts[dim + 1 :])}) % {windows.counts[dim]})"
        firsts.append(f"i32({index} + {reads.least})")
        elements.append(f"u16({_of_phase(reads.firsts, f'phase{dim}')} + number{dim})")
    lines = [*_phase_lines(problem), *_step_lines(problem)]
    return copy_pixels_call(windows, spec, lines, (firsts, elements))
