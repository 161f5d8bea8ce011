"""Code of `cuda.weight_grad_wgmma`: the template of a product of warpgroups with copies of pixels in the place of
copies of matrices."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.conv.problem import ConvProblem, misplaced
from aicf.backends.cuda.families.conv.weight_grad.problem import (
    GRAD,
    WeightGradProblem,
    X,
    weight_grad_of_launch,
)
from aicf.backends.cuda.families.conv.weight_grad.sums.codegen import sum_launch
from aicf.backends.cuda.families.conv.weight_grad.wgmma.kernel import CHUNK, WeightGradWgmmaKernel
from aicf.backends.cuda.families.conv.wgmma.codegen import coordinates, pixel_step, window_map
from aicf.backends.cuda.families.conv.wgmma.kernel import as_matrix
from aicf.backends.cuda.families.gemm.wgmma.codegen import kernel_source, sharing, tensor_map
from aicf.backends.cuda.families.gemm.wgmma.kernel import clusters_of
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec, Task, Tensor
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.runtime.device_program import TensorMap

_KERNEL = WeightGradWgmmaKernel()


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the product of every part, and the sums of the parts."""
    problem, schedule = weight_grad_of_launch(launch), _KERNEL.read_schedule(launch.record)
    if _KERNEL.memory_reason(problem) is not None:
        raise misplaced(launch)
    spec, task = schedule.tile, _KERNEL.task(schedule, problem)
    copies = {"COPY_A": _copy_grad(task, spec), "COPY_B": _copy_windows(problem.windows, task, spec)}
    source = kernel_source(task, spec, None, clusters_of(launch.record), copies=copies)
    code = KernelCode("weight_grad_wgmma", source, ("ptr",) * 3, spec.threads, spec.blocks_per_sm)
    is_direct = _KERNEL.is_direct(problem, schedule)
    result = address_of(launch.outs[0] if is_direct else launch.ws[0])
    arguments = (*_maps(launch, problem, task), result)
    product = launch_in(read_shape(launch.record), code, arguments)
    if is_direct:
        return [product]
    return [product, sum_launch(launch, problem, _KERNEL.order(problem), schedule.parts)]


def _maps(launch: Launch, problem: WeightGradProblem, task: Task) -> tuple[TensorMap, TensorMap]:
    """The tensor maps of both operands, whose K is all pixels. Past the last one they give zeros."""
    whole = replace(task, problem=replace(task.problem, k=problem.pixels, batch=()))
    grad, windows = problem.grad, problem.windows
    rows = Tensor(False, grad.channels, pixel_step(grad), ())
    passed = tensor_map(whole, rows, launch.ins[GRAD], CHUNK)
    if not as_matrix(windows):
        return passed, window_map(windows, launch.ins[X], CHUNK)
    columns = Tensor(False, windows.channels, pixel_step(windows), ())
    return passed, tensor_map(whole, columns, launch.ins[X], CHUNK)


def _copy_grad(task: Task, spec: Spec) -> Snippet:
    """Copies this block's share of a stage of A: outputs from `row` on of the pixels from `k` of a part on."""
    tile, sharers, own, mask = sharing(spec, "a")
    body = [_first_pixel(task)]
    for first in range(0, tile // sharers, CHUNK):
        body.append(f"place = {own} * {tile // sharers} + {first}" if sharers > 1 else f"place = {first}")
        call = ["u32(at + u32(place * 128))", "a_map", "ready", "i32(row + place)", "pixel"]
        function = "copy_tensor_2d" + ("_multicast" if sharers > 1 else "")
        body.append(f"{function}({', '.join(call + ([mask] if sharers > 1 else []))})")
    return Snippet(("at", "ready", "k", "row", "matrix"), tuple(body))


def _copy_windows(problem: ConvProblem, task: Task, spec: Spec) -> Snippet:
    """Copies this block's share of a stage of B: columns from `row` on of the pixels from `k` of a part on."""
    tile, sharers, own, mask = sharing(spec, "b")
    chunks = -(-problem.channels // CHUNK)
    function, where = _copy_of_windows(problem)
    function += "_multicast" if sharers > 1 else ""
    body = [_first_pixel(task)]
    for first in range(0, tile // sharers, CHUNK):
        body += [
            f"place = {own} * {tile // sharers} + {first}" if sharers > 1 else f"place = {first}",
            f"chunk = (row + place) // {CHUNK}",
            f"element = chunk // {chunks}",
            f"channel = i32((chunk - element * {chunks}) * {CHUNK})",
        ]
        call = ["u32(at + u32(place * 128))", "b0_map", "ready", "channel", *where]
        body.append(f"{function}({', '.join(call + ([mask] if sharers > 1 else []))})")
    return Snippet(("at", "ready", "k", "row", "matrix"), tuple(body))


def _copy_of_windows(problem: ConvProblem) -> tuple[str, list[str]]:
    """The instruction that copies an element of windows, and where these are."""
    if as_matrix(problem):
        return "copy_tensor_2d", ["pixel"]
    firsts, elements = coordinates(problem)
    return f"copy_windows_{problem.rank + 2}d", [*firsts, f"i32(pixel // {prod(problem.counts)})", *elements]


def _first_pixel(task: Task) -> str:
    """A statement that gives the pixel which K of a part starts from."""
    return f"pixel = i32(k + matrix * {task.problem.k})"
