"""Every op on the GPU in drawn shapes: against its meaning, and against float64 NumPy that knows none of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.gpu.harness import POISONS, assert_right, bits, expected, instance, poison, results
from tests.gpu.programs import Array
from tests.gpu.random_ops import ELEMENTWISE, RANDOM_OPS
from tests.support.elementwise_ops import assert_same

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", RANDOM_OPS)
def test_same_answer(name: str) -> None:
    """Whatever memory held before; instruction by instruction the same bits."""
    graph_exec = instance(name)
    for value in POISONS:
        poison(graph_exec, value)
        graph_exec.replay()
        found = results(graph_exec)
        if RANDOM_OPS[name].family == ELEMENTWISE:
            assert_elementwise(name, found)
        else:
            assert_right(name, found)
            assert_as_numpy(name, found)
    whole = bits(graph_exec)
    poison(graph_exec, POISONS[0])
    graph_exec.check()
    assert bits(graph_exec) == whole


def assert_elementwise(name: str, found: Mapping[str, Array]) -> None:
    """To a few units of the last place of float64; NaN, infinities, integers and truth values exactly."""
    for op, wanted in expected(name).items():
        assert_same(op, np.asarray(found[op]), wanted, RANDOM_OPS[name].dtype)


def assert_as_numpy(name: str, found: Mapping[str, Array]) -> None:
    """What the row of each op says."""
    for number, use in enumerate(RANDOM_OPS[name].uses()):
        use.check(found[f"y{number}"])
