"""The threads that a target states are bounded: what a program is split for is decided thread by thread."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.backends import registry
from aicf.dialects import emit_types
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph


def _program() -> str:
    graph = Graph("g")
    graph.output(graph.relu(graph.input("x", (4,))), "y")
    return aicf.compile(graph, target="cpu", threads=2).ir("emit")


def test_the_bound_is_that_of_the_option():
    assert emit_types.MAX_THREADS == registry.MAX_THREADS


@pytest.mark.parametrize("stated", ["0 : i64", "-3 : i64", "2147483648 : i64", '"x"', "2 : i32"])
def test_a_number_of_threads_that_nothing_has_is_refused(stated: str):
    text = _program()
    assert "{threads = 2 : i64" in text
    with pytest.raises(InvalidIR, match="'threads' is an i64 from 1 to 1024, got") as caught:
        aicf.compile(text.replace("{threads = 2 : i64", f"{{threads = {stated}", 1))
    assert "\n" not in str(caught.value)


def test_a_target_without_threads_has_one():
    text = _program().replace("{threads = 2 : i64", "{unknown = 2 : i64", 1)
    exe = aicf.compile(text)
    assert np.array_equal(exe.run({"x": np.array([-1, 0, 1, 2], np.float32)})["y"], [0, 0, 1, 2])
