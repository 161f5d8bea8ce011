"""Launches of the kernels that write at computed indices or look for the largest: templates with their snippets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import read_integer, read_text
from aicf.backends.cuda.codegen.scalar import (
    REGISTERS,
    address_text,
    combine_text,
    load_text,
    store_text,
)
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, stage
from aicf.backends.cuda.families.loops.kernel import read_shapes
from aicf.backends.cuda.families.records import Shape, is_programmatic
from aicf.backends.cuda.families.scatter import template as kernels
from aicf.backends.cuda.families.scatter.kernel import KEPT_BYTES, SELECTION, TILE
from aicf.backends.cuda.target import FLOATS

Constants = Mapping[str, Constant | Snippet]


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction of the family."""
    return _EMITTERS[launch.kernel](launch)


def launched(
    launch: Launch,
    shape: Shape,
    template: Callable[..., object],
    operands: Mapping[str, BufferRef],
    constants: Constants,
) -> KernelLaunch:
    """The template's parameter `operands` stands for an address for each of `operands`, by its name."""
    threads = shape.block[0]
    programmatic = is_programmatic(launch.record)
    staged = stage(template, {"THREADS": threads, "PROGRAMMATIC": programmatic, **constants})
    head, _, body = staged.partition("(operands):\n")
    source = f"{head}({', '.join(operands)}):\n{body}"
    code = KernelCode(launch.kind, source, ("ptr",) * len(operands), threads)
    return launch_in(shape, code, tuple(map(address_of, operands.values())))


# Elements


def target_text(flat: str, sizes: Sequence[int], strides: Sequence[int]) -> str:
    """The element (i64) at a flat index over `sizes` in row-major order."""
    sizes, strides = _joined(sizes, strides)
    terms: list[str] = []
    step = prod(sizes)
    for size, stride in zip(sizes, strides, strict=True):
        step //= size
        if size == 1 or stride == 0:
            continue
        index = f"({flat} // {step})" if step > 1 else flat
        index = f"({index} % {size})" if step * size < prod(sizes) else index
        terms.append(f"i64({index}) * {stride}")
    return " + ".join(terms) or "i64(0)"


