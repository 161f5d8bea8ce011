"""Launches of the kernel that writes rows into a state: templates with their snippets."""

from __future__ import annotations

from math import prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import Whole, read_integer, read_list
from aicf.backends.cuda.codegen.scalar import address_text, load_text, store_text
from aicf.backends.cuda.compiler.launches import KernelLaunch, lie_alike
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.kernel import read_shapes
from aicf.backends.cuda.families.scatter.codegen import launched, target_text
from aicf.backends.cuda.families.write_row import template


def emit(launch: Launch) -> list[KernelLaunch]:
    """A copy of the old state where the result lies elsewhere, then the rows."""
    numbers = (int(number) for number in read_list(launch.record, "operands", [Whole(0)] * 3))
    (rows, index, old), (result,) = (launch.ins[number] for number in numbers), launch.outs
    copy, write = read_shapes(launch.record)
    launches: list[KernelLaunch] = []
    if not lie_alike(old, result):
        constants = {"COUNT": prod(old.shape), "MOVE": _copied(old, result)}
        launches.append(launched(launch, copy, template.copy, {"old": old, "result": result}, constants))
    axis = read_integer(launch.record, "axis")
    constants = {
        "COUNT": prod(rows.shape),
        "AT": _named(rows, index, result.shape[axis], axis),
        "MOVE": _written(rows, result, axis),
    }
    operands = {"rows": rows, "index": index, "result": result}
    return [*launches, launched(launch, write, template.write, operands, constants)]


def _copied(old: BufferRef, result: BufferRef) -> Snippet:
    """Parameter flat: moves an element of the state."""
    source, target = (
        address_text(name, f"({target_text('flat', ref.shape, ref.strides)})", ref.dtype)
        for name, ref in (("old", old), ("result", result))
    )
    return Snippet(("flat",), (store_text(result.dtype, target, load_text(old.dtype, source)),))


def _named(rows: BufferRef, index: BufferRef, size: int, axis: int) -> Snippet:
    """Parameter flat: where along the axis an element of the rows goes (i64), -1 if nowhere."""
    within = prod(rows.shape[len(index.shape) :])
    element = target_text(f"(flat // {within})", index.shape, index.strides)
    loaded = load_text(index.dtype, address_text("index", f"({element})", index.dtype))
    steps = [int(dim == axis) for dim in range(len(rows.shape))]
    lines = (
        f"at = i64(i64({loaded}) + {target_text('flat', rows.shape, steps)})",
        f"at = cuda.selp(at < i64(0), i64(at + i64({size})), at)",
        f"place = cuda.selp((at >= i64(0)) & (at < i64({size})), at, i64(-1))",
    )
    return Snippet(("flat",), lines, "place")


def _written(rows: BufferRef, result: BufferRef, axis: int) -> Snippet:
    """Parameters flat, at: moves an element of the rows."""
    steps = [0 if dim == axis else step for dim, step in enumerate(result.strides)]
    element = f"({target_text('flat', rows.shape, steps)} + at * {result.strides[axis]})"
    source = address_text("rows", f"({target_text('flat', rows.shape, rows.strides)})", rows.dtype)
    target = address_text("result", element, result.dtype)
    return Snippet(("flat", "at"), (store_text(result.dtype, target, load_text(rows.dtype, source)),))
