"""Launches of the wgmma kernel: the template with its constants, the tensor maps, the arguments."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from aicf.backends.cuda.code import KernelCode
from aicf.backends.cuda.device_program import Address, TensorMap
from aicf.backends.cuda.launches import KernelLaunch
from aicf.backends.cuda.staging import Constant, Snippet, stage
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch
from aicf.backends.cuda.templates import wgmma as template
from aicf.backends.cuda.wgmma_spec import CHUNK_BYTES, K_STEP, LINE_BYTES, Matrix, Problem, Spec


@dataclass(frozen=True)
class Place:
    """A strided operand of the epilogue, or the output.

    Args:
        addresses: Where it starts, for every product.
        dtype: Element type name.
        strides: Elements per (batch..., row, column).
        offset: Elements from its address to point zero.
    """

    addresses: tuple[Address, ...]
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0


def part(function: Callable[..., object]) -> Snippet:
    """A template function as a snippet: its last statement, if it is `return`, gives the result."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    result = ""
    if isinstance(last := body[-1], ast.Return) and last.value is not None:
        body, result = body[:-1], ast.unparse(last.value)
    params = tuple(argument.arg for argument in node.args.args)
    return Snippet(params, tuple(ast.unparse(statement) for statement in body), result)


def launch_of(
    problem: Problem,
    spec: Spec,
    a: Address,
    b: Sequence[Address],
    out: Place,
    extras: Sequence[Place],
    point: Snippet | None,
    arch: GpuArch,
    name: str = "gemm_wgmma",
) -> KernelLaunch:
    """The one launch of the product.

    Args:
        a, b: Where A and every B start.
        out, extras: The output and the epilogue's operands.
        point: The epilogue at one element, see `_values`; None stores the sums.
    """
    names = _names(problem, spec, len(extras), out.dtype)
    constants = _constants(problem, spec, arch) | _parts(problem, spec, out, extras, point)
    source = _named(stage(template.gemm, constants), names)
    arguments = (
        _map(problem, problem.a, a, problem.m, spec.tile_m // spec.cluster_n, spec.tile_m),
        *(_map(problem, problem.b, start, problem.n, *_b_box(problem, spec)) for start in b),
        *(place.addresses[product] for product in range(problem.products) for place in (*extras, out)),
    )
    return KernelLaunch(
        KernelCode(name, source, ("ptr",) * len(arguments), spec.threads, spec.blocks_per_sm),
        arguments,
        (spec.clusters(problem, arch.multiprocessors) * spec.cluster, 1, 1),
        (spec.threads, 1, 1),
        (spec.cluster, 1, 1),
        spec.shared_bytes(problem),
    )


def _named(source: str, names: dict[str, str]) -> str:
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda match: names[match[1]], source)


def _names(problem: Problem, spec: Spec, extras: int, result: str) -> dict[str, str]:
    """What stands for the template's parameters and for intrinsics that depend on types and sizes."""
    b_count = 2 if problem.gated else problem.products
    parameters = ["a_map", *(f"b{i}_map" for i in range(b_count))]
    for product in range(problem.products):
        parameters += [*(f"in{product}_{extra}" for extra in range(extras)), f"out{product}"]
    layout = f"_{int(not problem.a.along_k)}{int(not problem.b.along_k)}"
    fewer, more = _resize(spec) or (0, 0)
    return {
        "PARAMETERS": ", ".join(parameters),
        "MULTIPLY": f"wgmma_{spec.tile_n}_{problem.dtype}{'' if layout == '_00' else layout}",
        "SUMS_DONE": f"wgmma_result_{spec.tile_n}",
        "FEWER_REGISTERS": f"fewer_registers_{fewer}",
        "MORE_REGISTERS": f"more_registers_{more}",
        "PACK": f"pack_{result}",
        "ROUND": "f32" if result == "f32" else f"f32_to_{result}",
        "STORE_ELEMENT": "store_f32" if result == "f32" else "store_u16",
    }