def _joined(sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same with dimensions as one that lie as one."""
    joined: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return [size for size, _ in joined], [stride for _, stride in joined]


def two_entries(ref: BufferRef) -> str:
    """An element (i64) by its row and its flat column."""
    row = f"i64(row) * {ref.strides[0]}"
    return f"({row} + {target_text('column', ref.shape[1:], ref.strides[1:])})"


def named_row(ref: BufferRef, base: str, rows: int) -> Snippet:
    """Parameter number: the row that an index names (i64), -1 if it has none."""
    index = load_text(ref.dtype, address_text(base, f"i64(number) * {ref.strides[0]}", ref.dtype))
    lines = (
        f"index = i64({index})",
        f"index = cuda.selp(index < i64(0), i64(index + i64({rows})), index)",
        f"row = cuda.selp((index >= i64(0)) & (index < i64({rows})), index, i64(-1))",
    )
    return Snippet(("number",), lines, "row")


# Kernels


def _last_update(launch: Launch) -> list[KernelLaunch]:
    (indices,), (result,) = launch.ins, launch.outs
    rows, count = result.shape[0], indices.shape[0]
    address = Snippet(("row",), (), address_text("result", f"i64(row) * {result.strides[0]}", "i32"))
    clear = {"ROWS": rows, "ROW_ADDRESS": address}
    note = {"COUNT": count, "INDEX": named_row(indices, "indices", rows), "ROW_ADDRESS": address}
    both = {"indices": indices, "result": result}
    first, second = read_shapes(launch.record)
    return [
        launched(launch, first, kernels.clear, {"result": result}, clear),
        launched(launch, second, kernels.note, both, note),
    ]


def _combine(launch: Launch) -> list[KernelLaunch]:
    operand, indices, updates = launch.ins
    (result,) = launch.outs
    tile = TILE.read(launch.record)
    (shape,) = read_shapes(launch.record)
    mode = read_text(launch.record, "mode")
    rows, columns, dtype = operand.shape[0], prod(operand.shape[1:]), operand.dtype
    at = ("row", "column")
    constants: Constants = {
        "ROWS": rows,
        "COLUMNS": columns,
        "COUNT": indices.shape[0],
        "LOOKS": tile.looks,
        "BLOCK_ROWS": tile.rows,
        "BLOCK_COLUMNS": tile.columns,
        "GROUPS": max(1, shape.block[0] // tile.columns),
        "SUMS": Snippet((), (), f"cuda.shared.array({tile.rows * tile.columns}, {REGISTERS[dtype]})"),
        "INDEX": named_row(indices, "indices", rows),
        "OPERAND": Snippet(
            at, (), load_text(dtype, address_text("operand", two_entries(operand), operand.dtype))
        ),
        "UPDATE": Snippet(
            at, (), load_text(dtype, address_text("updates", two_entries(updates), updates.dtype))
        ),
        "COMBINED": Snippet(("old", "update"), (), combine_text(mode, dtype, "old", "update")),
        "STORE": Snippet(
            (*at, "value"),
            (store_text(dtype, address_text("result", two_entries(result), result.dtype), "value"),),
        ),
    }
    operands = {"operand": operand, "indices": indices, "updates": updates, "result": result}
    return [launched(launch, shape, kernels.combine, operands, constants)]


def _topk(launch: Launch) -> list[KernelLaunch]:
    """A launch for the best of each part of a row, and one more for the best of those until one part is left."""
    (source,), (result,) = launch.ins, launch.outs
    axis, selection = read_integer(launch.record, "axis"), SELECTION.read(launch.record)
    size, k = source.shape[axis], result.shape[axis]
    rows = prod(source.shape) // size
    key, digits = _key(source, axis, bool(read_integer(launch.record, "smallest")))
    store = address_text("result", f"(start + i64(rank) * {result.strides[axis]})", "i64")
    common: Constants = {
        "K": k,
        "DIGITS": digits,
        "UNROLL": selection.unroll,
        "RESULT_ROW": _row_start(result, axis),
        "STORE": Snippet(("start", "rank", "place"), (store_text("i64", store, "place"),)),
    }
    read: Constants = {
        "SIZE": size,
        "SOURCE_ROW": _row_start(source, axis),
        "KEY": key,
        "TURNED": Snippet(("start", "at"), (), "u64(u64(4294967295) - u64(at))"),
    }
    operands = {"source": source, "result": result, "w": launch.ws[0]}
    launches: list[KernelLaunch] = []
    kept_at = 0
    for shape, count in zip(read_shapes(launch.record), selection.parts, strict=True):
        made: Constants = {"PARTS": count, "KEPT_AT": kept_at, "FINAL": count == 1}
        launches.append(launched(launch, shape, kernels.topk, operands, {**common, **read, **made}))
        read, operands = _kept(kept_at, count * k), {"result": result, "w": launch.ws[0]}
        kept_at += KEPT_BYTES * rows * count * k
    return launches


def _kept(start: int, size: int) -> Constants:
    """What reads rows of so many elements that parts have kept, from byte `start` of the workspace on."""
    kept = f"load_u64(w + u64({start}) + u64((start + i64(at)) * {KEPT_BYTES}"
    return {
        "SIZE": size,
        "SOURCE_ROW": Snippet(("row",), (), f"i64(row) * {size}"),
        "KEY": Snippet(("start", "at"), (), f"{kept}))"),
        "TURNED": Snippet(("start", "at"), (), f"{kept} + 8))"),
    }


def _row_start(ref: BufferRef, axis: int) -> Snippet:
    """Parameter row: the first element of a row along the axis."""
    outer = [dim for dim in range(len(ref.shape)) if dim != axis]
    text = target_text("row", [ref.shape[d] for d in outer], [ref.strides[d] for d in outer])
    return Snippet(("row",), (), text)


def _key(ref: BufferRef, axis: int, smallest: bool) -> tuple[Snippet, int]:
    """Parameters start, at: the element as a u64 in the order of the elements, and the bytes that it fills.

    NaN is the largest, and zeros are equal.
    """
    register = REGISTERS[ref.dtype]
    address = address_text("source", f"(start + i64(at) * {ref.strides[axis]})", ref.dtype)
    lines = [f"value = {load_text(ref.dtype, address)}"]
    digits = {"bool": 1, "f64": 8, "i64": 8}.get(register, 4)
    bits = 8 * digits
    if ref.dtype in FLOATS:
        as_bits = "double_as_longlong" if register == "f64" else "float_as_int"
        lines += [
            f"raw = i64(cuda.libdevice.{as_bits}({register}(value + {register}(0.0))))",
            f"turned = cuda.selp(raw < i64(0), i64(~raw), i64(raw ^ i64({-(1 << (bits - 1))})))",
            "key = cuda.selp(value == value, turned, i64(-1))",
        ]
    elif register == "bool":
        lines.append("key = cuda.selp(value, i64(1), i64(0))")
    else:
        lines.append(f"key = i64(i64(value) ^ i64({-(1 << (bits - 1))}))")
    if smallest:
        lines.append("key = i64(~key)")
    mask = (1 << bits) - 1
    return Snippet(("start", "at"), tuple(lines), f"u64(u64(key) & u64({mask}))"), digits


_EMITTERS: Mapping[str, Callable[[Launch], list[KernelLaunch]]] = {
    "cuda.last_update": _last_update,
    "cuda.scatter": _combine,
    "cuda.topk": _topk,
}
