# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# Templates are text in the form of functions: their parameters have no types.
"""Launches of the wgmma kernel: the template with its constants, the tensor maps, the arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil, prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.codegen.scalar import (
    float8_packed,
    float8_unpacked,
    load_text,
    point_snippet,
    store_text,
)
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, constants_of, part, stage
from aicf.backends.cuda.families.gemm.byte_operands import stored_types
from aicf.backends.cuda.families.gemm.problem import Access, operands_of
from aicf.backends.cuda.families.gemm.tf32 import math_of
from aicf.backends.cuda.families.gemm.wgmma import template
from aicf.backends.cuda.families.gemm.wgmma.kernel import (
    clusters_of,
    product_of_launch,
    spec_of,
    task_of_launch,
)
from aicf.backends.cuda.families.gemm.wgmma.rows import Held, meetings, row_snippet
from aicf.backends.cuda.families.gemm.wgmma.schedule import (
    CHUNK_BYTES,
    LINE_BYTES,
    STATISTICS_ROWS,
    Spec,
    Task,
    Tensor,
    held_words,
    registers,
    varies_by_row,
)
from aicf.backends.cuda.families.records import Rounding, read_rounding, read_shape
from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.target import ELEMENT_BYTES, FLOAT8
from aicf.dialects.emit_kernels import KernelOp

_LONG_EPILOGUE = 160
"""Characters of an epilogue at one element beyond which its code is not repeated for all of them."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an instruction."""
    task, spec = task_of_launch(launch), spec_of(launch.record)
    rounding = read_rounding(launch.record)
    point = rows = None
    if launch.code is not None and task.row_totals:
        rows = launch.code
    elif launch.code is not None:
        # What the epilogue reads from memory is given to the point as values: the kernel loads neighbours together.
        operands = len(launch.code.in_maps)
        point = point_snippet(launch.code, operands, (), launch.outs[: len(task.outputs)], rounding)
    source = kernel_source(task, spec, point, clusters_of(launch.record), rows, rounding)
    sums: tuple[BufferRef, ...] = ()
    if task.summed is not None:
        launch, beside = product_of_launch(launch)
        sums = (beside,)
    roles = operands_of(launch.kind, len(launch.ins), len(launch.outs))
    pointers = [
        address_of(ref)
        for extras, outputs in zip(roles.extras, roles.outputs, strict=True)
        for ref in (*(launch.ins[index] for index in extras), *(launch.outs[index] for index in outputs))
    ]
    arguments = (
        tensor_map(task, task.a, launch.ins[0], spec.tile_m // spec.a_sharers),
        *(tensor_map(task, task.b, launch.ins[index], b_lines(task, spec)) for index in roles.b),
        *pointers,
        *map(address_of, sums),
    )
    name = launch.kernel.partition(".")[2]
    code = KernelCode(name, source, ("ptr",) * len(arguments), spec.threads, spec.blocks_per_sm)
    return [launch_in(read_shape(launch.record), code, arguments)]


def kernel_source(
    task: Task,
    spec: Spec,
    point: Snippet | None,
    clusters: int,
    rows: KernelOp | None = None,
    rounding: Rounding = "fused",
    copies: Mapping[str, Snippet] | None = None,
) -> str:
    """The text of the kernel.

    Args:
        clusters: Clusters of the grid.
        point: The epilogue at one element: parameters are the sums, the values of the extra operands, then an index for
            every dim of the epilogue and an address for every result, which it does not use; None stores the sums.
        rows: The epilogue if it is a row program, rounded as `rounding` says.
        copies: What takes the place of COPY_A and COPY_B where the operands are no matrices in memory; with STEPS where
            K has another length in each matrix.
    """
    held = _held(task, spec)
    constants = _constants(task, spec, clusters) | _parts(task, spec, point, held)
    if rows is not None:
        constants |= _row_parts(task, spec, rows, rounding, held)
    elif task.more:
        constants |= _several_parts(task, spec, held)
    constants |= copies or {}
    names = _names(task, spec)
    text = stage(template.gemm, constants)
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda match: names[match[1]], text)


