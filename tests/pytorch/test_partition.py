"""What the forward part of a training graph keeps for the backward part: chosen by `eliminate-saves`, and recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import aicf
import aicf.pytorch
from aicf.inspection.explain import Decision
from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = pytest.mark.peers


class _Layers(nn.Module):
    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(3))
        self.norm = nn.LayerNorm(24)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Products, pointwise ops, masks and statistics."""
        for layer in self.layers:
            x = F.dropout(F.gelu(layer(x), approximate="tanh"), self.rate, self.rate > 0)
        return self.norm(x)


def _saves(model: Any) -> list[Decision]:
    *_, forward = [
        program.executable
        for graph in aicf.pytorch.report(model).graphs
        if graph.kind == "forward"
        for program in graph.programs
        if program.executable is not None
    ]
    return [each for each in forward.decisions if each.made_by == "eliminate-saves"]


def _kept(result: Tensor, model: nn.Module) -> list[Tensor]:
    """The tensors that the forward part keeps, each piece of memory once, without parameters."""
    node: Any = result.grad_fn
    own = {each.data_ptr() for each in model.parameters()}
    return list({each.data_ptr(): each for each in node.saved_tensors if each.data_ptr() not in own}.values())


def test_the_choice_is_in_the_ledger_of_both_parts() -> None:
    model = _Layers().double()
    compiled(model)(random(8, 24)).sum().backward()
    forward, backward = aicf.pytorch.report(model).executables
    decisions = [
        [each for each in part.decisions if each.made_by == "eliminate-saves"] for part in (forward, backward)
    ]
    assert decisions[0] and decisions[0] == decisions[1]
    assert {each.choice for each in decisions[0]} >= {"keep", "alias"}
    assert "saved for the backward part" in str(forward.explain())
    assert "saved for the backward part" in str(aicf.pytorch.report(model))


def test_what_the_ledger_says_is_what_is_kept() -> None:
    model = _Layers().double()
    x = random(8, 24)
    result = compiled(model)(x)
    said = sum(int(str(each.cost["bytes"])) for each in _saves(model) if each.choice == "keep")
    assert said == sum(each.nbytes for each in _kept(result, model) if each.data_ptr() != x.data_ptr())


def test_what_pointwise_ops_give_is_computed_again() -> None:
    """exp(x) and its negation read no more than x does: x alone is kept."""
    model = nn.Linear(16, 64).double()

    def run(x: Tensor) -> Tensor:
        hidden = model(x)
        return (hidden * (hidden * 2.0 + 1.0)).sum(1)

    x = random(32, 16)
    result = compiled(run)(x)
    again = [each for each in _saves(None) if each.choice == "recompute"]
    assert again
    assert all("reads no more" in each.because for each in again)
    assert max(each.nbytes for each in _kept(result, model)) == 32 * 64 * 8
    assert sum(each.numel() == 32 * 64 for each in _kept(result, model)) == 1
    result.sum().backward()
    found = gradients(model)
    model.zero_grad()
    run(x).sum().backward()
    assert_same(found, gradients(model), 1e-9)


@pytest.mark.parametrize("choice", ["keep", "recompute"])
def test_a_policy_says_what_is_kept(choice: str) -> None:
    model = _Layers().double()
    theirs = copy.deepcopy(model)
    x = random(8, 24)
    policy = {"execution": {"saves": {"layers.1.addmm.save": choice}}}
    compiled(model, policy=policy)(x).square().sum().backward()
    theirs(x).square().sum().backward()
    assert_same(gradients(model), gradients(theirs), 1e-8)
    (own,) = [each for each in _saves(model) if each.subjects == ("layers.1.addmm.save",)]
    assert (own.choice, own.because) == (choice, "the policy says so")


def test_a_save_that_there_is_not() -> None:
    policy = {"execution": {"saves": {"layers.1.adm.save": "keep"}}}
    with pytest.raises(
        Exception, match=r"saves\.layers\.1\.adm\.save: no save has that id.*layers\.1\.addmm\.save"
    ):
        compiled(_Layers(), policy=policy)(torch.ones(2, 24))


