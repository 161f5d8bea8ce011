"""Launches of a scatter that sorts: the templates of `template.py` with their snippets."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import Access
from aicf.backends.common.record import read_integer, read_text
from aicf.backends.cuda.codegen.scalar import combine_text
from aicf.backends.cuda.codegen.vector_access import VectorAccess
from aicf.backends.cuda.compiler.launches import KernelLaunch, lie_alike
from aicf.backends.cuda.compiler.specializer import Snippet, constants_of
from aicf.backends.cuda.families.loops.cells import packed
from aicf.backends.cuda.families.loops.kernel import read_shapes
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.families.scatter import template as unsorted
from aicf.backends.cuda.families.scatter.codegen import Constants, launched, named_row, two_entries
from aicf.backends.cuda.families.scatter.sorted import template as scatters
from aicf.backends.cuda.families.scatter.sorted.schedule import CODEC, DIGIT_BITS, THREADS, SortSpec

_ROW_BITS = 32
"""Where the row of an entry begins."""
_WARP = 32


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction."""
    operand, indices, updates = launch.ins
    (result,), (w,) = launch.outs, launch.ws
    spec = _spec(launch)
    clear, *sorting, last = read_shapes(launch.record)
    rows: Constants = {"ROWS": spec.rows, "ROW_ADDRESS": _FIRST_ADDRESS}
    launches = [launched(launch, clear, unsorted.clear, {"w": w}, rows)]
    for number in range(spec.passes):
        launches += _sorting(launch, spec, number, sorting[2 * number : 2 * number + 2])
    operands = {"operand": operand, "indices": indices, "updates": updates, "result": result, "w": w}
    return [*launches, launched(launch, last, scatters.combine, operands, _combine_constants(launch, spec))]


def _sorting(launch: Launch, spec: SortSpec, number: int, shapes: Sequence[Shape]) -> list[KernelLaunch]:
    """One pass over the entries: the first makes them of the indices."""
    indices, (w,) = launch.ins[1], launch.ws
    operands = {"w": w} if number else {"indices": indices, "w": w}
    counted: Constants = {
        **constants_of(spec),
        "SPAN": spec.span,
        "SHIFT": _ROW_BITS + number * DIGIT_BITS,
        "COUNTS_AT": spec.counts_at,
        "ENTRY": _entry(spec.entries_at(number)) if number else _named_entry(indices, spec.rows),
    }
    placed: Constants = {
        **counted,
        "WARPS": THREADS // _WARP,
        "TARGET_AT": spec.entries_at(number + 1),
        "LAST": number == spec.passes - 1,
        "FIRST_ADDRESS": _FIRST_ADDRESS,
    }
    count, place = shapes
    return [
        launched(launch, count, scatters.count, operands, counted),
        launched(launch, place, scatters.place, operands, placed),
    ]


def _spec(launch: Launch) -> SortSpec:
    """The decisions of a record about these operands."""
    operand, indices, _ = launch.ins
    rows, columns, count = operand.shape[0], prod(operand.shape[1:]), indices.shape[0]
    return CODEC.read(launch.record, rows=rows, columns=columns, count=count)


# Entries

_FIRST_ADDRESS = Snippet(("row",), (), "w + u64(i64(row) * 4)")
"""Parameter row: address of the number of the entry that its list begins at."""


def _named_entry(indices: BufferRef, rows: int) -> Snippet:
    """Parameter number: the entry of an index. One that names no row is spread over the rows, its number below zero."""
    row = named_row(indices, "indices", rows)
    lines = (
        *row.body,
        f"inside = {row.result} >= i64(0)",
        f"key = cuda.selp(inside, i64({row.result}), i64(number % {rows}))",
        "signed = cuda.selp(inside, i32(number), i32(-1 - number))",
    )
    return Snippet(row.params, lines, f"u64(u64(u64(key) << u64({_ROW_BITS})) | u64(u32(signed)))")


def _entry(start: int) -> Snippet:
    """Parameter number: an entry that an earlier pass has placed."""
    return Snippet(("number",), (), f"load_u64(w + u64({start}) + u64(i64(number) * 8))")


# Rows


def _combine_constants(launch: Launch, spec: SortSpec) -> Constants:
    operand, _, updates = launch.ins
    (result,) = launch.outs
    at, words = ("row", "column"), [f"words[{i}]" for i in range(_vector(operand, spec).words)]
    in_place = lie_alike(operand, result)
    return {
        **constants_of(spec),
        "VECTORS": spec.columns // spec.vector,
        "LOOKS": read_integer(launch.record, "looks"),
        "WORDS": len(words),
        "IN_PLACE": in_place,
        "ENTRIES_AT": spec.entries_at(spec.passes),
        "FIRST_ADDRESS": _FIRST_ADDRESS,
        "LOAD_OPERAND": Snippet(at, (), _loaded(operand, "operand", spec)),
        "UNPACK_OPERAND": _unpacked(operand, spec, words),
        "LOAD_UPDATE": Snippet(at, (), _loaded(updates, "updates", spec)),
        "COMBINED": _combined(read_text(launch.record, "mode"), updates, spec, words),
        "STORE": _stored(result, spec),
    }


def _vector(ref: BufferRef, spec: SortSpec) -> VectorAccess:
    return VectorAccess(Access(ref.dtype, 0, ref.strides), spec.vector, 1, spec.vector)


def _loaded(ref: BufferRef, base: str, spec: SortSpec) -> str:
    """The words of a vector as a tuple; a piece of several gives one."""
    (piece,) = _vector(ref, spec).load(base, two_entries(ref))
    return packed([piece]) if _vector(ref, spec).words == 1 else piece


def _unpacked(ref: BufferRef, spec: SortSpec, words: Sequence[str]) -> Snippet:
    """Parameter words: the elements of a vector."""
    lines: list[str] = []
    values = _vector(ref, spec).unpack(words, lines, "v")
    return Snippet(("words",), tuple(lines), packed(values))


def _combined(mode: str, ref: BufferRef, spec: SortSpec, words: Sequence[str]) -> Snippet:
    """Parameters sums, words: both, element by element."""
    lines: list[str] = []
    values = _vector(ref, spec).unpack(words, lines, "v")
    both = [combine_text(mode, ref.dtype, f"sums[{i}]", value) for i, value in enumerate(values)]
    return Snippet(("sums", "words"), tuple(lines), packed(both))


def _stored(ref: BufferRef, spec: SortSpec) -> Snippet:
    """Parameters row, column, sums."""
    values = [f"sums[{i}]" for i in range(spec.vector)]
    return Snippet(
        ("row", "column", "sums"), tuple(_vector(ref, spec).store("result", two_entries(ref), values))
    )