def _names(task: Task, spec: Spec) -> dict[str, str]:
    """What stands for the template's parameters and for intrinsics that depend on types and sizes."""
    products = task.problem.products
    parameters = ["a_map", *(f"b{i}_map" for i in range(products * task.problem.factors))]
    for product in range(products):
        parameters += [
            *(f"in{product}_{extra}" for extra in range(len(task.extras) + len(task.beside))),
            f"out{product}",
        ]
    parameters += [f"out{output}" for output in range(1, len(task.outputs))]
    parameters += ["sums_out"] if task.summed is not None else []
    parameters += ["statistics_out"] if task.left else []
    layout = f"_{int(not task.a.along_k)}{int(not task.b.along_k)}"
    fewer, more = registers(spec) or (0, 0)
    sums = task.problem.sums
    math = stored_types(task.problem) if task.problem.widens else math_of(task.problem.dtype)
    return {
        "PARAMETERS": ", ".join(parameters),
        "MULTIPLY": f"wgmma_{spec.tile_n}_{math}{'' if layout == '_00' else layout}",
        "SUMS_DONE": f"wgmma_result_{spec.tile_n}{'' if sums == 'f32' else f'_{sums}'}",
        "ZERO_SUMS": f"zeros_{sums}",
        "SUM": sums,
        "SEND_SUMS": f"store_cluster_{sums}x2",
        "LOAD_SUMS": f"load_shared_{sums}x4",
        "RESULT": task.output.dtype if task.output.dtype in ("f32", "i32") else "f32",
        "STORE_TWO": f"store_{task.output.dtype}x2",
        "STORE_FOUR": f"store_{task.output.dtype}x4",
        "FEWER_REGISTERS": f"fewer_registers_{fewer}",
        "MORE_REGISTERS": f"more_registers_{more}",
        "PACK": f"pack_{task.output.dtype}",
        "UNPACK": f"unpack_{task.problem.dtype}",
        "UNPACK_RESULT": f"unpack_{task.output.dtype}",
    }


def _is_inside(task: Task, spec: Spec) -> bool:
    """Whether all tiles are whole. Where they are not, an epilogue reads one fragment at a time: with four, one of
    50257 x 4096 -> 768 with an f32 residual took 1,583 us on an H100 in place of 677."""
    rows, columns = spec.tile_m * spec.cluster_m, spec.width(task) * spec.cluster_n
    return task.problem.m % rows == 0 and task.problem.n % columns == 0