def _resize(spec: Spec) -> tuple[int, int] | None:
    """Registers of a producer's and a consumer's thread, where an even share is too few for the sums."""
    share = min(255, 65536 // (spec.threads * spec.blocks_per_sm) // 8 * 8)
    if share >= spec.sums + 64:
        return None
    return {1: (40, 216), 2: (40, 232)}[spec.consumers]


def _descriptor(matrix: Matrix) -> int:
    """Constant part of a shared-memory descriptor: 128-byte swizzle, distance of 8 rows, distance of 64-wide chunks."""
    leading = 1 if matrix.along_k else CHUNK_BYTES >> 4
    return 1 << 62 | (1024 >> 4) << 32 | leading << 16


def _advance(matrix: Matrix) -> int:
    """Sixteen elements of K, in descriptor units of 16 bytes."""
    return 2 if matrix.along_k else 16 * 128 >> 4


def _constants(problem: Problem, spec: Spec, arch: GpuArch) -> dict[str, Constant | Snippet]:
    rows, columns = spec.units(problem)
    width = spec.width(problem)
    part_steps = spec.part_steps(problem)
    shortest = problem.k_steps - part_steps * (spec.split_k - 1)
    ring = spec.ring_bytes()
    lines = spec.consumers * 4 * LINE_BYTES if spec.staged(problem) else 0
    inside = problem.m % (spec.tile_m * spec.cluster_m) == 0 and problem.n % (width * spec.cluster_n) == 0
    return {
        "A_BYTES": spec.a_bytes,
        "A_DESCRIPTOR": _descriptor(problem.a),
        "A_STEP": _advance(problem.a),
        "ALL_STEPS": problem.k_steps,
        "ALL_UNITS": rows * columns * problem.matrices,
        "B_DESCRIPTOR": _descriptor(problem.b),
        "B_STEP": _advance(problem.b),
        "BAND": min(spec.band, rows),
        "BARRIERS_AT": ring + lines,
        "CLUSTER": spec.cluster,
        "CLUSTER_M": spec.cluster_m,
        "CLUSTER_N": spec.cluster_n,
        "COLUMN_UNITS": columns,
        "CONSUMERS": spec.consumers,
        "EARLY": min(spec.stages, shortest) if problem.early else 0,
        "GATE_BYTES": width * 4,
        "INSIDE": inside,
        "LINE_BYTES": LINE_BYTES,
        "LINES_AT": ring,
        "M": problem.m,
        "N": problem.n,
        "PART_STEPS": part_steps,
        "PITCH": spec.pitch,
        "RESIZE": _resize(spec) is not None,
        "ROW_UNITS": rows,
        "SHARERS": spec.sharers,
        "SPLIT_K": spec.split_k,
        "STAGE_BYTES": spec.stage_bytes,
        "STAGES": spec.stages,
        "STEP": spec.clusters(problem, arch.multiprocessors),
        "SUM_PARTS": 2 if problem.gated else 1,
        "SUMS": spec.sums,
        "TILE_M": spec.tile_m,
        "TILE_N": spec.tile_n,
        "UNITS": rows * columns,
        "WIDTH": width,
    }


# Copies


def _b_box(problem: Problem, spec: Spec) -> tuple[int, int]:
    """Columns of one copy and of one matrix of a stage."""
    width = spec.width(problem)
    share = spec.tile_n // spec.cluster_m
    return min(width, share), width


def _map(problem: Problem, matrix: Matrix, start: Address, rows: int, share: int, tile: int) -> TensorMap:
    """The tensor map of an operand with `rows` rows (of A) or columns (of B), `share` of them a copy."""
    kept = [(size, step) for size, step in zip(problem.batch, matrix.batch, strict=True) if step != 0]
    kept.reverse()
    inner, outer = (problem.k, rows) if matrix.along_k else (rows, problem.k)
    return TensorMap(
        start.base,
        start.offset,
        problem.dtype,
        (inner, outer, *(size for size, _ in kept)),
        tuple(2 * step for step in (matrix.stride, *(step for _, step in kept))),
        (K_STEP, share if matrix.along_k else K_STEP, *(1 for _ in kept)),
        128,
    )


def _batch_index(problem: Problem, dim: int) -> str:
    """The index of batch dim `dim` of result matrix `matrix`."""
    after = prod(problem.batch[dim + 1 :])
    index = "matrix" if after == 1 else f"matrix // {after}"
    before = problem.products * prod(problem.batch[:dim])
    return f"({index})" if before == 1 else f"({index}) % {problem.batch[dim]}"


def _chosen(problem: Problem, names: Sequence[str]) -> str:
    """The one of `names` that belongs to the product of result matrix `matrix`."""
    text = names[-1]
    each = prod(problem.batch)
    for number in reversed(range(len(names) - 1)):
        text = f"{names[number]} if matrix < {(number + 1) * each} else ({text})"
    return text


def _copy(problem: Problem, matrix: Matrix, spec: Spec, operand: str) -> Snippet:
    """Copies this block's share of a stage of A or B, into all blocks that need it.

    A is needed by the blocks of a cluster that have the same rows, B by those with the same columns.
    """
    tile, sharers, own, mask = (
        (spec.tile_m, spec.cluster_n, "rank_n", "u16((1 << rank_m) * " + str(_row_mask(spec)) + ")")
        if operand == "a"
        else (
            spec.tile_n,
            spec.cluster_m,
            "rank_m",
            f"u16({(1 << spec.cluster_m) - 1} << (rank_n * {spec.cluster_m}))",
        )
    )
    share = tile // sharers
    halves = 2 if problem.gated and operand == "b" else 1
    length = min(share, tile // halves)
    batch = [
        f"i32({_batch_index(problem, dim)})"
        for dim in reversed(range(len(problem.batch)))
        if matrix.batch[dim] != 0
    ]
    function = f"copy_tensor_{2 + len(batch)}d" + ("_multicast" if sharers > 1 else "")
    end = [mask] if sharers > 1 else []
    body: list[str] = [f"mine = {own} * {share}" if sharers > 1 else "mine = 0"]
    if operand == "b" and problem.products > 1:
        body.append("tensor = " + _chosen(problem, [f"b{i}_map" for i in range(problem.products)]))
    elif halves == 1:
        body.append(f"tensor = {'a_map' if operand == 'a' else 'b0_map'}")
    step = length if matrix.along_k else 64
    for first in range(0, share, step):
        inside = f"mine + {first}"
        if halves == 2:
            body.append(f"place = {inside}")
            body.append(f"tensor = b0_map if place < {tile // 2} else b1_map")
            body.append(f"line = i32(row + (place if place < {tile // 2} else place - {tile // 2}))")
        else:
            body.append(f"line = i32(row + {inside})")
        coordinates = ["i32(k)", "line"] if matrix.along_k else ["line", "i32(k)"]
        call = [f"u32(at + u32(({inside}) * 128))", "tensor", "ready", *coordinates, *batch, *end]
        body.append(f"{function}({', '.join(call)})")
    return Snippet(("at", "ready", "k", "row", "matrix"), tuple(body))


def _row_mask(spec: Spec) -> int:
    """Ranks of a cluster in the same row as rank 0."""
    return sum(1 << (spec.cluster_m * column) for column in range(spec.cluster_n))


# Epilogue and stores


def _parts(
    problem: Problem, spec: Spec, out: Place, extras: Sequence[Place], point: Snippet | None
) -> dict[str, Constant | Snippet]:
    split = spec.split_k > 1
    store = {"packed": template.store_packed, "pairs": template.store_pairs, "elements": template.store_elements}
    store_row = {"packed": template.row_packed, "pairs": template.row_f32, "elements": template.row_elements}
    return {
        "COPY_A": _copy(problem, problem.a, spec, "a"),
        "COPY_B": _copy(problem, problem.b, spec, "b"),
        "TILE_OF": part(template.tile_of),
        "PRODUCE": part(template.produce),
        "CONSUME": part(template.consume),
        "RELEASE": part(template.release),
        "STORE": part(template.reduce_parts if split else store[problem.store]),
        "STORE_ROW": part(store_row[problem.store]),
        "OUT": _address(problem, out, [f"out{i}" for i in range(problem.products)]),
        "VALUES": _values(problem, spec, extras, point is not None),
        **({} if point is None else {"POINT": point}),
    }


def _address(problem: Problem, place: Place, names: Sequence[str]) -> Snippet:
    """Address of the element of a result matrix at (row, column)."""
    indices = [_batch_index(problem, dim) for dim in range(len(problem.batch))] + ["row", "column"]
    terms = [f"{index} * {stride}" for index, stride in zip(indices, place.strides, strict=True) if stride]
    terms += [str(place.offset)] if place.offset or not terms else []
    size = ELEMENT_BYTES[place.dtype]
    return Snippet(
        ("matrix", "row", "column"),
        (f"start = {_chosen(problem, names)}",),
        f"u64(start + u64(({' + '.join(terms)}) * {size}))",
    )


def _values(problem: Problem, spec: Spec, extras: Sequence[Place], has_point: bool) -> Snippet:
    """The epilogue of a site: two rows (8 apart) x 2 columns out of a fragment, or 8 columns of a row after a split.

    Operands are read once for all elements of the site that share them, neighbours in one load. At an edge the indices
    are held inside; what comes of them is not stored.
    """
    rows, columns = (1, 8) if spec.split_k > 1 else (2, 2)
    gate = 8 if spec.split_k > 1 else spec.sums // 2
    body: list[str] = []
    for number, extra in enumerate(extras):
        body += _loads(problem, spec, number, extra, rows, columns)
    indices = [f"i32({_batch_index(problem, dim)})" for dim in range(len(problem.batch))]
    results: list[str] = []
    for r in range(rows):
        for c in range(columns):
            at = f"{rows * columns} * number + {r * columns + c}"
            sums = [f"acc[{at}]", f"acc[{gate} + {at}]"] if problem.gated else [f"acc[{at}]"]
            if not has_point:
                results.append(sums[0])
                continue
            given = [
                f"x{number}_{r if extra.strides[-2] else 0}_{c if extra.strides[-1] else 0}"
                for number, extra in enumerate(extras)
            ]
            point = [*sums, *given, *indices, f"i32(row + {8 * r})", f"i32(column + {c})"]
            body.append(f"y{r}_{c} = splice(POINT, {', '.join(point)})")
            results.append(f"y{r}_{c}")
    return Snippet(("acc", "number", "matrix", "row", "column"), tuple(body), f"({', '.join(results)})")


def _loads(problem: Problem, spec: Spec, number: int, extra: Place, rows: int, columns: int) -> list[str]:
    """Statements that read operand `number` at a site into f32 locals x<number>_<row>_<column>."""
    body: list[str] = [
        f"from{number} = {_chosen(problem, [f'in{i}_{number}' for i in range(problem.products)])}"
    ]
    together = _loads_together(problem, extra, columns)
    size = ELEMENT_BYTES[extra.dtype]
    for r in range(rows if extra.strides[-2] else 1):
        for c in range(0, columns if extra.strides[-1] else 1, columns if together else 1):
            last = problem.n - (columns if together else 1)
            indices = [_batch_index(problem, dim) for dim in range(len(problem.batch))]
            indices += [f"min(row + {8 * r}, {problem.m - 1})", f"min(column + {c}, {last})"]
            terms = [f"{i} * {step}" for i, step in zip(indices, extra.strides, strict=True) if step]
            terms += [str(extra.offset)] if extra.offset or not terms else []
            body.append(f"at = u64(from{number} + u64(({' + '.join(terms)}) * {size}))")
            names = [f"x{number}_{r}_{c + i}" for i in range(columns if together else 1)]
            body += _load(extra.dtype, names)
    return body


def _loads_together(problem: Problem, extra: Place, columns: int) -> bool:
    """Whether `columns` neighbours lie together, aligned, at every site."""
    if extra.strides[-1] != 1 or problem.n % columns != 0:
        return False
    starts = (*extra.strides[:-1], extra.offset)
    size = ELEMENT_BYTES[extra.dtype]
    return all(start % columns == 0 for start in starts) and all(
        address.offset % (columns * size) == 0 for address in extra.addresses
    )


def _load(dtype: str, names: Sequence[str]) -> list[str]:
    """Reads 1, 2 or 8 neighbours at `at`."""
    match dtype, len(names):
        case "f32", 1:
            return [f"{names[0]} = load_f32(at)"]
        case _, 1:
            return [f"{names[0]} = {dtype}_to_f32(load_u16(at))"]
        case "f32", 2:
            return ["raw = load_u32x2(at)", *(f"{name} = bits_to_f32(raw[{i}])" for i, name in enumerate(names))]
        case "f32", _:
            return [
                f"{', '.join(names[:4])} = load_f32x4(at)",
                f"{', '.join(names[4:])} = load_f32x4(at + u64(16))",
            ]
        case _, 2:
            return [f"{', '.join(names)} = unpack_{dtype}(load_u32(at))"]
        case _:
            pairs = [f"{names[2 * i]}, {names[2 * i + 1]} = unpack_{dtype}(raw[{i}])" for i in range(4)]
            return ["raw = load_u32x4(at)", *pairs]
