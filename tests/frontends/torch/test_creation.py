"""Tensors that ATen makes of numbers alone, and of random ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.support.torch_graphs import assert_like_eager, lowered_outputs

pytestmark = pytest.mark.peers
aten = torch.ops.aten


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.arange(7),
        lambda x: torch.arange(1, 9, 3),
        lambda x: torch.arange(5, -5, -2),
        lambda x: torch.arange(0.5, 3, 0.1),
        lambda x: torch.arange(0, 1, 0.1, dtype=torch.float16),
        lambda x: torch.arange(300, dtype=torch.bfloat16),
        lambda x: torch.arange(10, dtype=torch.int32),
        lambda x: torch.linspace(-1, 1, 7),
        lambda x: torch.linspace(0, 10, 4, dtype=torch.int64),
        lambda x: torch.linspace(3, 5, 1),
        lambda x: torch.logspace(0, 3, 4),
        lambda x: torch.eye(3),
        lambda x: torch.eye(2, 4, dtype=torch.bool),
        lambda x: torch.full((2, 3), 7),
        lambda x: torch.full((2,), -torch.inf),
        lambda x: torch.full_like(x, True),
        lambda x: torch.zeros(2, 3, dtype=torch.int8),
        lambda x: torch.ones_like(x, dtype=torch.float64),
        lambda x: x.new_ones(3),
        lambda x: x.new_full((2, 1), 4),
        lambda x: torch.scalar_tensor(3.5),
        lambda x: aten.fill.Tensor(x, torch.full((), 2.0)),
        lambda x: aten.copy(x, torch.full((4,), 2)),
        lambda x: torch.tril_indices(4, 3, -1),
        lambda x: torch.tril_indices(3, 5, 2),
        lambda x: torch.triu_indices(4, 3, -1),
        lambda x: torch.triu_indices(3, 5, 2),
    ],
)
def test_values(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert_like_eager(make, torch.ones(3, 4))


COUNT = 20_000


@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (lambda x: torch.rand(COUNT), 0.5, 12**-0.5),
        (lambda x: torch.rand(COUNT, dtype=torch.float64), 0.5, 12**-0.5),
        (lambda x: torch.randn(COUNT, dtype=torch.float16), 0.0, 1.0),
        (torch.randn_like, 0.0, 1.0),
        (lambda x: aten.uniform(x, -1.0, 3.0), 1.0, 4 * 12**-0.5),
        (lambda x: aten.normal_functional(x, 2.0, 3.0), 2.0, 3.0),
        (lambda x: torch.normal(x, 2.0), 1.0, 2.0),
        (lambda x: torch.normal(1.0, 2 * x), 1.0, 2.0),
        (lambda x: aten.exponential(x, 2.0), 0.5, 0.5),
        (lambda x: aten.geometric(x, 0.25), 4.0, 12**0.5),
        (lambda x: torch.randint(2, 12, (COUNT,)), 6.5, (99 / 12) ** 0.5),
        (lambda x: torch.randint_like(x, 10), 4.5, (99 / 12) ** 0.5),
        (lambda x: torch.bernoulli(x * 0.3), 0.3, 0.21**0.5),
        (lambda x: aten.bernoulli.p(x, 0.3), 0.3, 0.21**0.5),
        (lambda x: torch.multinomial(torch.full((2,), 3.0), COUNT, replacement=True), 0.5, 0.5),
        (lambda x: aten.dropout(x, 0.2, True), 1.0, 0.5),
        (lambda x: aten.native_dropout(x, 0.2, True), 1.0, 0.5),
    ],
)
def test_random_numbers(draw: Callable[[torch.Tensor], torch.Tensor], mean: float, deviation: float) -> None:
    numbers = lowered_outputs(draw, torch.ones(COUNT))[0].astype(np.float64)
    assert numbers.mean() == pytest.approx(mean, abs=0.03 * deviation)
    assert numbers.std() == pytest.approx(deviation, rel=0.05)


def test_each_node_and_each_seed_draws_other_numbers() -> None:
    def draw(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.rand(10), torch.rand(10), torch.rand_like(x)]

    first, other = (lowered_outputs(draw, torch.ones(10), seed=seed) for seed in (1, 2))
    assert len({number for part in (*first, *other) for number in part.tolist()}) == 60


def test_random_order() -> None:
    (order,) = lowered_outputs(lambda x: torch.randperm(100), torch.ones(1))
    assert sorted(order.tolist()) == list(range(100))
    assert order.tolist() != list(range(100))


def test_without_replacement_nothing_comes_twice() -> None:
    weights = torch.tensor([[1.0, 0.0, 2.0, 3.0], [0.0, 1.0, 1.0, 5.0]])
    (drawn,) = lowered_outputs(lambda weights: torch.multinomial(weights, 3), weights)
    assert [sorted(row) for row in drawn.tolist()] == [[0, 2, 3], [1, 2, 3]]


def test_mask_of_dropout() -> None:
    x = torch.randn(50, 40)
    result, kept = lowered_outputs(lambda x: aten.native_dropout(x, 0.25, True), x)
    np.testing.assert_allclose(result, np.where(kept, x.numpy() / 0.75, 0), rtol=1e-6)
    for train, rate in ((False, 0.5), (True, 0.0), (True, 1.0)):
        result, kept = lowered_outputs(lambda x: aten.native_dropout(x, rate, train), x)  # noqa: B023
        assert kept.all() == (rate < 1)
        np.testing.assert_array_equal(result, x.numpy() * kept)
