"""Steps from lane to lane and multiples of first lanes: which loads are one wide access, which words one counter's."""

from __future__ import annotations

import pytest

from aicf.backends.common.lanes import LaneSteps
from aicf.backends.common.loop_nest import load_ops, nest_of
from aicf.dialects.emit_kernels import PhiloxOp
from tests.backends.cpu.kernels_text import parse_kernel

KERNEL = """emit.kernel @k parallel [6, 64] reduce []
    ins [indexed, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]
    outs [affine_map<(d0, d1) -> (d0, d1)>] {{
^bb0(%t : memref<9x80xf32>, %row : i32, %each : i32):
  emit.phase {{
    %i = emit.index 0 : i32
    %j = emit.index 1 : i32
    %eight = arith.constant 8 : i32
    %three = arith.constant 3 : i32
    %size = arith.constant 64 : i32
    %zero = arith.constant 0.0 : f32
    %a = arith.addi %j, %eight : i32
    %b = arith.subi %j, %three : i32
    %c = arith.subi %size, %j : i32
    %even = arith.cmpi ult, %a, %size : i32
    %odd = arith.cmpi ult, %b, %size : i32
    %v = emit.load %t[{load} : memref<9x80xf32>, i32
    emit.store %v, 0 : f32
    emit.yield }}
}}"""


@pytest.mark.parametrize(
    ("load", "step", "multiple", "even"),
    [
        ("%row, %j]", 1, 4, True),
        ("%row, %a]", 1, 4, True),
        ("%row, %b]", 1, 1, True),
        ("%i, %c]", -1, 4, True),
        ("%j, %i]", 80, 1, True),
        ("%row, %eight]", 0, 8, True),
        ("%row, %each]", None, 1, True),
        ("%row, %a] if %even else %zero", 1, 4, True),
        ("%row, %a] if %odd else %zero", 1, 4, False),
    ],
)
def test_steps_of_loads(load: str, step: int | None, multiple: int, even: bool) -> None:
    """Vectors of four along the last dim, which count from multiples of four."""
    kernel = parse_kernel(KERNEL.format(load=load))
    nest = nest_of(kernel, [(80, 1), (1,), (64, 1), (64, 1)], ["f32", "i32", "i32", "f32"])
    (op,) = load_ops(kernel)
    steps = LaneSteps(nest, len(nest.dims) - 1, 4)
    assert steps.load_step(op) == step
    assert steps.load_multiple(op) % multiple == 0 and (multiple > 1 or steps.load_multiple(op) % 4)
    assert (op.condition is None or steps.step(op.condition) == 0) == even


WORDS = """emit.kernel @k parallel [6, 64] reduce []
    ins [affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]
    outs [affine_map<(d0, d1) -> (d0, d1)>] {{
^bb0(%one : i64, %row : i64, %each : i64):
  emit.phase {{
    %i = emit.index 0 : i64
    %j = emit.index 1 : i64
    %even = arith.constant 64 : i64
    %odd = arith.constant 63 : i64
    %start = arith.muli %i, {step} : i64
    %low = arith.constant {low} : i64
    %whole = arith.addi %start, {lane} : i64
    %number = arith.{change} %whole, %low : i64
    %w = emit.philox {key}, %one, %number
    emit.store %w, 0 : i32
    emit.yield }}
}}"""


ALL, NONE = ("addi", 0), None


@pytest.mark.parametrize(
    ("step", "lane", "key", "change", "words"),
    [
        ("%even", "%j", "%one", ALL, (0, 1, 2, 3)),
        ("%even", "%j", "%row", ALL, (0, 1, 2, 3, 4, 5, 6, 7)),
        ("%even", "%j", "%row", ("andi", -2), (0, 0, 2, 2, 4, 4, 6, 6)),
        ("%even", "%j", "%one", ("ori", 1), (1, 1, 3, 3)),
        ("%even", "%j", "%one", ("ori", 5), NONE),
        ("%even", "%j", "%one", ("andi", 6), NONE),
        ("%odd", "%j", "%one", ALL, NONE),
        ("%odd", "%j", "%one", ("andi", -2), NONE),
        ("%even", "%odd", "%one", ALL, NONE),
        ("%even", "%each", "%one", ALL, NONE),
        ("%even", "%j", "%each", ALL, NONE),
    ],
)
def test_neighbours_that_share_counters(
    step: str, lane: str, key: str, change: tuple[str, int], words: tuple[int, ...] | None
) -> None:
    """Random words of one seed whose numbers rise by one from a multiple of four, or by pairs."""
    kernel = parse_kernel(WORDS.format(step=step, lane=lane, key=key, change=change[0], low=change[1]))
    nest = nest_of(kernel, [(), (1,), (64, 1), (64, 1)], ["i64", "i64", "i64", "i32"])
    (op,) = (op for op in kernel.phases[0].body.block.ops if isinstance(op, PhiloxOp))
    lanes = 4 if words is None else len(words)
    assert LaneSteps(nest, len(nest.dims) - 1, lanes).counter_words(op, lanes) == words
    assert LaneSteps(nest, len(nest.dims) - 1, 2).counter_words(op, 2) is None


def test_coordinates_of_what_lies_in_another_order() -> None:
    """Neighbouring points are neighbours in memory: rows go by, and the last loop runs along the dim of step 1. What
    reads its own coordinates finds them where they are, and its loads are wide."""
    kernel = parse_kernel(KERNEL.format(load="%j, %i]"))
    nest = nest_of(kernel, [(1, 9), (1,), (1, 6), (1, 6)], ["f32", "i32", "i32", "f32"])
    assert [dim.size for dim in nest.dims] == [64, 6] and nest.coordinates == (1, 0)
    (op,) = load_ops(kernel)
    assert LaneSteps(nest, 1, 2).load_step(op) == 9 and LaneSteps(nest, 0).load_step(op) == 1
