"""Code of `cuda.conv_mma`: the tile of a product, with copies of windows in the place of copies of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aicf.backends.base import Launch
from aicf.backends.cuda.codegen.scalar import load_snippet, point_snippet, store_snippet
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.mma.kernel import as_product, load_reason, problem_of_launch
from aicf.backends.cuda.families.conv.mma.windows import (
    Digit,
    KOrder,
    Loads,
    k_order,
    padded_dims,
    reach_reason,
    weight_loads,
    x_loads,
)
from aicf.backends.cuda.families.conv.problem import FIRST_EXTRA, ConvProblem, epilogue_accesses
from aicf.backends.cuda.families.gemm.epilogue import EpilogueCode
from aicf.backends.cuda.families.gemm.mma.codegen import TileTemplate, launches
from aicf.backends.cuda.families.gemm.mma.kernel import MmaSpec, spec_of
from aicf.backends.cuda.families.gemm.problem import Access, strided
from aicf.backends.cuda.families.records import read_rounding
from aicf.errors import PlanError


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the convolution, and after a workspace split the sums of the parts."""
    problem, spec = problem_of_launch(launch), spec_of(launch.record)
    if problem is None or reach_reason(problem) or load_reason(spec, problem):
        raise PlanError(
            f"instruction '{launch.name}': its operands do not lie as its kernel record says: run lower-to-emit again"
        )
    ends = _ends(launch, problem)
    return launches(launch, as_product(problem), ends, _template(problem, spec, ends.outputs[0]))


def _ends(launch: Launch, problem: ConvProblem) -> EpilogueCode:
    """What follows the sums, from its scalar program."""
    extras, outputs = launch.ins[FIRST_EXTRA:], launch.outs
    accesses = epilogue_accesses(launch.code, problem, [*map(strided, extras)], [*map(strided, outputs)])
    point = None
    if launch.code is not None:
        # Every operand is given as a value, as if it were an accumulator: the tile's end loads neighbours together.
        # It computes with no index: what runs along which dim is said by the accesses alone.
        found = point_snippet(launch.code, 1 + len(extras), (), outputs, read_rounding(launch.record))
        values = [name for name in found.params if name.startswith("acc")]
        dims = [f"i{dim}" for dim in range(len(problem.product(0).epilogue_dims))]
        point = replace(found, params=(*values, *dims, *(f"out{number}" for number in range(len(outputs)))))
    scalars = {f"LOAD_{operand.dtype}": load_snippet(operand.dtype) for operand in extras}
    scalars |= {f"STORE_{output.dtype}": store_snippet(output.dtype) for output in outputs}
    return EpilogueCode(point, *accesses, scalars)


def _template(problem: ConvProblem, spec: MmaSpec, result: Access) -> TileTemplate:
    from aicf.backends.cuda.families.conv.mma import template as conv

    pixels = x_loads(problem, spec.bm, spec.bk, spec.threads)
    weights = weight_loads(problem, spec.bn, spec.bk, spec.threads)
    assert pixels is not None and weights is not None, "the record has been checked"
    order, padded = k_order(problem), padded_dims(problem)
    run_dim, parts = order.run.dim, conv.PARTS
    over = problem.pixels % spec.bm != 0 or pixels.row_step * pixels.row_items > spec.bm
    more: dict[str, Constant | Snippet] = {
        **parts,
        "COPY_A": parts["BRING_PIXELS" if pixels.is_held else "COPY_PIXELS"],
        "FETCH_A": parts["FETCH_PIXELS"],
        "STORE_A": parts["STORE_PIXELS"],
        "COPY_B": parts["BRING_WEIGHT" if weights.is_held else "COPY_WEIGHT"],
        "FETCH_B": parts["FETCH_WEIGHT"],
        "STORE_B": parts["STORE_WEIGHT"],
        "LOADS_A": _load_constants(pixels, order),
        "LOADS_B": _load_constants(weights, order),
        "PADDED": tuple(problem.sizes[dim] for dim in padded),
        "RUN_PADDED": padded.index(run_dim) if run_dim in padded else None,
        "RUN_MOVE": order.run.move,
        "RUN_MOST": min(order.run.size, order.chunk),
        "CHUNKS": order.chunks,
        "CHUNK_SHIFT": order.chunk.bit_length() - 1,
        "ELEMENT_BYTES": problem.element_bytes,
        "X_PIECE": order.run.x_step * pixels.width,
        "WEIGHT_PIECE": order.run.weight_step * weights.width,
        "OUTPUTS": problem.outputs,
        "OUTPUTS_END": problem.outputs % spec.bn != 0,
        # Rows past a single output read nothing, but at an address that is aligned.
        "OUTPUT_BYTES": problem.weight_strides[0] * problem.element_bytes if problem.outputs > 1 else 0,
        "PIXEL": _pixel(problem, over),
        "X_STEP": _step(order, problem.element_bytes, [d.x_step for d in order.digits], padded),
        "WEIGHT_STEP": _step(order, problem.element_bytes, [d.weight_step for d in order.digits], ()),
    }
    # The parts of a split lie in rows of outputs, whatever the result.
    if spec.through != "workspace" and _goes_down(problem, result):
        more["VECTOR_ORIGIN"] = parts["VECTOR_DOWN"]
    return TileTemplate(conv.conv_mma, more)


def _load_constants(loads: Loads, order: KOrder) -> dict[str, int | bool]:
    """The loads of an operand; `ends` is whether a run may end within a chunk, where that is not known before."""
    ends = order.run.size % order.chunk != 0 and not (loads.is_held and order.run_chunks == 1)
    return {**loads.constants(), "ends": ends}


def _goes_down(problem: ConvProblem, result: Access) -> bool:
    """Whether neighbouring pixels of the result are nearer to each other than neighbouring channels."""
    sizes = problem.product(0).row_dims
    steps = result.strides[-1 - len(sizes) : -1]
    pixels = [abs(step) for size, step in zip(sizes, steps, strict=True) if size > 1]
    return problem.outputs > 1 and bool(pixels) and pixels[-1] < abs(result.strides[-1])


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


def _step(order: KOrder, size: int, steps: Sequence[int], padded: Sequence[int]) -> Snippet:
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
