"""PyTorch's own optimizers beside compiled modules: what they write is seen, and their steps compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_weights_that_a_fused_optimizer_changes(kind: Any) -> None:
    """It leaves version counters as they are; packed copies are made again all the same."""
    model = nn.Linear(64, 64)
    ours, x = compiled(model), random(4, 64).float()
    optimizer = kind(model.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        with torch.no_grad():
            assert_same(ours(x), model(x), 1e-5)
        model(x).square().sum().backward()
        optimizer.step()
    with torch.no_grad():
        assert_same(ours(x), model(x), 1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # of PyTorch's own modules
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
def test_a_compiled_step(kind: Any) -> None:
    """As the step that PyTorch traces computes it: with the number of the step, and what follows from it, as an f32."""
    model = nn.Linear(8, 4).double()
    peer = copy.deepcopy(model)
    ours, theirs = kind(model.parameters(), lr=0.1), kind(peer.parameters(), lr=0.1)
    step, traced = compiled(ours.step, fullgraph=False), torch.compile(theirs.step, backend="aot_eager")
    for _ in range(4):
        x = random(6, 8)
        for each in (model, peer):
            each.zero_grad()
            each(x).square().sum().backward()
        step()
        traced()
    assert_same(model.weight, peer.weight, 1e-6)
    assert_same(model.bias, peer.bias, 1e-6)
