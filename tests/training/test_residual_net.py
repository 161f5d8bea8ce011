"""A residual network with batch norms learns the digits, and keeps what it needs for inference."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import aicf
from tests.support.training_resnet import ResidualNet

BATCH, EPOCHS = 64, 4


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return (x[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[order].astype(np.int64)


def trained(images: tuple[np.ndarray, np.ndarray]) -> aicf.TrainStep:
    x, y = images
    steps = (len(x) - 297) // BATCH
    net = ResidualNet(BATCH, training=True)
    rate = aicf.schedules.Cosine(1e-2, warmup=5, total=EPOCHS * steps)
    step = aicf.train_step(net.graph, "cross_entropy", aicf.optimizers.AdamW(rate), seed=3)
    random = np.random.default_rng(1)
    for _ in range(EPOCHS):
        order = random.permutation(np.arange(297, len(x)))[: steps * BATCH]
        for rows in order.reshape(steps, BATCH):
            step(x[rows], y[rows])
    return step


def test_it_knows_97_percent_of_the_digits(images: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = images
    step = trained(images)
    losses = step.losses()
    assert losses[0] > 2 and np.mean(losses[-10:]) < 0.1
    exe = aicf.compile(ResidualNet(297, training=False).graph, step.weights(), "cpu")
    assert (exe(x[:297]).argmax(1) == y[:297]).mean() > 0.97
