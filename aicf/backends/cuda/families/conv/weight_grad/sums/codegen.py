# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Templates are text in the form of functions: their parameters have no types.
"""The launch that adds the parts of a gradient: the template with its snippets."""

from __future__ import annotations

from math import ceil

from aicf.backends.base import Launch
from aicf.backends.cuda.codegen.scalar import store_snippet
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, stage
from aicf.backends.cuda.families.conv.parts import step_snippet
from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.conv.weight_grad.sums.schedule import AT_ONCE, sharers, vector
from aicf.backends.cuda.families.conv.windows import KOrder
from aicf.backends.cuda.families.gemm.parts import with_types
from aicf.backends.cuda.families.records import Shape, is_programmatic, read_triple
from aicf.backends.cuda.target import ELEMENT_BYTES


def sum_launch(launch: Launch, problem: WeightGradProblem, order: KOrder, parts: int) -> KernelLaunch:
    """The second launch of an instruction whose columns lie in `order`."""
    from aicf.backends.cuda.families.conv.weight_grad.sums import template

    shape = Shape(read_triple(launch.record, "sum_grid"), read_triple(launch.record, "sum_block"))
    constants = _constants(problem, order, parts, shape.block[0])
    constants |= {**template.SNIPPETS, "PROGRAMMATIC": is_programmatic(launch.record)}
    source = with_types(stage(template.add_parts, constants), problem.sums)
    code = KernelCode("add_parts", source, ("ptr", "ptr"), shape.block[0])
    return launch_in(shape, code, (address_of(launch.ws[0]), address_of(launch.outs[0])))


def _constants(
    problem: WeightGradProblem, order: KOrder, parts: int, threads: int
) -> dict[str, Constant | Snippet]:
    weight, size, columns = problem.windows, ELEMENT_BYTES[problem.dtype], order.k
    lines, lanes = problem.groups * problem.outputs, vector(problem, columns)
    shared = sharers(problem, columns, parts)
    return {
        "THREADS": threads,
        "PARTS": parts,
        "RUN": ceil(parts / shared),
        "SHARERS": shared,
        "VECTORS": threads // shared,
        "AT_ONCE": AT_ONCE,
        "LINES": lines,
        "COLUMNS": columns,
        "VECTOR": lanes,
        "SUM_BYTES": ELEMENT_BYTES[problem.sums],
        "PART_BYTES": lines * columns * ELEMENT_BYTES[problem.sums],
        "SHIFT": order.chunk.bit_length() - 1,
        "COLUMN": step_snippet(order, size, [digit.weight_step for digit in order.digits], ()),
        "ELEMENT_STEP": order.run.weight_step * size,
        "LINE_BYTES": weight.weight_strides[0] * size,
        "LOAD": _load(problem.sums, lanes),
        "STORE": store_snippet(problem.dtype),
    }


def _load(sums: str, lanes: int) -> Snippet:
    """Parameters at, each: the address of a part, and which part after that to load into the registers `added`."""
    address = "u64(at + u64(each * PART_BYTES))"
    if lanes == 1:
        return Snippet(("at", "each"), (f"added[each] = load_{sums}({address})",))
    place = f"each * {lanes} : each * {lanes} + {lanes}"
    return Snippet(("at", "each"), (f"added[{place}] = load_{sums}x{lanes}({address})",))
