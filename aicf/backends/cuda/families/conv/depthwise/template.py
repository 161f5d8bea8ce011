# pyright: basic, reportUndefinedVariable=false
"""The kernel of depthwise convolutions. The snippets and constants come from `codegen.py`.

A *line* is what a window has along one dimension; the two others are called deep and other.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def segment(deep_tap, other_tap, first_tap, shape):
    """Adds the products of a part of a line, from `first_tap` on, to all sums of the thread. All loads come first, so
    that they are under way together; an element that several windows have is loaded once.

    `shape` has the number of `taps`, the `places` that windows of the thread find, from the start of the first one, and
    for each place and each result the tap that is there, -1 for none, in `uses`.
    """
    deep_at, deep_in = splice(DEEP, deep, i32(deep_tap * DEEP_STEP))
    other_at, other_in = splice(OTHER, other, i32(other_tap * OTHER_STEP))
    plane_at = i64(plane + deep_at + other_at)
    weight_at = splice(WEIGHT, output, deep_tap, other_tap, first_tap)
    for t in unrolled(shape["taps"]):
        splice(LOAD_WEIGHT, t, i64(weight_at + t * WEIGHT_STEP))
    for k in unrolled(len(shape["places"])):
        line_at, line_in = splice(LINE, first, i32(first_tap * LINE_STEP + shape["places"][k]))
        splice(LOAD, k, i64(plane_at + line_at))
        if TESTED:
            inside = splice(INSIDE, deep_in, other_in, line_in)
            for i in unrolled(WORDS):
                words[k * WORDS + i] = cuda.selp(inside, words[k * WORDS + i], nothing)
    for k in unrolled(len(shape["places"])):
        splice(UNPACK, k)
        for p in unrolled(PIXELS):
            if shape["uses"][k][p] >= 0:
                for v in unrolled(VECTOR):
                    sums[p * VECTOR + v] = cuda.fma(
                        values[v * INPUTS // VECTOR],
                        factors[shape["uses"][k][p] * VECTOR + v],
                        sums[p * VECTOR + v],
                    )


def whole_line(deep_tap, other_tap):
    """All segments of a line."""
    if SEGMENTS == 1:
        splice(SEGMENT, deep_tap, other_tap, 0, EACH)
    else:
        for number in range(SEGMENTS):
            splice(SEGMENT, deep_tap, other_tap, i32(number * EACH["taps"]), EACH)
    if REST["taps"] > 0:
        splice(SEGMENT, deep_tap, other_tap, SEGMENTS * EACH["taps"], REST)


def depthwise(operands: object):
    """A thread has VECTOR outputs of PIXELS neighbours along the dimension of lines. Short windows are written out,
    others are loops over lines.

    Constants: GROUPS (threads), VECTOR, PIXELS, INPUTS (channels of the operand), WORDS (registers of these), TESTED,
    DEEPS, OTHERS, SEGMENTS, EACH, REST (see `segment`), UNROLLED, GUARDED (whether another thread may have the first
    results, too), HELD. Snippets: NUMBER, PLACE, ALONG, PLANE, NOTHING, DEEP, OTHER, LINE, INSIDE, WEIGHT, LOAD_WEIGHT,
    LOAD, UNPACK, FETCH, FINISH.
    """
    number = splice(NUMBER, i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if number < GROUPS:
        image, output, deep, row, column, own = splice(PLACE, number)
        other, first = splice(ALONG, row, column)
        plane = splice(PLANE, image, output)
        nothing = splice(NOTHING)
        sums = registers(PIXELS * VECTOR, f32(0))
        factors = registers(EACH["taps"] * VECTOR, f32(0))
        words = registers(len(EACH["places"]) * WORDS, nothing)
        values = registers(INPUTS, f32(0))
        if UNROLLED:
            for i in unrolled(DEEPS):
                for j in unrolled(OTHERS):
                    splice(WHOLE_LINE, i, j)
        else:
            for deep_tap in range(DEEPS):
                for other_tap in range(OTHERS):
                    splice(WHOLE_LINE, i32(deep_tap), i32(other_tap))
        held = registers(HELD, f32(0))
        splice(FETCH, image, output, deep, row, column)
        for p in unrolled(PIXELS):
            if GUARDED:
                if first + p >= own:
                    splice(FINISH, p, image, output, deep, row, column)
            else:
                splice(FINISH, p, image, output, deep, row, column)


PARTS: dict[str, Snippet] = {"SEGMENT": part(segment), "WHOLE_LINE": part(whole_line)}
"""By the names that the template splices."""
