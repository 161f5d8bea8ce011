# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Templates are text in the form of functions: their parameters have no types.
"""Code of `cuda.weight_grad_depthwise`: the template with its snippets, and the launch that adds the parts."""

from __future__ import annotations

from math import ceil

from aicf.backends.base import Launch
from aicf.backends.cuda.codegen.scalar import store_snippet
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, stage
from aicf.backends.cuda.families.conv.problem import ConvProblem, misplaced
from aicf.backends.cuda.families.conv.weight_grad.depthwise.kernel import WeightGradDepthwiseKernel
from aicf.backends.cuda.families.conv.weight_grad.depthwise.schedule import (
    DepthwiseTile,
    items,
    places,
    tile_reason,
    window_rows,
)
from aicf.backends.cuda.families.conv.weight_grad.parts import pixel_snippet
from aicf.backends.cuda.families.conv.weight_grad.problem import (
    GRAD,
    WeightGradProblem,
    X,
    weight_grad_of_launch,
)
from aicf.backends.cuda.families.conv.weight_grad.sums.codegen import sum_launch
from aicf.backends.cuda.families.gemm.parts import with_types
from aicf.backends.cuda.families.records import is_programmatic, read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

_KERNEL = WeightGradDepthwiseKernel()


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the sums of every part, and the sums of the parts."""
    from aicf.backends.cuda.families.conv.weight_grad.depthwise import template

    problem, schedule = weight_grad_of_launch(launch), _KERNEL.read_schedule(launch.record)
    if (_KERNEL.channels_reason(problem) or tile_reason(schedule.tile, problem)) is not None:
        raise misplaced(launch)
    steps = _KERNEL.steps(problem, schedule.tile)
    constants = {
        **template.PARTS,
        **_sizes(problem, schedule.tile),
        **_snippets(problem, schedule.tile),
        "EACH": ceil(steps / schedule.parts),
        "PROGRAMMATIC": is_programmatic(launch.record),
    }
    source = with_types(stage(template.depthwise_grad, constants), problem.sums)
    code = KernelCode("weight_grad_depthwise", source, ("ptr",) * 3, schedule.tile.threads)
    operands = (launch.ins[GRAD], launch.ins[X], launch.ws[0])
    return [
        launch_in(read_shape(launch.record), code, tuple(map(address_of, operands))),
        sum_launch(launch, problem, _KERNEL.order(problem), schedule.parts),
    ]


def _sizes(problem: WeightGradProblem, tile: DepthwiseTile) -> dict[str, Constant | Snippet]:
    conv, found = problem.windows, places(problem, tile)
    return {
        "VECTOR": tile.vector,
        "LANES": tile.lanes,
        "THREADS": tile.threads,
        "ITEM_LANES": tile.item_lanes,
        "PIXELS": tile.pixels,
        "ROWS": tile.rows,
        "ROW": conv.taps[-1],
        "WINDOW_ROWS": window_rows(problem),
        "FACTS": conv.rank,
        "OUTPUTS": problem.groups * problem.outputs,
        "ITEMS": items(problem, tile),
        "COLUMNS": conv.sizes[-1],
        "PLACES": found,
        "USES": tuple(tuple(_use(conv, place, pixel) for pixel in range(tile.pixels)) for place in found),
        "SUM_BYTES": ELEMENT_BYTES[problem.sums],
    }


def _use(conv: ConvProblem, place: int, pixel: int) -> int:
    """Which element of its window a place is for a pixel, -1 for none."""
    number, rest = divmod(place - pixel * conv.strides[-1], conv.dilations[-1])
    return number if rest == 0 and 0 <= number < conv.taps[-1] else -1


def _snippets(problem: WeightGradProblem, tile: DepthwiseTile) -> dict[str, Constant | Snippet]:
    return {
        "ITEM": _item(problem, tile),
        "ROW_OF": _row_of(problem.windows),
        "ROW_AT": _row_at(problem.windows),
        "PLANE": _plane(problem),
        "LOAD_GRAD": _load_grad(problem, tile),
        "LOAD_X": _load_x(problem, tile),
        "STORE": store_snippet(problem.sums),
    }


def _item(problem: WeightGradProblem, tile: DepthwiseTile) -> Snippet:
    """From the number of an item: the number of its first pixel, where its image starts in the operand, the column at
    which its first window starts, its pixels, and where its windows start along the other dimensions."""
    conv = problem.windows
    *counts, last = conv.counts
    chunks = ceil(last / tile.pixels)
    lines = [
        "rest = u32(number)",
        f"own = i32(remainder(rest, {chunks}) * {tile.pixels})",
        f"rest = quotient(rest, {chunks})",
        "line = i32(rest)",
    ]
    for dim in reversed(range(len(counts))):
        lines += [
            f"first{dim} = i32(i32(remainder(rest, {counts[dim]})) * {conv.strides[dim]} - {conv.low[dim]})",
            f"rest = quotient(rest, {counts[dim]})",
        ]
    column = f"i32(own * {conv.strides[-1]} - {conv.low[-1]})"
    values = [f"u32(line * {last} + own)", f"i64(rest) * {conv.x_strides[0]}", column, f"i32({last} - own)"]
    values += [f"first{dim}" for dim in range(len(counts))]
    return Snippet(("number",), tuple(lines), f"({', '.join(values)})")


def _row_of(conv: ConvProblem) -> Snippet:
    """From the number of a row of a window: how far it is along all dimensions but the last, and whether it is one."""
    *taps, _ = conv.taps
    lines = ["rest = u32(number)"]
    for dim in reversed(range(len(taps))):
        index = "rest" if dim == 0 else f"remainder(rest, {taps[dim]})"
        lines.append(f"along{dim} = i32(i32({index}) * {conv.dilations[dim]})")
        lines.append(f"rest = quotient(rest, {taps[dim]})")
    rows = 1
    for size in taps:
        rows *= size
    values = [*(f"along{dim}" for dim in range(len(taps))), f"i32(number < {rows})"]
    return Snippet(("number",), tuple(lines), f"({', '.join(values)},)")


def _row_at(conv: ConvProblem) -> Snippet:
    """From an item and how far a row of its windows is: where that row lies in its plane, and whether it does."""
    *sizes, _ = conv.sizes
    lines = [f"at{dim} = i32(item[{4 + dim}] + row[{dim}])" for dim in range(len(sizes))]
    terms = [f"i64(at{dim}) * {conv.x_strides[2 + dim]}" for dim in range(len(sizes))]
    tests = [
        f"(row[{len(sizes)}] != 0)",
        *(f"(u32(at{dim}) < u32({size}))" for dim, size in enumerate(sizes)),
    ]
    return Snippet(("item", "row"), tuple(lines), f"(i64({' + '.join(terms) or '0'}), {' & '.join(tests)})")


def _plane(problem: WeightGradProblem) -> Snippet:
    """From an output to the first element of its channel, of what is passed back and of the operand."""
    grad, conv = problem.grad, problem.windows
    channel = "output" if problem.outputs == 1 else f"quotient(u32(output), {problem.outputs})"
    values = f"(i64(output) * {grad.x_strides[1]}, i64({channel}) * {conv.x_strides[1]})"
    return Snippet(("output",), (), values)


def _load_grad(problem: WeightGradProblem, tile: DepthwiseTile) -> Snippet:
    """What is passed back at a pixel of an item, whose first one has the number `first`; zeros after the last of
    `count`."""
    grad, size = problem.grad, ELEMENT_BYTES[problem.dtype]
    place = pixel_snippet(grad, "grad")
    lines = ["pixel = first", *place.body, f"start = {place.result}[0]"]
    step = grad.x_strides[-1]
    address = f"u64(start + u64((channel + i64(each) * {step}) * {size}))"
    return Snippet(
        ("channel", "first", "each", "count"), tuple(lines), _loaded(problem, tile, address, "each < count")
    )


def _load_x(problem: WeightGradProblem, tile: DepthwiseTile) -> Snippet:
    """The elements of the operand in a column of a row; zeros where they are not inside."""
    size = ELEMENT_BYTES[problem.dtype]
    address = f"u64(x + u64((row + i64(column) * {problem.windows.x_strides[-1]}) * {size}))"
    return Snippet(("row", "column", "inside"), (), _loaded(problem, tile, address, "inside"))


def _loaded(problem: WeightGradProblem, tile: DepthwiseTile, address: str, inside: str) -> str:
    """An expression for the values of a thread's channels, a tuple."""
    flag = f"i32({inside})"
    match problem.dtype:
        case "f64":
            return f"(load_f64_or_zero({address}, {flag}),)"
        case "f32":
            return f"(bits_to_f32(load_u32_or_zero({address}, {flag})),)"
        case _ if tile.vector == 2:
            return f"unpack_{problem.dtype}(load_u32_or_zero({address}, {flag}))"
        case _:
            return f"(unpack_{problem.dtype}(u32(load_u16_or_zero({address}, {flag})))[0],)"
