"""Predicted times of row programs: what a row of few elements takes beside one of many.

The measured cycles are data: minima of many runs of `cpu.generated` on one core with AVX2, per row of 2048, at the
clock that predictions assume. A prediction is held to them, never a run of this test.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.compilation.record import Options
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import target_of
from aicf.passes.support.policy import policy_of
from aicf.tuning.candidates import candidates, grouped

ROWS = 2048
OFF_BY = 1.6


def _layer_norm(g: Graph, x: Value) -> Value:
    (size,) = x.shape[-1:]
    return g.layer_norm(x, g.param("w", (size,)), g.param("b", (size,)))


def _root_mean_square(g: Graph, x: Value) -> Value:
    mean = g.reduce_sum(x * x, [1], keepdims=True) * (1.0 / int(x.shape[-1]))
    return x * g.rsqrt(mean + 1e-5)


PROGRAMS: dict[str, Callable[[Graph, Value], Value]] = {
    "softmax": lambda g, x: g.softmax(x),
    "layer_norm": _layer_norm,
    "root_mean_square": _root_mean_square,
    "sum": lambda g, x: g.reduce_sum(x, [1]),
    "largest": lambda g, x: g.reduce_max(x, [1]),
    "log_sum_exp": lambda g, x: g.log(g.reduce_sum(g.exp(x), [1])),
}

MEASURED: dict[str, dict[int, float]] = {
    "softmax": {
        6: 47.4,
        8: 32.8,
        9: 63.0,
        16: 53.3,
        17: 81.1,
        24: 82.4,
        31: 131.3,
        32: 123.7,
        64: 180.1,
        100: 296.4,
    },
    "layer_norm": {
        6: 41.9,
        8: 18.9,
        9: 31.2,
        16: 27.2,
        17: 43.4,
        24: 41.0,
        31: 69.4,
        32: 42.9,
        64: 68.6,
        100: 140.7,
    },
    "sum": {6: 5.9, 8: 5.3, 9: 5.5, 16: 5.4, 17: 6.6, 24: 6.4, 31: 9.0, 32: 7.9, 64: 15.7, 100: 23.6},
    "largest": {6: 5.5, 8: 4.3, 9: 5.9, 16: 5.8, 17: 7.6, 24: 7.5, 31: 9.2, 32: 9.3, 64: 15.1, 100: 22.2},
    "root_mean_square": {
        6: 21.9,
        8: 8.9,
        9: 13.4,
        16: 12.6,
        17: 16.7,
        24: 15.2,
        31: 31.1,
        32: 17.7,
        64: 30.9,
        100: 66.5,
    },
    "log_sum_exp": {
        6: 56.0,
        8: 52.6,
        9: 86.2,
        16: 75.8,
        17: 91.3,
        24: 89.1,
        31: 102.6,
        32: 99.2,
        64: 175.3,
        100: 247.9,
    },
}


def predicted(kind: str, size: int, target: str = "cpu:x86-64-v3") -> float:
    """Cycles of a row."""
    graph = Graph(kind)
    graph.output(PROGRAMS[kind](graph, graph.input("x", (ROWS, size))), "y")
    module = grouped(graph, Options(target, "", "", 1), make_context(), lambda _: None)
    (found,) = (each for each in candidates(module, 1) if each.kernel.id == "cpu.generated")
    return found.us(target_of(module), policy_of(module)) * NOMINAL_GHZ * 1000 / ROWS


@pytest.mark.parametrize("kind", MEASURED)
def test_predictions_are_near_what_was_measured(kind: str) -> None:
    off = {size: cycles / predicted(kind, size) for size, cycles in MEASURED[kind].items()}
    assert all(1 / OFF_BY <= each <= OFF_BY for each in off.values()), off


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_a_part_of_a_vector_takes_as_long_as_a_whole_one(target: str) -> None:
    """A row of 17 has one element past whole vectors: it costs what a vector more does, not a part of it."""
    lanes = 8 if target.endswith("v3") else 16
    for vectors in (1, 2):
        full, more, next_full = (
            predicted("softmax", size, target)
            for size in (vectors * lanes, vectors * lanes + 1, (vectors + 1) * lanes)
        )
        assert more > full + 0.9 * (next_full - full)