def _constants(task: Task, spec: Spec, clusters: int) -> dict[str, Constant | Snippet]:
    rows, columns = spec.units(task)
    width = spec.width(task)
    part_steps = spec.part_steps(task)
    shortest = task.k_steps - part_steps * (spec.split_k - 1)
    m, n = task.problem.m, task.problem.n
    return {
        **constants_of(spec),
        "A_BYTES": spec.a_bytes,
        "A_DESCRIPTOR": _descriptor(task.a),
        "A_STEP": _advance(task.a),
        "ALL_STEPS": task.k_steps,
        "ALL_UNITS": spec.all_units(task),
        "B_DESCRIPTOR": _descriptor(task.b),
        "B_STEP": _advance(task.b),
        "BAND": min(spec.band, rows),
        "BARRIERS_AT": spec.ring_bytes + spec.around_bytes(task),
        "CLUSTER": spec.cluster,
        "COLUMN_UNITS": columns,
        "CONSUMERS": spec.consumers,
        "EARLY": min(spec.stages, shortest) if task.early else 0,
        "GATE_BYTES": width * 4,
        "INSIDE": _is_inside(task, spec),
        "K_STEP": task.k_step,
        "LAST_COLUMNS": n % 8,
        "LINE_BYTES": LINE_BYTES,
        "LINES_AT": spec.ring_bytes,
        "M": m,
        "MEETINGS": 0,
        "MOMENTS": task.moments,
        "LEFT_SUMS": task.column_sums,
        "BOARD_BYTES": 4 * task.left * width,
        "STATISTICS_AT": spec.ring_bytes + spec.line_bytes(task) + spec.totals_bytes(task),
        "STATISTICS_PARTS": ceil(m / STATISTICS_ROWS),
        "STATISTICS_TURNS": ceil(width / 128),
        "N": n,
        "PART_STEPS": part_steps,
        "PARTS_AT": spec.ring_bytes,
        "PITCH": spec.pitch,
        "RESIZE": registers(spec) is not None,
        "ROW_UNITS": rows,
        "SHARE": spec.tile_m // spec.split_k,
        "SHARERS": spec.sharers,
        "STAGE_BYTES": spec.stage_bytes,
        "STARTS_APART": spec.cluster > 1 and spec.sharers == 1,
        "STEP": clusters,
        "SUM_PARTS": task.problem.factors,
        "SUMMED": "" if task.summed is None else task.summed[0],
        "SUM_CHUNKS": 1
        if task.summed is None or task.summed[0] == "a"
        else ceil(width / 64 / spec.consumers),
        "SUMS": spec.sums,
        "TOGETHER": 4 if _is_inside(task, spec) else 1,
        "TOTALS_AT": spec.ring_bytes + spec.line_bytes(task),
        "UNEVEN": task.is_uneven,
        "UNITS": rows * columns,
        "WIDTH": width,
    }


_WHOLE = {
    "packed": template.store_packed,
    "bytes": template.store_bytes,
    "vectors": template.store_vectors,
    "elements": template.store_elements,
}
"""Whole tiles of results by how they go to memory."""


def _parts(
    task: Task, spec: Spec, point: Snippet | None, held: Mapping[int, Held]
) -> dict[str, Constant | Snippet]:
    split = spec.split_k > 1
    row = {
        "packed": template.row_packed,
        "bytes": template.row_bytes,
        "vectors": template.row_vectors,
        "elements": template.row_elements,
    }
    out = [f"out{product}" for product in range(task.problem.products)]
    return {
        "COPY_A": copy_of(task, task.a, spec, "a"),
        "COPY_B": copy_of(task, task.b, spec, "b"),
        "HELD_WORDS": 8 * sum(each.words for each in held.values()),
        "HOLD": _hold(task, spec, held),
        "TILE_OF": part(template.tile_of),
        "PRODUCE": part(template.produce),
        "CONSUME": part(template.consume),
        "RELEASE": part(template.release),
        "STORE": part(template.reduce_parts if split else _WHOLE[task.store(False)]),
        "STORE_CHUNK": part(
            template.store_byte_chunk if task.store(False) == "bytes" else template.store_chunk
        ),
        "STORE_LINE": part(template.store_line),
        "LOOPED": task.column_sums > 0 or (point is not None and sum(map(len, point.body)) > _LONG_EPILOGUE),
        "STORE_ROW": part(row[task.store(split)]),
        "STORE_ELEMENT": _store_element(task),
        "SLAB_MOMENTS": part(template.slab_moments),
        "MOMENTS_DONE": part(template.moments_done),
        "LINE_SUMS": part(template.line_sums),
        "SLAB_SUMS": part(template.slab_sums),
        "SUMS_DONE_BY": part(template.sums_done),
        "LINE_VALUES": _line_values(task),
        "SUM_CHUNK": part(template.sum_chunk),
        "SUM_DONE": part(template.sum_done),
        "STORE_SUM": Snippet(
            ("address", "value"), (store_text((task.summed or ("", "f32"))[1], "address", "value"),)
        ),
        "SUM_BYTES": ELEMENT_BYTES[(task.summed or ("", "f32"))[1]],
        "TWO_BYTES": _two_bytes(task.output.dtype),
        "FOUR_BYTES": _four_bytes(task.output.dtype),
        "OUT": _out(task, out),
        "VALUES": _values(task, spec, point is not None, held),
        **({} if point is None else {"POINT": point}),
    }


