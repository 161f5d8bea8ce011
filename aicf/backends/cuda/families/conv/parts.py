"""What the families of convolutions put around the template: places of windows, steps of K, and the end of a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aicf.backends.base import Launch
from aicf.backends.cuda.codegen.scalar import load_snippet, point_snippet, store_snippet
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    ConvProblem,
    conv_of_launch,
    epilogue_accesses,
    misplaced,
)
from aicf.backends.cuda.families.conv.tiled_kernel import load_reason
from aicf.backends.cuda.families.conv.windows import (
    Digit,
    KOrder,
    Loads,
    TileLoads,
    k_order,
    padded_dims,
    reach_reason,
)
from aicf.backends.cuda.families.gemm.epilogue import EpilogueCode
from aicf.backends.cuda.families.gemm.parts import TileTemplate
from aicf.backends.cuda.families.gemm.problem import Access, strided
from aicf.backends.cuda.families.gemm.tiled_kernel import TileSpec
from aicf.backends.cuda.families.records import read_rounding


def checked_problem(launch: Launch) -> ConvProblem:
    """The convolution of an instruction. Raises PlanError if its operands do not lie as its record says."""
    problem = conv_of_launch(launch)
    if reach_reason(problem) is not None:
        raise misplaced(launch)
    return problem


def checked_loads(launch: Launch, spec: TileSpec, loads: TileLoads | None) -> TileLoads:
    """The loads of a tile. Raises PlanError if its threads cannot bring it."""
    if loads is None or load_reason(spec, loads) is not None:
        raise misplaced(launch)
    return loads


def ends_of(launch: Launch, problem: ConvProblem) -> EpilogueCode:
    """What follows the sums, from its scalar program."""
    extras, outputs = launch.ins[FIRST_EXTRA:], launch.outs
    accesses = epilogue_accesses(launch.code, problem, [*map(strided, extras)], [*map(strided, outputs)])
    scalars = {f"LOAD_{operand.dtype}": load_snippet(operand.dtype) for operand in extras}
    scalars |= {f"STORE_{output.dtype}": store_snippet(output.dtype) for output in outputs}
    return EpilogueCode(point_of(launch, problem), *accesses, scalars)


def point_of(launch: Launch, problem: ConvProblem) -> Snippet | None:
    """The scalar program of the epilogue at one point, with an index for each dim of the product. Every operand is
    given as a value, as if it were an accumulator: the tile's end loads neighbours together."""
    if launch.code is None:
        return None
    operands = len(launch.code.in_maps)
    point = point_snippet(launch.code, operands, (), launch.outs, read_rounding(launch.record))
    # It computes with no index, and may have more dims than the product, or fewer: it follows a reshape then. What runs
    # along which dim is said by the accesses alone.
    given = [f"acc{operand}" for operand in range(operands)]
    dims = [f"i{dim}" for dim in range(len(problem.product(0).epilogue_dims))]
    return replace(point, params=(*given, *dims, *(f"out{output}" for output in range(len(launch.outs)))))


def conv_template(
    name: str,
    problem: ConvProblem,
    spec: TileSpec,
    loads: TileLoads,
    pieces: tuple[int, int],
    own: Mapping[str, Constant | Snippet],
) -> TileTemplate:
    """The template of a convolution.

    Args:
        pieces: Bytes in shared memory between the pieces of a chunk, of both operands.
        own: Constants of the family.
    """
    from aicf.backends.cuda.families.conv import template as conv

    order, padded = k_order(problem), padded_dims(problem)
    run_dim, parts, size = order.run.dim, conv.PARTS, problem.element_bytes
    x, weight = loads.x, loads.weight
    over = problem.pixels % spec.bm != 0 or x.row_step * x.row_items > spec.bm
    more: dict[str, Constant | Snippet] = {
        **parts,
        "LOAD_ELEMENT": Snippet(("at", "inside"), (), f"u32(load_u{8 * size}_or_zero(at, i32(inside)))"),
        "COPY_A": parts["BRING_PIXELS" if x.is_held else "COPY_PIXELS"],
        "FETCH_A": parts["FETCH_PIXELS"],
        "STORE_A": parts["STORE_PIXELS"],
        "COPY_B": parts["BRING_WEIGHT" if weight.is_held else "COPY_WEIGHT"],
        "FETCH_B": parts["FETCH_WEIGHT"],
        "STORE_B": parts["STORE_WEIGHT"],
        "LOADS_A": _load_constants(x, order, pieces[0]),
        "LOADS_B": _load_constants(weight, order, pieces[1]),
        "PADDED": tuple(problem.sizes[dim] for dim in padded),
        "RUN_PADDED": padded.index(run_dim) if run_dim in padded else None,
        "RUN_MOVE": order.run.move,
        "RUN_MOST": min(order.run.size, order.chunk),
        "CHUNKS": order.chunks,
        "CHUNK_SHIFT": order.chunk.bit_length() - 1,
        "ELEMENT_BYTES": size,
        "PER_WORD": 4 // size if size < 4 else 1,
        "PADDING": (problem.padding_value & 0xFF) * 0x01010101 if padded else 0,
        "X_PIECE": order.run.x_step * x.width,
        "WEIGHT_PIECE": order.run.weight_step * weight.width,
        "OUTPUTS": problem.outputs,
        "OUTPUTS_END": problem.outputs % spec.bn != 0,
        # Rows past a single output read nothing, but at an address that is aligned.
        "OUTPUT_BYTES": problem.weight_strides[0] * size if problem.outputs > 1 else 0,
        "PIXEL": _pixel(problem, over),
        "X_STEP": step_snippet(order, size, [digit.x_step for digit in order.digits], padded),
        "WEIGHT_STEP": step_snippet(order, size, [digit.weight_step for digit in order.digits], ()),
        **own,
    }
    return TileTemplate(name, conv.conv, more)


