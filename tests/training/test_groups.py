"""Parameter groups: rates and weight decays of their own, beside the formulas of `torch.optim` in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.training.optimizers import SGD, Adam, AdamW, Group, Optimizer
from aicf.training.schedules import Cosine, FromHost, Schedule

Array = NDArray[Any]
WEIGHTS = {
    "body.weight": np.random.default_rng(1).normal(size=(3, 4)),
    "body.bias": np.random.default_rng(2).normal(size=3),
    "norm.weight": np.random.default_rng(3).normal(size=3),
    "head.weight": np.random.default_rng(4).normal(size=(2, 3)),
}
NO_DECAY = Group(max_rank=1, weight_decay=0.0)
HEAD = Group(["head.*", "nothing.*"], lr_scale=0.1)


def network() -> aicf.Graph:
    graph = aicf.Graph("grouped")
    x = graph.input("x", (5, 4), "f64")
    w = {name: graph.param(name, value.shape, "f64") for name, value in WEIGHTS.items()}
    hidden = graph.linear(x, w["body.weight"], w["body.bias"]) * w["norm.weight"]
    graph.output(graph.matmul(hidden, w["head.weight"], transpose_b=True), "y_hat")
    return graph


def gradients(w: dict[str, Array], x: Array, y: Array) -> dict[str, Array]:
    """Of the mean squared error, by hand."""
    product = x @ w["body.weight"].T + w["body.bias"]
    hidden = product * w["norm.weight"]
    by_output = 2 * (hidden @ w["head.weight"].T - y) / y.size
    by_hidden = by_output @ w["head.weight"]
    by_product = by_hidden * w["norm.weight"]
    return {
        "body.weight": by_product.T @ x,
        "body.bias": by_product.sum(0),
        "norm.weight": (by_hidden * product).sum(0),
        "head.weight": by_output.T @ hidden,
    }


def rate_at(schedule: float | Schedule, step: int) -> float:
    if isinstance(schedule, Cosine):
        part = min((step - 1) / schedule.total, 1)
        return schedule.final + (schedule.lr - schedule.final) * (1 + np.cos(np.pi * part)) / 2
    return schedule.lr if isinstance(schedule, Schedule) else schedule


def trained(
    optimizer: Optimizer, decays: dict[str, float], scales: dict[str, float], steps: int
) -> dict[str, Array]:
    """The weights after some steps, in NumPy."""
    w = {name: value.copy() for name, value in WEIGHTS.items()}
    first, second = ({name: np.zeros_like(value) for name, value in w.items()} for _ in range(2))
    for number, (x, y) in enumerate(batches(steps), 1):
        for name, gradient in gradients(w, x, y).items():
            rate = rate_at(optimizer.lr, number) * scales.get(name, 1.0)
            decay = decays[name]
            if isinstance(optimizer, SGD):
                w[name] = w[name] - rate * (gradient + decay * w[name])
                continue
            assert isinstance(optimizer, AdamW)
            w[name] = w[name] * (1 - rate * decay)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            spread = np.sqrt(second[name] / (1 - 0.999**number)) + optimizer.eps
            w[name] = w[name] - rate * first[name] / (1 - 0.9**number) / spread
    return w


def batches(count: int) -> list[tuple[Array, Array]]:
    random = np.random.default_rng(9)
    return [(random.normal(size=(5, 4)), random.normal(size=(5, 2))) for _ in range(count)]


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.05, weight_decay=0.3, groups=[NO_DECAY, HEAD]),
        AdamW(Cosine(0.02, total=6, final=0.01), weight_decay=0.5, groups=(HEAD, NO_DECAY)),
        AdamW(FromHost(0.02), weight_decay=0.5, groups=(HEAD, NO_DECAY)),
    ],
    ids=["sgd", "adamw-cosine", "adamw-host"],
)
def test_groups_beside_numpy(target: str, optimizer: Any) -> None:
    step = aicf.train_step(network(), "mse", optimizer, weights=WEIGHTS, target=target)
    for x, y in batches(8):
        step(x, y)
    decays = {name: 0.0 if value.ndim == 1 else optimizer.weight_decay for name, value in WEIGHTS.items()}
    expected = trained(optimizer, decays, {"head.weight": 0.1}, 8)
    for name, value in expected.items():
        np.testing.assert_allclose(step.weights()[name], value, rtol=1e-9, err_msg=name)


def test_rates_of_the_host_hold_for_all_groups() -> None:
    step = aicf.train_step(network(), "mse", SGD(FromHost(0.1), groups=[HEAD]), weights=WEIGHTS)
    step.set_learning_rate(0.4)
    ((x, y),) = batches(1)
    step(x, y)
    found = gradients(WEIGHTS, x, y)
    for name, value in WEIGHTS.items():
        rate = 0.04 if name == "head.weight" else 0.4
        np.testing.assert_allclose(step.weights()[name], value - rate * found[name], rtol=1e-9)


def test_a_scale_of_zero_holds_a_group_still() -> None:
    step = aicf.train_step(network(), "mse", Adam(0.1, groups=[Group("body.*", lr_scale=0)]), weights=WEIGHTS)
    ((x, y),) = batches(1)
    step(x, y)
    changed = {name for name, value in step.weights().items() if not np.array_equal(value, WEIGHTS[name])}
    assert changed == {"norm.weight", "head.weight"}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            [Group("tail.*")],
            r"Group\('tail.\*'\) has no parameter that is trained; these are body.weight, body.bias",
        ),
        ([Group("head.weight", max_rank=1)], r"Group\('head.weight', max_rank=1\) has no parameter"),
        (
            [HEAD, Group("*.weight")],
            r"'head.weight' is in Group.* and in Group\('\*.weight'\); .* in one group",
        ),
        ([Group(lr_scale=-1)], "lr_scale is -1; it is 0 or more"),
        (["*.bias"], r"SGD: a group is '\*.bias'; it is one made as in aicf.optimizers.Group"),
        ([Group("*.bias", weight_decay=-0.1)], "weight_decay is -0.1; it is 0 or more"),
    ],
)
def test_groups_that_make_no_sense(groups: Any, message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message):
        aicf.train_step(network(), "mse", SGD(0.1, groups=groups), weights=WEIGHTS)
