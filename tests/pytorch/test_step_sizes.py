"""Training steps on batches of many sizes: traced once with symbolic sizes where that is right."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from aicf.errors import InputMismatch
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]
Loss = Callable[[Any, Any], Tensor]


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Grows with each export, by whether it is one with symbolic sizes."""
    found: list[bool] = []
    export = torch.export.export

    def counted(*args: Any, **named: Any) -> Any:
        found.append(bool(named["dynamic_shapes"]))
        return export(*args, **named)

    monkeypatch.setattr(torch.export, "export", counted)
    return found


class _Pair:
    """A step of AICF and a loop of PyTorch on equal modules."""

    def __init__(self, model: nn.Module, loss: Loss = F.mse_loss, **options: Any) -> None:
        self.ours, self.theirs = model.double(), copy.deepcopy(model).double()
        self._loss = loss
        self._optimizer = torch.optim.SGD(self.theirs.parameters(), 0.1, momentum=0.9)
        self.step = aicf.pytorch.train_step(
            self.ours, loss, torch.optim.SGD(self.ours.parameters(), 0.1, momentum=0.9), options=options
        )

    def check(self, *batch: Tensor) -> None:
        """Makes a step of both; they have the same loss and weights after it."""
        self._optimizer.zero_grad()
        *inputs, target = batch
        loss = self._loss(self.theirs(*inputs), target)
        loss.backward()
        self._optimizer.step()
        assert_same(self.step(*batch), loss.detach(), 1e-9)
        assert_same(self.ours.state_dict(), self.theirs.state_dict(), 1e-9)


def _layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 4))


def _rows(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    return random(count, 8, seed=seed), random(count, 4, seed=seed + 1)


def test_the_third_size_is_traced_for_all(exports: list[bool]) -> None:
    pair = _Pair(_layers())
    for seed, rows in enumerate([6, 3, 6, 5, 9, 2, 64, 9]):
        pair.check(*_rows(rows, seed))
    assert exports == [False, False, True]


def test_a_size_of_one_has_a_trace_of_its_own(exports: list[bool]) -> None:
    """A trace with symbols assumes that none is 1: a size of 1 may be broadcast."""
    pair = _Pair(nn.Linear(8, 4))
    for rows in (6, 3, 1, 5, 1, 4):
        pair.check(*_rows(rows))
    assert exports == [False, False, False, True]


class _Words(nn.Module):
    """Uses the length of its input in many ways."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.words, self.places = nn.Embedding(20, 16), nn.Parameter(torch.randn(12, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, i: Tensor) -> Tensor:
        """See above."""
        length = i.shape[1]
        x = self.words(i) + self.places[:length] * torch.arange(length).view(-1, 1) / length**0.5
        mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=x.dtype)
        y = self.layer(x, src_mask=mask, is_causal=True)
        return self.out(y.sum(1) / length + y.view(i.shape[0], -1, 2, 8).mean((1, 2)).repeat(1, 2))


def _words(rows: int, length: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rows * length)
    return torch.randint(20, (rows, length)), torch.randint(5, (rows,))


def test_two_sizes_that_change(exports: list[bool]) -> None:
    pair = _Pair(_Words(), F.cross_entropy)
    for rows, length in ((4, 6), (3, 6), (5, 6), (6, 9), (4, 12)):
        pair.check(*_words(rows, length))
    assert exports == [False, False, True, True]


def test_a_symbolic_trace_gives_the_same_program() -> None:
    shapes = [(4, 6), (3, 7), (5, 8), (6, 9)]
    step = _Pair(_Words(), F.cross_entropy).step
    for rows, length in shapes:
        step(*_words(rows, length))
    alone = _Pair(_Words(), F.cross_entropy).step
    alone(*_words(*shapes[-1]))
    assert step.executables[-1].ir("logical") == alone.executables[0].ir("logical")


class _Branch(nn.Module):
    """Computes something else for some sizes."""

    def __init__(self, which: Callable[[int], float]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.which = nn.Linear(8, 4), which

    def forward(self, x: Tensor) -> Tensor:
        """See above."""
        return self.layer(x) * self.which(x.shape[0])


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (lambda rows: 2 if rows > 4 else 3, [False, False, True, False]),
        (lambda rows: 2 if rows % 2 == 0 else 3, [False, False, True, False]),
        (lambda rows: rows, [False, False, True]),
        (lambda rows: rows**0.5, [False, False, True]),
    ],
)
def test_python_that_depends_on_a_size(
    exports: list[bool], which: Callable[[int], float], expected: Sequence[bool]
) -> None:
    pair = _Pair(_Branch(which))
    for rows in (6, 3, 8, 10, 2, 5):
        pair.check(*_rows(rows))
    assert exports == expected


def test_a_module_that_takes_no_symbols(exports: list[bool], caplog: pytest.LogCaptureFixture) -> None:
    pair = _Pair(_Branch(math.sqrt))
    with caplog.at_level(logging.INFO, "aicf.pytorch"):
        for rows in (6, 3, 8, 5, 4):
            pair.check(*_rows(rows))
    assert exports == [False, False, True, False, False, False]
    assert sum("each size of a batch is traced by itself" in each.message for each in caplog.records) == 1


def test_tensors_in_another_order_in_memory(exports: list[bool]) -> None:
    """A trace is for one order of strides."""
    torch.manual_seed(4)
    pair = _Pair(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    for rows in (4, 3, 2, 5):
        pair.check(random(rows, 3, 6, 6), random(rows, 4))
    assert exports == [False, False, True]
    pair.check(random(6, 3, 6, 6).to(memory_format=torch.channels_last), random(6, 4))
    pair.check(random(7, 3, 6, 6), random(7, 4))
    assert exports == [False, False, True, False]


def test_a_module_in_another_mode_is_traced_anew(exports: list[bool]) -> None:
    pair = _Pair(_layers())
    for rows in (6, 3, 5):
        pair.check(*_rows(rows))
    for each in (pair.ours, pair.theirs):
        each.eval()
    for rows in (7, 4, 9):
        pair.check(*_rows(rows))
    for each in (pair.ours, pair.theirs):
        each.train()
    pair.check(*_rows(11))
    assert exports == [False, False, True] * 2


def test_a_batch_that_is_its_own_target(exports: list[bool]) -> None:
    pair = _Pair(nn.Sequential(nn.Linear(8, 3), nn.Linear(3, 8)))
    for rows in (6, 3, 5, 9):
        x = random(rows, 8)
        pair.check(x, x)
    assert exports == [False, False, True]


def test_indices_are_checked_against_the_sizes_of_each_batch() -> None:
    class Picks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x: Tensor, i: Tensor) -> Tensor:
            return self.layer(x[i])

    pair = _Pair(Picks())
    for rows in (4, 5, 6, 9, 7):
        pair.check(random(rows, 8), torch.tensor([0, rows - 1, -rows]), random(3, 4))
        with pytest.raises(InputMismatch, match=f"index {rows} is out of range: .* -{rows} to {rows - 1}"):
            pair.step(random(rows, 8), torch.tensor([0, rows, 1]), random(3, 4))


@pytest.mark.parametrize("gradients", ["auto", "pytorch"])
def test_gradients_of_pytorch(exports: list[bool], gradients: str) -> None:
    """Its forward and backward part are traced together, for each size."""

    class Largest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).max(1).values

    pair = _Pair(Largest(), gradients=gradients)
    for rows in (6, 3, 5, 9):
        pair.check(random(rows, 8), random(rows))
