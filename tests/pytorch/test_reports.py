"""Reports on a model or a function, and the names that its programs have for parameters and modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aicf
import aicf.pytorch
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = pytest.mark.peers


class Layers(nn.Module):
    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((2,), 2.0))
        self.breaks = breaks

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.enc(x)
        if self.breaks:
            torch._dynamo.graph_break()
        return self.head(hidden) * self.scale


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def broken(x: Tensor) -> Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def branching(x: Tensor) -> Tensor:
    y = x * 2
    return y + 1 if y.sum() > 0 else y - 1


def test_breaks_are_those_of_the_model() -> None:
    one, other, x = Layers(breaks=True), Layers(), random(3, 8, dtype=torch.float32)
    with torch.no_grad():
        for model in (one, other):
            assert_same(compiled(model, fullgraph=False)(x), model(x), 1e-5)
    reason = "Call to `torch._dynamo.graph_break()`"
    assert aicf.pytorch.report(one).breaks == {reason: 1} == aicf.pytorch.report().breaks
    assert not aicf.pytorch.report(other).breaks and "break" not in str(aicf.pytorch.report(other))
    assert len(aicf.pytorch.report(one).graphs) == 2 and len(aicf.pytorch.report(other).graphs) == 1


def test_breaks_without_a_graph_are_those_of_the_process() -> None:
    def nothing(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x

    model, x = Layers(), random(3, 8, dtype=torch.float32)
    compiled(nothing, fullgraph=False)(x)
    compiled(model)(x)
    report = aicf.pytorch.report(model)
    assert not report.breaks and list(report.other_breaks.values()) == [1]
    assert "graph break in this process, of this model or another (1): Call to" in str(report)


@pytest.mark.parametrize(
    ("function", "reason"),
    [(broken, "Call to `torch._dynamo.graph_break()`"), (branching, "Data-dependent branching")],
)
def test_a_function(function: Any, reason: str) -> None:
    ours, x = compiled(function, fullgraph=False), torch.ones(3)
    assert_same(ours(x), function(x))
    compiled(lambda x: x * 3)(x)
    for each in (ours, function):
        report = aicf.pytorch.report(each)
        assert len(report.graphs) == 2 and report.breaks == {reason: 1} and not report.other_breaks
    assert len(aicf.pytorch.report().graphs) == 3


def test_a_method_and_a_module_without_parameters() -> None:
    model, plain, x = Layers(), Doubled(), random(3, 8, dtype=torch.float32)
    assert_same(compiled(model.forward)(x), model(x), 1e-5)
    assert len(aicf.pytorch.report(model.forward).graphs) == 1
    assert len(aicf.pytorch.report(compiled(model.forward)).graphs) == 1
    assert_same(compiled(plain)(x), plain(x))
    assert len(aicf.pytorch.report(plain).graphs) == 1


def test_what_is_no_model_is_refused() -> None:
    message = (
        "report takes a module, a function, or what torch.compile made of one; got a int; report\\(\\) without an "
        "argument reports on all graphs"
    )
    with pytest.raises(aicf.InputMismatch, match=message):
        aicf.pytorch.report(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("is_static", [False, True])
def test_parameters_have_their_names(is_static: bool) -> None:
    model, x = Layers(), random(3, 8, dtype=torch.float32)
    with torch.no_grad():
        assert_same(compiled(model, static_outputs=is_static)(x), model(x), 1e-5)
    (executable,) = aicf.pytorch.report(model).executables
    assert "enc.0.weight" in str(executable.explain("enc.0.weight"))
    params = {bind.name for bind in executable.plan.weights}
    assert params == {"enc.0.weight", "enc.0.bias", "head.weight", "head.bias", "scale"}


def test_training_graphs_have_the_names_of_parameters_and_modules() -> None:
    model, x = Layers(), random(3, 8, dtype=torch.float32)
    compiled(model)(x).sum().backward()
    forward, backward = aicf.pytorch.report(model).executables
    names = [spec.name for spec in forward.inputs]
    assert {"enc.0.weight", "enc.0.bias", "head.weight", "head.bias", "scale"} < set(names)
    assert "head.weight" in [spec.name for spec in backward.inputs]
    ops = {each.name for each in backward.value_names().names if each.kind == "op"}
    assert {"enc.0.mm", "head.mm", "enc.1.threshold_backward"} <= ops


def test_two_models_in_a_function_have_separate_names() -> None:
    one, other, x = nn.Linear(8, 4), nn.Linear(4, 2), random(3, 8, dtype=torch.float32)

    def run(first: nn.Module, second: nn.Module, x: Tensor) -> Tensor:
        return second(first(x))

    with torch.no_grad():
        assert_same(compiled(run)(one, other, x), other(one(x)), 1e-5)
    (executable,) = aicf.pytorch.report(run).executables
    assert {bind.name for bind in executable.plan.weights} == {"weight", "bias", "weight_", "bias_"}
