"""Weights that are made when they are first read: once, in the type that a program has, and checked then."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.errors import InputMismatch
from aicf.runtime.deferred_weights import DeferredWeights, chosen, in_memory, joined
from aicf.runtime.weights import bind_weights

RNG = np.random.default_rng(211)


def test_programs_get_what_they_read_in_their_type() -> None:
    graph = aicf.Graph("two")
    x = graph.input("x", (3,))
    graph.output(graph.mul(graph.add(x, graph.param("a", (3,))), graph.param("b", (3,))), "y")
    arrays = {name: RNG.standard_normal(3).astype(np.float32) for name in "ab"}
    plan = aicf.compile(graph, arrays, "reference").plan
    asked: list[tuple[str, str | None]] = []

    def make(name: str, dtype: str | None) -> np.ndarray:
        asked.append((name, dtype))
        return arrays[name] if name == "a" else np.zeros(4, np.float32)

    source = DeferredWeights(["a", "b", "unused"], make)
    bound = bind_weights(plan.weights, chosen(source, [bind.name for bind in plan.weights]))
    together = joined(bound, {"packed": np.ones(2, np.uint8)})
    assert not asked and not in_memory(together) and list(together) == ["a", "b", "packed"]
    for _ in range(2):
        np.testing.assert_array_equal(together["a"], arrays["a"])
    assert asked == [("a", "f32")] and in_memory(bound).keys() == in_memory(source).keys() == {"a"}
    with pytest.raises(InputMismatch, match=r"weight 'b': expected f32\[3\], got f32\[4\]"):
        together["b"]
    with pytest.raises(InputMismatch, match="missing weight b"):
        bind_weights(plan.weights, chosen(source, ["a"]))
