"""A step whose linears of one operand are merged trains what the step with each by itself trains.

Parameters are f64 and linears compute in f32, so that there are casts, and rounding is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph, Value

Array = NDArray[Any]

TOKENS, WIDTH, HEAD = 6, 16, 8
APART: Mapping[str, Any] = {"fusion": {"horizontal": False}}
RANDOM = np.random.default_rng(11)
BATCH = tuple(RANDOM.normal(size=(2, TOKENS, WIDTH)).astype(np.float32) for _ in range(2))


class Block:
    """A graph whose linears compute in `compute`, with random values of its f64 parameters."""

    def __init__(self, compute: str = "f32") -> None:
        self.graph, self.compute = Graph("block"), compute
        self.weights: dict[str, Array] = {}
        self.x = self._cast(self.graph.input("x", (2, TOKENS, WIDTH)))

    def param(self, name: str, *shape: int) -> Value:
        self.weights[name] = np.random.default_rng(len(self.weights)).normal(size=shape) / np.sqrt(shape[-1])
        return self._cast(self.graph.param(name, shape, "f64"))

    def linear(self, name: str, size: int, x: Value | None = None, *, bias: bool = True) -> Value:
        x = self.x if x is None else x
        weight = self.param(f"{name}.weight", size, int(x.shape[-1]))
        return self.graph.linear(x, weight, self.param(f"{name}.bias", size) if bias else None, name=name)

    def finish(self, y: Value) -> Graph:
        self.graph.output(self.graph.cast(y, "f32"), "prediction")
        return self.graph

    def _cast(self, value: Value) -> Value:
        return value if value.dtype == self.compute else self.graph.cast(value, self.compute)


def attention(compute: str = "f32", *, groups: int = 2) -> tuple[Graph, dict[str, Array]]:
    """Two heads of queries, of which `groups` have keys and values of their own, between two other linears."""
    block = Block(compute)
    graph = block.graph
    x = block.linear("first", WIDTH)

    def heads(name: str, count: int) -> Value:
        parts = graph.reshape(block.linear(name, count * HEAD, x), (2, TOKENS, count, HEAD))
        return graph.transpose(parts, (0, 2, 1, 3))

    q, k, v = heads("q", 2), heads("k", groups), heads("v", groups)
    mixed = graph.transpose(graph.attention(q, k, v, causal=True), (0, 2, 1, 3))
    out = block.linear("out", WIDTH, graph.reshape(mixed, (2, TOKENS, WIDTH)))
    return block.finish(graph.add(out, x)), block.weights


def step_of(graph: Graph, weights: Mapping[str, Array], **options: Any) -> aicf.TrainStep:
    return aicf.train_step(graph, "mse", aicf.optimizers.SGD(0.3), weights=dict(weights), **options)


def trained(
    graph: Graph, weights: Mapping[str, Array], steps: int = 4, **options: Any
) -> tuple[dict[str, Array], list[str]]:
    """The weights after some steps on the CPU, and the linears that others were merged to."""
    step = step_of(graph, weights, **options)
    for _ in range(steps):
        step(*BATCH)
    return step.weights(), merged(step)


def merged(step: aicf.TrainStep) -> list[str]:
    made = [each for each in step.executable.decisions if each.made_by == "merge-linears"]
    return [each.subjects[0] for each in made if each.choice.startswith("one linear")]


def check_same(graph: Graph, weights: Mapping[str, Array], together: list[str], **options: Any) -> None:
    """Holds what is trained to the step in which no linears are merged."""
    found, names = trained(graph, weights, **options)
    apart, none = trained(graph, weights, policy=APART, **options)
    assert (names, none) == (together, [])
    for name, array in apart.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@cache
def trained_attention(groups: int = 2) -> dict[str, Array]:
    """The weights of attention after training, which several tests compare with."""
    return trained(*attention(groups=groups))[0]


@pytest.mark.parametrize("groups", [2, 1])
def test_attention_trains_as_in_f64(groups: int) -> None:
    check_same(*attention(groups=groups), ["q.merged"])
    found = trained_attention(groups)
    exact, none = trained(*attention("f64", groups=groups))
    assert none == []
    for name, array in exact.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_one_step_is_what_the_formulas_say() -> None:
    """Of y = a * b + c: da = dy * b, db = dy * a and dc = dy, in NumPy's f64."""
    block = Block()
    a, b, c = (block.linear(name, WIDTH) for name in "abc")
    graph, weights = block.finish(block.graph.add(block.graph.mul(a, b), c)), block.weights
    x, target = (array.astype(np.float64).reshape(-1, WIDTH) for array in BATCH)
    va, vb, vc = (x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"] for name in "abc")
    dy = 2 * (va * vb + vc - target) / target.size
    found, together = trained(graph, weights, steps=1)
    assert together == ["a.merged"]
    for name, grad in {"a": dy * vb, "b": dy * va, "c": dy}.items():
        weight, bias = (weights[f"{name}.{which}"] for which in ("weight", "bias"))
        np.testing.assert_allclose(found[f"{name}.weight"], weight - 0.3 * grad.T @ x, atol=1e-6)
        np.testing.assert_allclose(found[f"{name}.bias"], bias - 0.3 * grad.sum(0), atol=1e-6)


def test_parts_of_a_batch_share_what_lies_side_by_side() -> None:
    graph, weights = attention()
    batch = tuple(np.concatenate([array, 0.5 * array]) for array in BATCH)
    steps = [step_of(graph, weights, micro_batches=2, **options) for options in ({}, {"policy": APART})]
    for step in steps:
        step(*batch)
    assert merged(steps[0]) == ["q.merged@batch0", "q.merged@batch1"]
    found, apart = (step.weights() for step in steps)
    for name, array in apart.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("saved", [["q.weights.save"], [f"transpose{number}.save" for number in range(3)]])
def test_what_lies_side_by_side_may_be_computed_again(saved: list[str]) -> None:
    """The casts of all weights, or what attention reads of the one result."""
    graph, weights = attention()
    again, _ = trained(graph, weights, policy={"saves": dict.fromkeys(saved, "recompute")})
    for name, array in trained_attention().items():
        np.testing.assert_allclose(again[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_frozen_weights_stay_apart() -> None:
    graph, weights = attention()
    check_same(graph, weights, ["q.merged"], frozen=["k.weight"])
    check_same(graph, weights, [], frozen=["k.weight", "v.weight"])
    found, _ = trained(graph, weights, frozen=["k.*", "q.bias"])
    np.testing.assert_array_equal(found["k.weight"], weights["k.weight"])
    np.testing.assert_array_equal(found["q.bias"], weights["q.bias"])


def test_a_frozen_bias_is_no_obstacle() -> None:
    graph, weights = attention()
    check_same(graph, weights, ["q.merged"], frozen=["k.bias"])


def test_layers_that_share_weights() -> None:
    block = Block()
    graph, x = block.graph, block.x
    weights = [block.param(f"{name}.weight", WIDTH, WIDTH) for name in "ab"]
    for layer in range(2):
        a, b = (
            graph.linear(x, weight, name=f"{name}{layer}") for name, weight in zip("ab", weights, strict=True)
        )
        x = graph.add(graph.tanh(a), b)
    check_same(block.finish(x), block.weights, ["a0.merged", "a1.merged"])


def test_one_weight_for_two_linears() -> None:
    block = Block()
    graph, weight = block.graph, block.param("tied.weight", WIDTH, WIDTH)
    a, b = (graph.linear(block.x, weight, block.param(f"{name}.bias", WIDTH), name=name) for name in "ab")
    check_same(block.finish(graph.mul(a, b)), block.weights, ["a.merged"])


def test_linears_without_a_bias() -> None:
    block = Block()
    gate, up = (block.linear(name, WIDTH, bias=False) for name in ("gate", "up"))
    graph = block.finish(block.graph.mul(block.graph.silu(gate), up))
    check_same(graph, block.weights, ["gate.merged"])


def test_a_weight_that_gets_nothing_back_is_an_error_as_before() -> None:
    block = Block()
    used, factor = (block.linear(name, WIDTH) for name in ("used", "factor"))
    graph = block.finish(block.graph.mul(used, block.graph.detach(factor)))
    with pytest.raises(InvalidIR, match="'factor.weight' .*passes nothing back"):
        step_of(graph, block.weights)
    check_same(graph, block.weights, [], frozen=["factor.*"])


def test_a_model_without_gradients_is_as_it_was() -> None:
    graph, weights = attention()
    made = {each.made_by for each in aicf.compile(graph, weights).decisions}
    assert "merge-linears" not in made