def _out(task: Task, names: Sequence[str]) -> Snippet:
    """The address of an element of the first result, whose base for each product is one of `names`."""
    offset = _address_text(task, task.output, "start", "row", "column")
    return Snippet(("matrix", "row", "column"), (f"start = {_chosen(task, names)}",), offset)


def _row_parts(
    task: Task, spec: Spec, rows: KernelOp, rounding: Rounding, held: Mapping[int, Held]
) -> dict[str, Constant | Snippet]:
    """What takes the place of the store: the row program, its loads, and a store for each result."""
    parts: dict[str, Constant | Snippet] = {
        "MEETINGS": meetings(rows) if spec.cluster > 1 else 0,
        "STORE": row_snippet(rows, task, spec, rounding, held),
    }
    inside = task.problem.n % (spec.width(task) * spec.cluster_n) == 0
    for number, extra in enumerate(task.extras):
        values = [_value(task, number, extra, r, c) for r in range(2) for c in range(2)]
        body = _loads(task, number, extra, 2, 2, inside)
        parts[f"LOAD_EXTRA{number}"] = Snippet(
            ("matrix", "row", "column"), tuple(body), f"({', '.join(values)})"
        )
    for output in range(len(task.outputs)):
        own = task.giving(output)
        store = _renamed(part(_WHOLE[own.store(False)]), _names_of_result(own, output))
        parts |= {f"STORE_RESULT{output}": store, **_result_parts(task, output)}
    return parts


def _several_parts(task: Task, spec: Spec, held: Mapping[int, Held]) -> dict[str, Constant | Snippet]:
    """What takes the place of STORE_CHUNK where a pointwise epilogue has several results, all packed: a chunk of each
    in turn. One result after the other for the whole tile would need more registers than there are."""
    parts: dict[str, Constant | Snippet] = {}
    chunk = part(template.store_chunk)
    for output in range(len(task.outputs)):
        parts |= _result_parts(task, output, ("VALUES",))
        parts[f"VALUES_{output}"] = _values(task, spec, True, held, f"[{output}]")
    stores = [
        f"splice(STORE_CHUNK_{output}, {', '.join(chunk.params)})" for output in range(len(task.outputs))
    ]
    return {**parts, "STORE_CHUNK": Snippet(chunk.params, tuple(stores))}


def _result_parts(task: Task, output: int, own_parts: Sequence[str] = ()) -> dict[str, Constant | Snippet]:
    """The parts that store a chunk of result number `output`, `<part>_<o>`; `own_parts` are more of which it has its
    own."""
    own = task.giving(output)
    names = _names_of_result(own, output, own_parts)
    return {
        names["STORE_CHUNK"]: _renamed(part(template.store_chunk), names),
        names["STORE_ELEMENT"]: _store_element(own),
        names["OUT"]: _out(own, [f"out{output}"]),
    }


def _names_of_result(own: Task, output: int, own_parts: Sequence[str] = ()) -> dict[str, str]:
    """What parts are called for result number `output`, which is the first of `own`."""
    names = {name: f"{name}_{output}" for name in ("OUT", "STORE_CHUNK", "STORE_ELEMENT", *own_parts)}
    return {**names, "PACK": f"pack_{own.output.dtype}"}


def _held(task: Task, spec: Spec) -> dict[int, Held]:
    """Operands of the epilogue that are read before the product, so that nothing waits for them after it."""
    chosen = held_words(task, spec)
    step = sum(chosen.values())
    firsts = accumulate(chosen.values(), initial=0)
    return {
        number: Held(first, words, step, task.extras[number].dtype)
        for first, (number, words) in zip(firsts, chosen.items(), strict=False)
    }