def goes_down(problem: ConvProblem, result: Access) -> bool:
    """Whether neighbouring pixels of the result are nearer to each other than neighbouring channels."""
    sizes = problem.product(0).row_dims
    steps = result.strides[-1 - len(sizes) : -1]
    pixels = [abs(step) for size, step in zip(sizes, steps, strict=True) if size > 1]
    return problem.outputs > 1 and bool(pixels) and pixels[-1] < abs(result.strides[-1])


def _load_constants(loads: Loads, order: KOrder, piece_bytes: int) -> dict[str, int | bool]:
    """The loads of an operand; `ends` is whether a run may end within a chunk, where that is not known before."""
    ends = order.run.size % order.chunk != 0 and not (loads.is_held and order.run_chunks == 1)
    return {**loads.constants(), "ends": ends, "piece_bytes": piece_bytes}


def _pixel(problem: ConvProblem, over: bool) -> Snippet:
    """From the number of a pixel to the address where its window starts, and the coordinates of that along padded
    dimensions; `over` is whether the number may be too large. The window of the last pixel stands in for others."""
    image, _, *steps = problem.x_strides
    rest = f"min(pixel, u32({problem.pixels - 1}))" if over else "pixel"
    lines = [f"rest = u32({rest})"]
    terms = [f"i64(rest) * {image}"]
    for dim in reversed(range(problem.rank)):
        count, step, low = problem.counts[dim], problem.strides[dim], problem.low[dim]
        lines += [
            f"first{dim} = i32(i32(remainder(rest, {count})) * {step} - {low})",
            f"rest = quotient(rest, {count})",
        ]
        terms.append(f"i64(first{dim}) * {steps[dim]}")
    address = f"u64(a_base + u64(({' + '.join(terms)}) * {problem.element_bytes}))"
    firsts = [f"first{dim}" for dim in padded_dims(problem)]
    return Snippet(("pixel",), tuple(lines), f"({', '.join([address, *firsts])},)")


def step_snippet(order: KOrder, size: int, steps: Sequence[int], padded: Sequence[int]) -> Snippet:
    """From the number of a chunk to its offset in bytes, the elements of its run from it on, and how far it is along
    padded dimensions."""
    lines = ["rest = u32(number)"]
    names: list[tuple[str, Digit]] = []
    for index, digit in enumerate(order.digits):
        name = f"digit{index}"
        if index == len(order.digits) - 1:  # beyond the last chunk it is anything: nothing is loaded there
            lines.append(f"{name} = i32(rest)")
        else:
            lines += [f"{name} = i32(remainder(rest, {digit.size}))", f"rest = quotient(rest, {digit.size})"]
        names.append((name, digit))
    offset = " + ".join(f"{name} * {step * size}" for (name, _), step in zip(names, steps, strict=True))
    within = f"{names[0][0]} * {order.chunk}" if order.run_chunks > 1 else "0"
    results = [f"i32({offset or '0'})", f"i32({order.run.size} - {within})"]
    for dim in padded:
        along = [f"{name} * {digit.move}" for name, digit in names if digit.dim == dim and digit.move]
        results.append(f"i32({' + '.join(along) or '0'})")
    return Snippet(("number",), tuple(lines), f"({', '.join(results)})")
