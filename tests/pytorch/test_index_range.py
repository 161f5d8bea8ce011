"""Indices and labels out of range are errors before anything runs, where eager mode raises too."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from aicf.errors import InputMismatch
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

TABLE, ROWS, SCORES = random(10, 4), random(3, 5, seed=1), random(3, 4, seed=2)


@pytest.mark.parametrize(
    ("function", "good", "bad", "told"),
    [
        (lambda i: F.embedding(i, TABLE), [0, 9, 4], [1, 1000000, 2], "index 1000000 .* 0 to 9"),
        (lambda i: F.embedding(i, TABLE), [0, 9, 4], [1, -1, 2], "index -1 .* 0 to 9"),
        (lambda i: F.embedding(i.reshape(1, 3).int(), TABLE), [0, 9, 4], [1, 10, 2], "index 10 .* 0 to 9"),
        (lambda i: ROWS.gather(1, i.unsqueeze(1)), [0, 4, 1], [0, 5, 1], "index 5 .* 0 to 4"),
        (lambda i: ROWS.index_select(-1, i), [0, 4, 1], [0, 5, 1], "index 5 .* 0 to 4"),
        (lambda i: F.cross_entropy(SCORES, i), [0, 3, -100], [0, 4, -100], "index 4 .* 0 to 3"),
        (lambda i: F.nll_loss(SCORES, i, ignore_index=2), [0, 3, 2], [0, -100, 2], "index -100 .* 0 to 3"),
    ],
)
def test_an_index_out_of_range(
    function: Callable[[Tensor], Tensor], good: list[int], bad: list[int], told: str
) -> None:
    ours = compiled(function)
    assert_same(ours(torch.tensor(good)), function(torch.tensor(good)), 1e-9)
    with pytest.raises((IndexError, RuntimeError)):
        function(torch.tensor(bad))
    with pytest.raises(InputMismatch, match=told):
        ours(torch.tensor(bad))
    assert_same(ours(torch.tensor(good)), function(torch.tensor(good)), 1e-9)


def test_the_line_of_the_user() -> None:
    with pytest.raises(InputMismatch) as caught:
        compiled(lambda i: F.embedding(i, TABLE))(torch.tensor([10]))
    assert "test_index_range.py:" in str(caught.value.location)


def test_a_size_that_changes() -> None:
    """The table of each call counts."""
    ours = compiled(F.embedding, dynamic=True)
    for rows in (5, 8):
        table = random(rows, 4)
        assert_same(ours(torch.tensor([rows - 1, 0]), table), table[[rows - 1, 0]], 1e-9)
        with pytest.raises(InputMismatch, match=f"index {rows} is out of range: .* takes 0 to {rows - 1}"):
            ours(torch.tensor([0, rows]), table)


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_a_label_out_of_range_changes_nothing(gradients: str) -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(16, 4)).double()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    step = aicf.pytorch.train_step(model, F.cross_entropy, optimizer, options={"gradients": gradients})
    words, labels = torch.tensor([[0, 9], [3, 4]]), torch.tensor([3, -100])
    for bad in ((words + 1, labels), (words, labels + 1)):
        with pytest.raises(InputMismatch, match="is out of range"):
            step(*bad)
    assert_same(model.state_dict(), before, 0)
    assert step.steps == 0
    expected = F.cross_entropy(model(words), labels).detach()
    assert_same(step(words, labels), expected, 1e-9)