def _hold(task: Task, spec: Spec, held: Mapping[int, Held]) -> Snippet:
    """Reads what is held: for every fragment, operand and row a word."""
    inside = task.problem.n % (spec.width(task) * spec.cluster_n) == 0
    body: list[str] = ["line = row + (lane >> 2)"]
    body += [f"from{number} = {_extra_base(task, number)}" for number in held]
    names: list[str] = []
    for fragment in range(spec.width(task) // 8):
        first = f"column + {8 * fragment} + (lane & 3) * 2"
        column = first if inside else f"min({first}, {task.problem.n - 2})"
        for number, each in held.items():
            for half in range(each.words):
                row = f"min(line + {8 * half}, {task.problem.m - 1})"
                names.append(f"word{len(names)}")
                address = _address_text(task, task.extras[number], f"from{number}", row, column)
                body.append(f"{names[-1]} = load_u32({address})")
    return Snippet(("matrix", "row", "column", "lane"), tuple(body), f"({', '.join(names or ['u32(0)'])},)")


def _renamed(snippet: Snippet, names: Mapping[str, str]) -> Snippet:
    """The snippet with other names for parts that it splices in or calls."""
    pattern = re.compile(r"\b(" + "|".join(names) + r")\b")
    body = tuple(pattern.sub(lambda match: names[match[1]], line) for line in snippet.body)
    return Snippet(snippet.params, body, snippet.result)


def _store_element(task: Task) -> Snippet:
    return Snippet(("address", "value"), (store_text(task.output.dtype, "address", "value"),))


def _two_bytes(dtype: str) -> Snippet:
    """Two neighbouring results of 8 bits as a u16."""
    if dtype in FLOAT8:
        return Snippet(("a", "b"), (), float8_packed(dtype, "ab"))
    return Snippet(("a", "b"), (), "u16((a & 255) | ((b & 255) << 8))")


def _four_bytes(dtype: str) -> Snippet:
    """Four of them as a u32."""
    text = float8_packed(dtype, "abcd") if dtype in FLOAT8 else "pack_bytes(a, b, c, d)"
    return Snippet(tuple("abcd"), (), text)


# Copies


def _descriptor(tensor: Tensor) -> int:
    """Constant part of a shared-memory descriptor: 128-byte swizzle, bytes / 16 from 8 lines to the next 8, and from
    one 64-wide chunk to the next where the lines run along M or N."""
    leading = 1 if tensor.along_k else CHUNK_BYTES >> 4
    return 1 << 62 | (1024 >> 4) << 32 | leading << 16


def _advance(tensor: Tensor) -> int:
    """The 32 bytes of K that one product takes, in descriptor units of 16 bytes."""
    return 2 if tensor.along_k else 16 * 128 >> 4


def b_lines(task: Task, spec: Spec) -> int:
    """Columns of B that one copy brings, if its lines run along K."""
    return min(spec.width(task), spec.tile_n // spec.cluster_m)


def tensor_map(task: Task, tensor: Tensor, ref: BufferRef, lines: int) -> TensorMap:
    """The tensor map of an operand, for copies of `lines` lines along K, or of 64 lines along M or N."""
    pairs = zip(task.problem.batch, tensor.batch, strict=True)
    batch = [(size, step) for size, step in pairs if step != 0][::-1]
    k, size = task.problem.k, task.problem.element_bytes
    inner, outer = (k, tensor.rows) if tensor.along_k else (tensor.rows, k)
    return TensorMap(
        ref.base,
        ref.offset,
        math_of(ref.dtype),  # the copy rounds to TF32
        (inner, outer, *(size for size, _ in batch)),
        (size * tensor.stride, *(size * step for _, step in batch)),
        (task.k_step, lines if tensor.along_k else task.k_step, *(1 for _ in batch)),
        swizzle=128,
        l2_promotion=256,
        interleave=0,
        out_of_bounds="zeros",
    )


def sharing(spec: Spec, operand: str) -> tuple[int, int, str, str]:
    """How the blocks of a cluster copy operand `a` or `b` for each other: lines of a tile, blocks that copy a part of
    them each, which of these a block is, and the mask of those that get its part."""
    if operand == "a":
        in_row = sum(1 << (spec.cluster_m * column) for column in range(spec.a_sharers))
        return spec.tile_m, spec.a_sharers, "rank_n", f"u16({in_row} << rank_m)"
    mask = f"u16({(1 << spec.cluster_m) - 1} << (rank_n * {spec.cluster_m}))"
    return spec.tile_n, spec.cluster_m, "rank_m", mask


def copy_of(task: Task, tensor: Tensor, spec: Spec, operand: str) -> Snippet:
    """Copies this block's share of a stage of A or B into all blocks that need it.

    In a cluster, blocks with the same rows need the same A, blocks with the same columns the same B. The first half of
    a gated pair's columns comes from one B, the second from the other.
    """
    tile, sharers, own, mask = sharing(spec, operand)
    share, half = tile // sharers, tile // 2
    is_pair = task.gated and operand == "b"
    step = (min(share, half) if is_pair else share) if tensor.along_k else 64
    batch = [
        f"i32({_batch_index(task, dim)})"
        for dim in reversed(range(len(task.problem.batch)))
        if tensor.batch[dim] != 0
    ]
    function = f"copy_tensor_{2 + len(batch)}d" + ("_multicast" if sharers > 1 else "")
    body: list[str] = []
    if not is_pair:
        names = [f"b{product}_map" for product in range(task.problem.products)]
        body.append(f"tensor = {'a_map' if operand == 'a' else _chosen(task, names)}")
    for first in range(0, share, step):
        body.append(f"place = {own} * {share} + {first}" if sharers > 1 else f"place = {first}")
        if is_pair:
            body.append(f"tensor = b0_map if place < {half} else b1_map")
            body.append(f"line = i32(row + (place if place < {half} else place - {half}))")
        else:
            body.append("line = i32(row + place)")
        lines = ["i32(k)", "line"] if tensor.along_k else ["line", "i32(k)"]
        call = ["u32(at + u32(place * 128))", "tensor", "ready", *lines, *batch]
        body.append(f"{function}({', '.join(call + ([mask] if sharers > 1 else []))})")
    return Snippet(("at", "ready", "k", "row", "matrix"), tuple(body))


# Addresses


def _batch_index(task: Task, dim: int) -> str:
    """The index of batch dim `dim` of result matrix `matrix`; products are outside of all batch dims."""
    sizes = task.problem.batch
    after, outside = prod(sizes[dim + 1 :]), task.problem.products * prod(sizes[:dim])
    index = "matrix" if after == 1 else f"(matrix // {after})"
    return index if outside == 1 else f"({index} % {sizes[dim]})"


def _row_indices(task: Task, row: str) -> list[str]:
    """The indices of the dims that make up row `row`."""
    sizes = task.problem.row_dims
    indices: list[str] = []
    for dim, size in enumerate(sizes):
        after = prod(sizes[dim + 1 :])
        index = f"({row})" if after == 1 else f"(({row}) // {after})"
        indices.append(index if prod(sizes[:dim]) == 1 else f"({index} % {size})")
    return indices


def _extra_base(task: Task, number: int) -> str:
    """The address where operand `number` of the epilogue starts, for the product of result matrix `matrix`."""
    return _chosen(task, [f"in{product}_{number}" for product in range(task.problem.products)])


def _chosen(task: Task, names: Sequence[str]) -> str:
    """The one of `names` that belongs to the product of result matrix `matrix`."""
    text = names[-1]
    for product in reversed(range(len(names) - 1)):
        text = f"{names[product]} if matrix < {(product + 1) * task.problem.batches} else ({text})"
    return text


def _row_stride(task: Task, access: Access) -> int | None:
    """Elements from row to row if that is always the same, whatever dims the rows are made of."""
    first = len(task.problem.batch)
    steps = access.strides[first:-1]
    sizes = task.problem.row_dims
    even = all(steps[i] == steps[i + 1] * sizes[i + 1] for i in range(len(steps) - 1))
    return steps[-1] if even else None


def _address_text(task: Task, access: Access, start: str, row: str, column: str) -> str:
    """The address of an element of an operand that starts at address `start`."""
    batch = len(task.problem.batch)
    even = _row_stride(task, access)
    rows = [(f"({row})", even)] if even is not None else zip(
        _row_indices(task, row), access.strides[batch:-1], strict=True
    )  # fmt: skip
    pairs = [
        *((_batch_index(task, dim), access.strides[dim]) for dim in range(batch)),
        *rows,
        (f"({column})", access.strides[-1]),
    ]
    terms = [f"{index} * {step}" for index, step in pairs if step]
    terms += [str(access.offset)] if access.offset or not terms else []
    return f"u64({start} + u64(({' + '.join(terms)}) * {ELEMENT_BYTES[access.dtype]}))"


# Epilogue


def _values(task: Task, spec: Spec, has_point: bool, held: Mapping[int, Held], result: str = "") -> Snippet:
    """The epilogue of a site: two rows (8 apart) x 2 columns out of a fragment, or 8 columns of a row after a split.

    Operands that are not held are read once for all elements of the site that share them, neighbours in one load. At an
    edge the indices are kept inside; what comes of them is not stored. `result` picks one of several results.
    """
    split = spec.split_k > 1
    rows, columns = (1, 8) if split else (2, 2)
    second = columns if split else spec.sums // 2
    body: list[str] = []
    if has_point:
        for number, extra in enumerate(task.extras):
            if number in held:
                body += _unpacked(task, number, held[number])
            else:
                body += _loads(task, number, extra, rows, columns)
    results: list[str] = []
    for r in range(rows):
        for c in range(columns):
            offset = f"{rows * columns} * number + {r * columns + c}"
            sums = [f"acc[{offset}]", f"acc[{second} + {offset}]"][: task.problem.factors]
            if not has_point:
                results += sums
                continue
            given = [_value(task, number, extra, r, c) for number, extra in enumerate(task.extras)]
            indices = ["i32(0)"] * len(task.problem.epilogue_dims)
            nowhere = ["u64(0)"] * len(task.outputs)
            arguments = ", ".join([*sums, *given, *indices, *nowhere])
            body.append(f"y{r}_{c} = splice(POINT, {arguments})")
            results.append(f"y{r}_{c}{result}")
    params = ("acc", *(() if split else ("held",)), "number", "matrix", "row", "column")
    return Snippet(params, tuple(body), f"({', '.join(results)})")


def _line_values(task: Task) -> Snippet:
    """What is summed of eight neighbouring results of a row: all eight of the first sum, then of the next. LINE_POINT
    is that at one element, from the result and what lies beside it."""
    whole = replace(task, extras=(*task.extras, *task.beside))
    own = range(len(task.extras), len(whole.extras))
    body: list[str] = []
    for number in own:
        body += _loads(whole, number, whole.extras[number], 1, 8)
    around = ", ".join([*["i32(0)"] * len(task.problem.epilogue_dims), *["u64(0)"] * task.column_sums])
    for c in range(8):
        given = "".join(f"{_value(whole, number, whole.extras[number], 0, c)}, " for number in own)
        body.append(f"s{c} = splice(LINE_POINT, acc[{c}], {given}{around})")
    picks = [f"[{number}]" for number in range(task.column_sums)] if task.column_sums > 1 else [""]
    names = [f"s{c}{pick}" for pick in picks for c in range(8)]
    return Snippet(("acc", "matrix", "row", "column"), tuple(body), f"({', '.join(names)})")


def _unpacked(task: Task, number: int, held: Held) -> list[str]:
    """Statements that make locals of a held operand's values at a site, by the names of `_value`."""
    extra = task.extras[number]
    pairs = zip(range(held.words), held.site("number"), strict=False)
    return [
        f"{_value(task, number, extra, r, 0)}, {_value(task, number, extra, r, 1)} = {pair}"
        for r, pair in pairs
    ]


def _value(task: Task, number: int, extra: Access, r: int, c: int) -> str:
    """The local that holds an extra operand's value at one element of the site."""
    return f"x{number}_{r if varies_by_row(task, extra) else 0}_{c if extra.strides[-1] else 0}"


def _loads(
    task: Task, number: int, extra: Access, rows: int, columns: int, inside: bool = False
) -> list[str]:
    """Statements that read operand `number` at a site; `inside` says that no site has columns past the last."""
    body = [f"from{number} = {_extra_base(task, number)}"]
    problem = task.problem
    together = columns if problem.n % columns == 0 and _is_vector(extra, columns) else 1
    for r in range(rows if varies_by_row(task, extra) else 1):
        for c in range(0, columns if extra.strides[-1] else 1, together):
            row = f"min(row + {8 * r}, {problem.m - 1})"
            column = f"column + {c}" if inside else f"min(column + {c}, {problem.n - together})"
            body.append(f"at = {_address_text(task, extra, f'from{number}', row, column)}")
            body += _load(extra.dtype, [f"x{number}_{r}_{c + i}" for i in range(together)])
    return body


def _is_vector(access: Access, columns: int) -> bool:
    """Whether `columns` neighbours may be read at once, or as two vectors of 16 bytes."""
    width = ELEMENT_BYTES[access.dtype] * columns
    return access.vector_bytes(columns) == width or (width == 32 and access.vector_bytes(columns // 2) == 16)


def _load(dtype: str, names: Sequence[str]) -> list[str]:
    """Reads 1, 2 or 8 neighbours at `at` into f32 locals, or i32 ones of integers."""
    if len(names) == 1:
        return [f"{names[0]} = {load_text(dtype, 'at')}"]
    if dtype in FLOAT8:
        words = (float8_unpacked(dtype, f"raw[{i}]", names[4 * i : 4 * i + 4]) for i in range(2))
        return ["raw = load_u32x2(at)", *(line for word in words for line in word)]
    if dtype in ("i8", "u8"):
        halves = [f"{', '.join(names[4 * i : 4 * i + 4])} = unpack_{dtype}x4(raw[{i}])" for i in range(2)]
        return ["raw = load_u32x2(at)", *halves]
    if dtype == "i32" and len(names) == 2:
        return ["raw = load_u32x2(at)", *(f"{name} = i32(raw[{i}])" for i, name in enumerate(names))]
    if dtype == "i32":
        return [
            f"{', '.join(names[:4])} = load_i32x4(at)",
            f"{', '.join(names[4:])} = load_i32x4(at + u64(16))",
        ]
    if dtype == "f32" and len(names) == 2:
        return ["raw = load_u32x2(at)", *(f"{name} = bits_to_f32(raw[{i}])" for i, name in enumerate(names))]
    if dtype == "f32":
        return [
            f"{', '.join(names[:4])} = load_f32x4(at)",
            f"{', '.join(names[4:])} = load_f32x4(at + u64(16))",
        ]
    if len(names) == 2:
        return [f"{', '.join(names)} = unpack_{dtype}(load_u32(at))"]
    pairs = [f"{names[2 * i]}, {names[2 * i + 1]} = unpack_{dtype}(raw[{i}])" for i in range(4)]
    return ["raw = load_u32x4(at)", *pairs]
