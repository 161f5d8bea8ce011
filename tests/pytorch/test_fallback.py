"""Graphs of which some ops stay PyTorch's, with fallback="eager": in every mode that whole graphs have."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = pytest.mark.peers


def _own(x: Tensor) -> Tensor:
    """An op that only PyTorch has."""
    return torch.geqrf(x)[0]


def _eager() -> set[str]:
    return {op.partition(" ")[0] for ops in aicf.pytorch.report().eager.values() for op in ops}


class _Model(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("total", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        """Statistics and a buffer change, before and after the op of PyTorch."""
        hidden = self.norm(self.layer(x))
        self.total.add_(hidden.detach().sum(0))
        own = _own(hidden.detach())
        self.total.mul_(0.5)
        return torch.tanh(hidden) * own.sum() + self.total


def test_buffers_change_in_their_order() -> None:
    model = _Model().double().train()
    theirs = copy.deepcopy(model)
    ours = compiled(model, fallback="eager")
    for seed in range(3):
        x = random(8, 6, seed=seed)
        found, expected = ours(x), theirs(x)
        assert_same(found, expected, 1e-8)
        found.sum().backward()
        expected.sum().backward()
    assert_same(model.state_dict(), theirs.state_dict(), 1e-8)
    assert_same(gradients(model), gradients(theirs), 1e-8)
    assert _eager() == {"aten.geqrf.default"}


def test_buffers_change_without_gradients() -> None:
    model = _Model().double().train()
    theirs = copy.deepcopy(model)
    ours = compiled(model, fallback="eager")
    with torch.no_grad():
        for seed in range(3):
            assert_same(ours(random(8, 6, seed=seed)), theirs(random(8, 6, seed=seed)), 1e-8)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-8)


def test_many_sizes() -> None:
    def run(x: Tensor) -> tuple[Tensor, int]:
        y = (x * 2).tanh()
        factor = torch.linalg.qr(y).R  # which PyTorch traces for any size
        return factor.sum(0) * x.shape[0] + y.reshape(-1, x.shape[1])[0], x.shape[0]

    ours = compiled(run, dynamic=True, fallback="eager")
    for rows in (3, 5, 4):
        assert_same(ours(random(rows, 3)), run(random(rows, 3)), 1e-9)
    assert _eager() == {"aten.linalg_qr.default"}


def test_results_that_are_arguments_and_nothing() -> None:
    def run(x: Tensor) -> tuple[Any, ...]:
        return x, None, _own(x + 1), x.t(), 3

    x = random(3, 3)
    found = compiled(run, fallback="eager")(x)
    assert found[0] is x
    assert_same(found, run(x), 1e-9)


def test_new_weights() -> None:
    model = nn.Linear(64, 64).double()
    ours = compiled(lambda x: _own(model(x)).tanh(), fallback="eager")
    x = random(64, 64)
    with torch.no_grad():
        for _ in range(3):
            assert_same(ours(x), _own(model(x)).tanh(), 1e-7)
            model.weight.mul_(-0.5)


def test_dropout_follows_the_seed() -> None:
    ours = compiled(lambda x: F.dropout(x, 0.5) + _own(x).sum() * 0, fallback="eager")
    x = torch.ones(30, 30)
    torch.manual_seed(3)
    first, second = ours(x), ours(x)
    torch.manual_seed(3)
    assert_same(ours(x), first)
    assert not torch.equal(first, second)


def test_a_graph_that_is_eager_alone() -> None:
    assert_same(compiled(_own, fallback="eager")(random(3, 3)), _own(random(3, 3)), 1e-9)
    assert _eager() == {"aten.geqrf.default"}


def test_nothing_is_eager_where_all_has_a_counterpart() -> None:
    assert_same(compiled(lambda x: x * 2, fallback="eager")(random(3)), random(3) * 2)
    assert not aicf.pytorch.report().eager
