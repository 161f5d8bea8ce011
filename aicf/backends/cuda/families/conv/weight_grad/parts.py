"""What the families of gradients put around the template: places of pixels and columns, the end of a tile, launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aicf.backends.base import Launch
from aicf.backends.cuda.codegen.scalar import store_snippet
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.parts import step_snippet
from aicf.backends.cuda.families.conv.problem import ConvProblem, misplaced
from aicf.backends.cuda.families.conv.weight_grad.loads import PixelLoads, load_reason, pixel_loads
from aicf.backends.cuda.families.conv.weight_grad.parted_kernel import Parted, PartedKernel
from aicf.backends.cuda.families.conv.weight_grad.problem import GRAD, WeightGradProblem, X
from aicf.backends.cuda.families.conv.weight_grad.sums.codegen import sum_launch
from aicf.backends.cuda.families.conv.windows import Loads, k_order, padded_dims
from aicf.backends.cuda.families.gemm.epilogue import EpilogueCode
from aicf.backends.cuda.families.gemm.parts import TileTemplate
from aicf.backends.cuda.families.gemm.tiled_kernel import TileSpec
from aicf.backends.cuda.families.records import read_shape


def checked_loads(launch: Launch, problem: WeightGradProblem, spec: TileSpec) -> PixelLoads:
    """The loads of a tile. Raises PlanError if its threads cannot bring it."""
    loads = pixel_loads(problem, spec)
    if loads is None or load_reason(problem, spec) is not None:
        raise misplaced(launch)
    return loads


def ends_of(problem: WeightGradProblem, kernel: PartedKernel[Any], schedule: Parted[Any]) -> EpilogueCode:
    """Where the product stores its sums: into the workspace, or into the gradient itself."""
    order = kernel.order(problem)
    direct = problem.result_access(order) if kernel.is_direct(problem, schedule) else None
    access = direct or problem.parts_access(order.k)
    return EpilogueCode(None, (), (access,), {f"STORE_{access.dtype}": store_snippet(access.dtype)})


def launches(
    launch: Launch,
    problem: WeightGradProblem,
    kernel: PartedKernel[Any],
    schedule: Parted[Any],
    code: KernelCode,
) -> list[KernelLaunch]:
    """The launches of an instruction whose product is `code`."""
    operands = address_of(launch.ins[GRAD]), address_of(launch.ins[X])
    shape = read_shape(launch.record)
    if kernel.is_direct(problem, schedule):
        return [launch_in(shape, code, (*operands, address_of(launch.outs[0])))]
    return [
        launch_in(shape, code, (*operands, address_of(launch.ws[0]))),
        sum_launch(launch, problem, kernel.order(problem), schedule.parts),
    ]


def pixel_template(
    name: str,
    problem: WeightGradProblem,
    spec: TileSpec,
    loads: PixelLoads,
    own: Mapping[str, Constant | Snippet],
) -> TileTemplate:
    """The template of a gradient, with the constants `own` of its family."""
    from aicf.backends.cuda.families.conv import template as conv
    from aicf.backends.cuda.families.conv.weight_grad import template

    size = problem.windows.element_bytes
    chunk = k_order(problem.windows).chunk
    grad_words = 4 * loads.grad.items if loads.grad.is_held else 0
    grad_columns = 2 * loads.grad.chunk_items
    more: dict[str, Constant | Snippet] = {
        **conv.PARTS,
        **template.PARTS,
        "LOAD_ELEMENT": Snippet(("at", "inside"), (), f"u32(load_u{8 * size}_or_zero(at, i32(inside)))"),
        "GRAD": _side(problem.grad, loads.grad, "a_base", spec.bm, 0, 0),
        "X": _side(problem.windows, loads.x, "b_base", spec.bn, grad_columns, grad_words),
        "COLUMN_REGISTERS": loads.column_registers(problem),
        "WORDS": loads.held_words,
        "GROUPS": problem.groups,
        "PIXELS": problem.pixels,
        "CHUNK_SHIFT": chunk.bit_length() - 1,
        "ELEMENT_BYTES": size,
        "PER_WORD": 4 // size if size < 4 else 1,
        "COPY_A": template.PARTS["BRING_GRAD"],
        "COPY_B": template.PARTS["BRING_X"],
        **own,
    }
    return TileTemplate(name, template.weight_grad, more)


def _side(
    operand: ConvProblem, loads: Loads, base: str, columns: int, columns_at: int, words_at: int
) -> dict[str, Any]:
    """What the template knows of one operand: its loads; where its pixels and columns are, and where the registers of
    these begin; sizes along padded dimensions, and which of them the elements of a chunk lie along, if any."""
    order, padded = k_order(operand), padded_dims(operand)
    run = order.run
    return {
        **loads.constants(),
        "pixel": pixel_snippet(operand, base),
        "column": _column(operand),
        "facts": 2 + len(padded),
        "columns_at": columns_at,
        "words_at": words_at,
        "chunk_count": order.chunks,
        "is_over": order.k % columns != 0,
        "ends": run.size % order.chunk != 0 or order.k % columns != 0,
        "padded": tuple(operand.sizes[dim] for dim in padded),
        "run_padded": padded.index(run.dim) if run.dim in padded else None,
        "run_move": run.move,
        "run_most": min(run.size, order.chunk),
        "piece_step": run.x_step * loads.width,
    }


def _column(operand: ConvProblem) -> Snippet:
    """From the number of a chunk of columns: its offset from a pixel in bytes, the elements of its run from it on, and
    how far it is along padded dimensions."""
    order, size = k_order(operand), operand.element_bytes
    return step_snippet(order, size, [digit.x_step for digit in order.digits], padded_dims(operand))


def pixel_snippet(operand: ConvProblem, base: str) -> Snippet:
    """From the number of a pixel to the address where its window starts, and the coordinates of that along padded
    dimensions. Past the last pixel they are anything: nothing is loaded there."""
    image, _, *steps = operand.x_strides
    lines = ["rest = u32(pixel)"]
    terms: list[str] = []
    for dim in reversed(range(operand.rank)):
        count, step, low = operand.counts[dim], operand.strides[dim], operand.low[dim]
        is_outermost = dim == 0 and operand.batch == 1
        index = "rest" if is_outermost else f"remainder(rest, {count})"
        lines.append(f"first{dim} = i32(i32({index}) * {step} - {low})")
        if not is_outermost:
            lines.append(f"rest = quotient(rest, {count})")
        terms.append(f"i64(first{dim}) * {steps[dim]}")
    terms += [f"i64(rest) * {image}"] if operand.batch > 1 else []
    address = f"u64({base} + u64(({' + '.join(terms)}) * {operand.element_bytes}))"
    firsts = [f"first{dim}" for dim in padded_dims(operand)]
    return Snippet(("pixel",), tuple(lines), f"({', '.join([address, *firsts])},)")