def test_a_budget_of_nothing_keeps_masks_alone() -> None:
    """What random numbers are in cannot be computed again; all else follows from it and from the arguments."""
    model = _Layers(0.25).double()
    result = compiled(model, memory_budget=0.0)(x := random(16, 24))
    kept = [each for each in _kept(result, model) if each.data_ptr() != x.data_ptr()]
    assert [each.dtype for each in kept] == [torch.bool] * 3
    masks = {each.because for each in _saves(model) if each.choice == "keep"}
    assert masks == {"random numbers are not drawn a second time"}


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
def test_a_mask_is_the_same_in_both_parts(budget: float) -> None:
    """Of y = dropout(x w) the derivative by x is the mask that y shows, times w."""
    weight = random(24, 24).requires_grad_()
    x = random(40, 24).requires_grad_()

    def run(x: Tensor, weight: Tensor) -> Tensor:
        return F.dropout((x @ weight).exp(), 0.5)

    result = compiled(run, memory_budget=budget)(x, weight)
    result.sum().backward()
    mask = (result.detach() != 0).double() * 2.0
    expected = (mask * (x @ weight).exp()).detach()
    assert_same(x.grad, expected @ weight.detach().T, 1e-9)
    assert_same(weight.grad, x.detach().T @ expected, 1e-9)


def test_checkpoints_with_dropout() -> None:
    """A checkpoint changes what is kept, and nothing else."""
    layer = nn.Linear(24, 24).double()

    def inner(x: Tensor) -> Tensor:
        return F.dropout(torch.tanh(layer(x)), 0.5)

    def whole(x: Tensor) -> Tensor:
        return (inner(inner(x)) * 2.0).sum()

    def parts(x: Tensor) -> Tensor:
        return (checkpoint(inner, checkpoint(inner, x, use_reentrant=False), use_reentrant=False) * 2.0).sum()

    found: list[dict[str, Tensor]] = []
    for run in (whole, parts):
        torch.manual_seed(3)
        layer.zero_grad()
        compiled(run)(random(8, 24)).backward()
        found.append(gradients(layer))
    assert_same(found[1], found[0], 1e-9)
    said = {each.because for each in _saves(None)}
    assert "marked by torch.utils.checkpoint" in said


def test_what_stays_eager_is_in_the_ledger_of_the_parts() -> None:
    def run(x: Tensor) -> Tensor:
        return torch.geqrf(torch.tanh(x) * 2.0)[0] + x.exp()

    compiled(run, fallback="eager")(random(4, 4))
    decisions = [
        each.choice
        for executable in aicf.pytorch.report().executables
        for each in executable.decisions
        if each.made_by == "torch-backend"
    ]
    assert decisions
    assert all("aten.geqrf.default" in each and "eager mode" in each for each in decisions)


def test_pytorch_chooses_where_the_graph_cannot_be_read() -> None:
    weight = random(4, 4).requires_grad_()

    def run(x: Tensor) -> Tensor:
        return torch.geqrf(x)[0].sum() * torch.tanh(x @ weight)

    x = random(4, 4)
    compiled(run, fallback="eager")(x).sum().backward()
    found = weight.grad
    weight.grad = None
    run(x).sum().backward()
    assert_same(found, weight.grad, 1e-9)
    decisions = [
        each
        for executable in aicf.pytorch.report().executables
        for each in executable.decisions
        if each.choice == "PyTorch chose what is saved"
    ]
    assert decisions
    assert "geqrf" in decisions[0].because


def test_of_a_cast_to_more_bytes_the_operand_is_kept() -> None:
    weight = random(16, 48).half().requires_grad_()

    def run(x: Tensor) -> Tensor:
        return (x @ weight).float().reshape(-1, 6).sin()

    x = random(32, 16).half()
    result = compiled(run)(x)
    kept = [each for each in _kept(result, nn.Identity()) if each.numel() == 32 * 48]
    assert [each.dtype for each in kept] == [torch.float16]
    result.sum().backward()
    found = weight.grad
    weight.grad = None
    run(x).sum().backward()
    assert_same(found, weight.grad, 1e-2)
