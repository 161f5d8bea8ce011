"""What the GEMM families put around their templates: pointers, matrices of a batch, the end of a tile, arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from aicf.backends.base import Launch
from aicf.backends.common.record import Record, read_integer
from aicf.backends.cuda.codegen.scalar import load_snippet, point_snippet, store_snippet
from aicf.backends.cuda.compiler.launches import address_of
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, constants_of, stage
from aicf.backends.cuda.families.gemm.epilogue import EpilogueCode
from aicf.backends.cuda.families.gemm.problem import (
    GemmProblem,
    epilogue_accesses,
    operands_of,
    strided,
)
from aicf.backends.cuda.families.gemm.tiled_kernel import TileSpec
from aicf.backends.cuda.families.records import is_programmatic, read_early, read_rounding
from aicf.backends.cuda.runtime.device_program import Address


def choose_pointers(count: int, products: int) -> tuple[Snippet, list[str]]:
    """A snippet from the product's number to its pointers, and the names of all parameters."""
    names = [[f"p{product}_{i}" for i in range(count)] for product in range(products)]
    lines = [f"q{i} = {name}" for i, name in enumerate(names[0])]
    for product in range(1, products):
        chosen = "\n    ".join(f"q{i} = {name}" for i, name in enumerate(names[product]))
        lines.append(f"if product == {product}:\n    {chosen}")
    result = "".join(f"q{i}, " for i in range(count))
    return Snippet(("product",), tuple(lines), f"({result})"), [name for own in names for name in own]


def batch_address(sizes: Sequence[int], strides: Sequence[int], element_bytes: int) -> Snippet:
    """A snippet from a base address and the number of a matrix to the address of that matrix."""
    lines: list[str] = ["rest = u32(batch)"]
    terms: list[str] = []
    for dim in range(len(sizes) - 1, -1, -1):
        if strides[dim] and sizes[dim] > 1:
            lines.append(f"d{dim} = i64(remainder(rest, {sizes[dim]}))")
            terms.append(f"d{dim} * {strides[dim] * element_bytes}")
        lines.append(f"rest = quotient(rest, {sizes[dim]})")
    if not terms:
        return Snippet(("base", "batch"), (), "base")
    return Snippet(("base", "batch"), tuple(lines), f"u64(base + u64({' + '.join(terms)}))")


def ends_of(launch: Launch, problem: GemmProblem) -> EpilogueCode:
    """What follows the sums of `launch`, from its scalar program."""
    roles = operands_of(launch.kind, len(launch.ins), len(launch.outs))
    extras = [launch.ins[index] for index in roles.extras[0]]
    outputs = [launch.outs[index] for index in roles.outputs[0]]
    accesses = epilogue_accesses(
        launch.code, problem.factors, list(map(strided, extras)), list(map(strided, outputs))
    )
    point = None
    if launch.code is not None:
        # Every operand is given as a value, as if it were an accumulator: the tile's end loads neighbours together.
        operands = problem.factors + len(extras)
        point = point_snippet(launch.code, operands, (), tuple(outputs), read_rounding(launch.record))
    scalars = {f"LOAD_{operand.dtype}": load_snippet(operand.dtype) for operand in extras}
    scalars |= {f"STORE_{output.dtype}": store_snippet(output.dtype) for output in outputs}
    return EpilogueCode(point, *accesses, scalars)


@dataclass(frozen=True)
class TileTemplate:
    """A kernel that multiplies tiles.

    Args:
        name: First part of the names of its kernels.
        function: Its template.
        more: Constants that it takes beside those of any tile: how copies are made.
    """

    name: str
    function: Callable[..., None]
    more: Mapping[str, Constant | Snippet]

    def source(
        self, constants: Mapping[str, Constant | Snippet], pointers: Sequence[str], sums: str, stored: str
    ) -> str:
        """The text of the kernel, with the parameters `a` and `pointers`. In the name of an intrinsic, ELEMENT is the
        element type of the sums, STORED that of A and B."""
        text = stage(self.function, {**constants, **self.more})
        function = self.function.__name__
        text = text.replace(f"{function}()", f"{function}(a, {', '.join(pointers)})", 1)
        return with_types(text, sums, stored)


def with_types(text: str, sums: str, stored: str = "") -> str:
    """The text of a template with the types in the names of its intrinsics, see `TileTemplate.source`."""
    names = {"ELEMENT": sums, "STORED": stored}
    return re.sub(r"(?<![A-Za-z])(ELEMENT|STORED)(?=x4\b|\b)", lambda found: names[found[1]], text)


@dataclass(frozen=True)
class Pointers:
    """The addresses of an instruction: of A, of the B operands of each product, of its extras and outputs."""

    a: Address
    b: tuple[tuple[Address, ...], ...]
    ends: tuple[tuple[Address, ...], ...]


def pointers_of(launch: Launch, problem: GemmProblem) -> Pointers:
    """The addresses that the kernels of `launch` take."""
    roles = operands_of(launch.kind, len(launch.ins), len(launch.outs))
    each = problem.factors
    b = [roles.b[product * each : (product + 1) * each] for product in range(problem.products)]
    return Pointers(
        address_of(launch.ins[0]),
        tuple(tuple(address_of(launch.ins[index]) for index in indices) for indices in b),
        tuple(
            (
                *(address_of(launch.ins[index]) for index in extras),
                *(address_of(launch.outs[index]) for index in outputs),
            )
            for extras, outputs in zip(roles.extras, roles.outputs, strict=True)
        ),
    )


@dataclass(frozen=True)
class LaunchBounds:
    """How a kernel is started and kept.

    Args:
        programmatic: Whether it waits for its predecessors itself.
        early_b: Whether it copies B before it does.
        blocks_per_sm: Blocks that must fit on a multiprocessor.
    """

    programmatic: bool
    early_b: bool
    blocks_per_sm: int


def residence_of(record: Record) -> LaunchBounds:
    """As a record says."""
    return LaunchBounds(
        is_programmatic(record), bool(read_early(record)), read_integer(record, "blocks_per_sm")
    )


def tile_constants(
    problem: GemmProblem, spec: TileSpec, residence: LaunchBounds
) -> dict[str, Constant | Snippet]:
    """What the templates of tiled products know alike of their tiles, their stages and how they start."""
    loops, slots, grid_m = spec.loops(problem), spec.slots(problem), ceil(problem.m / spec.bm)
    return {
        **constants_of(spec),
        "THREADS": spec.threads,
        "LOOPS": loops,
        "STAGES": slots,
        "AHEAD": loops if slots == loops else slots - 1,
        "STAGE_BYTES": spec.stage_bytes(problem),
        "FACTORS": problem.factors,
        "PRODUCTS": problem.products,
        "GRID_M": grid_m,
        "GRID_N": ceil(problem.n / spec.bn),
        "GROUP": min(spec.group, grid_m),
        "PROGRAMMATIC": residence.programmatic,
        "EARLY_B": residence.early_b,
        "A_BATCH": batch_address(problem.batch, problem.a_batch, problem.element_bytes),
        "B_BATCH": batch_address(problem.batch, problem.b_batch, problem.element_bytes),
    }
