"""The launch of the kernel that keeps the best of boxes that overlap: its template with its snippets."""

from __future__ import annotations

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.codegen.scalar import address_text, load_text, store_text
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.kernel import read_shapes
from aicf.backends.cuda.families.nms import template as detection
from aicf.backends.cuda.families.nms.kernel import list_bytes
from aicf.backends.cuda.families.scatter.codegen import Constants, launched


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    boxes, scores, overlap, *floor = launch.ins
    (result,), (w,) = launch.outs, launch.ws
    (shape,) = read_shapes(launch.record)
    threads = shape.block[0]
    dtype, classes = scores.dtype, scores.shape[1]
    constants: Constants = {
        "BOXES": scores.shape[2],
        "KEPT": result.shape[2],
        "LEVELS": threads.bit_length() - 1,
        "LIST_BYTES": list_bytes(scores.shape[2]),
        "HIGHEST": Snippet((), (), f"cuda.shared.array({threads}, {dtype})"),
        "ZERO": Snippet((), (), f"{dtype}(0.0)"),
        "SCORE": Snippet(
            ("number", "box"), (), load_text(dtype, _of_class("scores", scores, classes, "box"))
        ),
        "ALLOWED": _allowed(floor[0] if floor else None),
        "BOX": _box(boxes, classes, bool(read_integer(launch.record, "centred"))),
        "TOO_MUCH": _too_much(overlap),
        "STORE": Snippet(
            ("number", "place", "box"),
            (store_text("i64", _of_class("result", result, classes, "place"), "box"),),
        ),
    }
    operands = {"boxes": boxes, "scores": scores, "overlap": overlap}
    operands |= {"floor": floor[0]} if floor else {}
    return [launched(launch, shape, detection.suppress, {**operands, "result": result, "w": w}, constants)]


def _of_class(base: str, ref: BufferRef, classes: int, index: str) -> str:
    """The address of an element of class `number`, counted over all samples."""
    sample, category, step = ref.strides
    element = f"(i64(number // {classes}) * {sample} + i64(number % {classes}) * {category} + i64({index}) * {step})"
    return address_text(base, element, ref.dtype)


def _allowed(floor: BufferRef | None) -> Snippet:
    """Parameter score: whether its box may be kept. NaN compares as false."""
    if floor is None:
        return Snippet(("score",), (), "score == score")
    return Snippet(("score",), (), f"score > {_number('floor', floor)}")


def _number(base: str, ref: BufferRef) -> str:
    """The one element of an operand."""
    return load_text(ref.dtype, address_text(base, "i64(0)", ref.dtype))


def _box(boxes: BufferRef, classes: int, centred: bool) -> Snippet:
    """Parameters number, box: low and high along two dimensions, and the area."""
    sample, row, step = boxes.strides
    dtype = boxes.dtype
    lines = [f"first = i64(number // {classes}) * {sample} + i64(box) * {row}"]
    lines += [
        f"n{index} = {load_text(dtype, address_text('boxes', f'(first + {index * step})', dtype))}"
        for index in range(4)
    ]
    for dim in range(2):
        start, end = f"n{dim}", f"n{dim + 2}"
        if centred:
            lines += [
                f"half{dim} = {_rounded('mul', dtype, end, f'{dtype}(0.5)')}",
                f"low{dim} = {start} - half{dim}",
                f"high{dim} = {start} + half{dim}",
            ]
        else:
            lines += [
                f"low{dim} = cuda.selp({start} < {end}, {start}, {end})",
                f"high{dim} = cuda.selp({start} < {end}, {end}, {start})",
            ]
    area = _rounded("mul", dtype, "high0 - low0", "high1 - low1")
    return Snippet(("number", "box"), tuple(lines), f"(low0, high0, low1, high1, {area})")


def _too_much(overlap: BufferRef) -> Snippet:
    """Parameters start0, end0, start1, end1, a, b: whether two boxes of areas a and b, which share what lies between,
    share more than is allowed."""
    dtype = overlap.dtype
    lines = (
        f"shared = {_rounded('mul', dtype, 'end0 - start0', 'end1 - start1')}",
        "both = a + b - shared",
        f"part = {_rounded('div', dtype, 'shared', 'both')}",
    )
    result = f"(end0 > start0) & (end1 > start1) & (part > {_number('overlap', overlap)})"
    return Snippet(("start0", "end0", "start1", "end1", "a", "b"), lines, result)


def _rounded(what: str, dtype: str, first: str, second: str) -> str:
    """A product or a quotient rounded by itself: fused with a sum, an overlap could be another than on a CPU."""
    return f"cuda.libdevice.{'d' if dtype == 'f64' else 'f'}{what}_rn({first}, {second})"
