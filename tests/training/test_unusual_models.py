"""Training steps of models and options off the common way: mixed types, states that the loss reads, wrong kinds."""

from __future__ import annotations

import re

import numpy as np
import pytest

import aicf
from aicf import Graph, InvalidIR
from tests.support.training_models import classifier

RATE, NORM = 0.5, 1.0


def test_gradients_of_several_types_are_clipped_together():
    graph = Graph("mixed")
    narrow, wide = graph.param("narrow", (3,), "f32"), graph.param("wide", (2, 2), "f64")
    loss = graph.reduce_sum(wide * wide, [0, 1])
    graph.output(loss + graph.cast(graph.reduce_sum(narrow * narrow, [0]), "f64"), "loss")
    random = np.random.default_rng(0)
    weights = {"narrow": random.normal(size=3).astype(np.float32), "wide": random.normal(size=(2, 2))}
    step = aicf.train_step(graph, None, aicf.optimizers.SGD(RATE), weights=weights, clip_norm=NORM)
    step()
    gradients = {name: 2 * array.astype(np.float64) for name, array in weights.items()}
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    assert norm > NORM
    for name, new in step.weights().items():
        assert new.dtype == weights[name].dtype
        np.testing.assert_allclose(
            new, weights[name] - RATE * gradients[name] * NORM / (norm + 1e-6), rtol=1e-6
        )


def averaged(read: bool) -> Graph:
    """A mean over past batches in a state `past`, of which the loss takes the distance, or which it leaves alone."""
    graph = Graph("averaged")
    x, w, past = (
        graph.input("x", (4, 3), "f64"),
        graph.param("w", (3,), "f64"),
        graph.state("past", (3,), "f64"),
    )
    scaled = x * w
    graph.update(past, past * 0.9 + graph.reduce_mean(scaled, [0]) * 0.1)
    difference = scaled - past if read else scaled
    graph.output(graph.reduce_mean(difference * difference, [0, 1]), "loss")
    return graph


@pytest.mark.parametrize(("read", "parts"), [(False, 2), (True, 1), (True, 2), (True, 3)])
def test_a_state_of_the_model_is_a_constant_to_the_gradient(read: bool, parts: int):
    """Also what the part before left in it."""
    weights = {"w": np.ones(3), "past": np.full(3, 0.5)}
    step = aicf.train_step(
        averaged(read), None, aicf.optimizers.SGD(RATE), weights=weights, micro_batches=parts
    )
    w, past = weights["w"], weights["past"]
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(4 * parts, 3))
        step(x)
        gradient = np.zeros(3)
        for part in np.split(x, parts):
            gradient += (2 * (part * w - (past if read else 0)) * part).sum(axis=0) / part.size / parts
            past = 0.9 * past + 0.1 * (part * w).mean(axis=0)
        w = w - RATE * gradient
    np.testing.assert_allclose(step.weights()["w"], w, rtol=1e-12)
    np.testing.assert_allclose(step.weights()["past"], past, rtol=1e-12)


EPSILON, MOMENTUM = 1e-5, 0.25


def renormed(role: str) -> Graph:
    """A norm by running statistics, which every batch updates after it was normed by those of the batches before."""
    graph = Graph("renormed")
    x, y = graph.input("x", (4, 3), "f64"), graph.input("t", (4, 3), "f64")
    w, scale = graph.param("w", (3,), "f64"), graph.param("scale", (3,), "f64")
    make = {"state": graph.state, "meta": graph.meta}[role]
    mean, variance = make("mean", (3,), "f64"), make("variance", (3,), "f64")
    scaled = x * w
    normed = (scaled - mean) * graph.rsqrt(variance + EPSILON)
    now = graph.reduce_mean(scaled, [0])
    centered = scaled - now
    graph.update(mean, mean * (1 - MOMENTUM) + now * MOMENTUM)
    spread = graph.reduce_mean(centered * centered, [0])
    graph.update(variance, variance * (1 - MOMENTUM) + spread * MOMENTUM)
    difference = normed * scale - y
    graph.output(graph.reduce_mean(difference * difference, [0, 1]), "loss")
    return graph


@pytest.mark.parametrize("role", ["state", "meta"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_each_part_reads_the_statistics_that_the_one_before_left(role: str, parts: int):
    """As in a loop over parts whose gradients add up: what a part reads of others is a constant to its gradient."""
    random = np.random.default_rng(parts)
    names = ("w", "scale", "mean", "variance")
    now = {name: random.uniform(0.5, 1.5, 3) for name in names}
    optimizer = aicf.optimizers.SGD(RATE)
    step = aicf.train_step(renormed(role), None, optimizer, weights=now, micro_batches=parts)
    losses: list[float] = []
    for _ in range(3):
        x, y = random.normal(size=(2, 4 * parts, 3))
        step(x, y)
        loss, gradients = 0.0, {"w": np.zeros(3), "scale": np.zeros(3)}
        for inputs, targets in zip(np.split(x, parts), np.split(y, parts), strict=True):
            scaled, root = inputs * now["w"], np.sqrt(now["variance"] + EPSILON)
            normed = (scaled - now["mean"]) / root
            difference = normed * now["scale"] - targets
            loss += (difference**2).mean() / parts
            back = 2 * difference / difference.size / parts
            gradients["w"] += (back * now["scale"] / root * inputs).sum(axis=0)
            gradients["scale"] += (back * normed).sum(axis=0)
            now["mean"] = now["mean"] * (1 - MOMENTUM) + scaled.mean(axis=0) * MOMENTUM
            now["variance"] = now["variance"] * (1 - MOMENTUM) + scaled.var(axis=0) * MOMENTUM
        losses.append(loss)
        now |= {name: now[name] - RATE * gradient for name, gradient in gradients.items()}
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-12)
    for name in names:
        np.testing.assert_allclose(step.weights()[name], now[name], rtol=1e-10, err_msg=name)


def mean_teacher() -> Graph:
    """A student follows a teacher, whose weights are the mean of the student's past ones."""
    graph = Graph("mean_teacher")
    x, student = graph.input("x", (4, 3), "f64"), graph.param("student", (3,), "f64")
    teacher = graph.state("teacher", (3,), "f64")
    now = graph.detach(teacher * 0.9 + student * 0.1)
    graph.update(teacher, now)
    difference = x * student - graph.tanh(x * now)
    graph.output(graph.reduce_mean(difference * difference, [0, 1]), "loss")
    return graph


@pytest.mark.parametrize("parts", [1, 2])
def test_what_is_detached_is_a_constant_to_the_gradient(parts: int):
    weights = {"student": np.array([0.5, -1.0, 2.0]), "teacher": np.ones(3)}
    optimizer = aicf.optimizers.SGD(RATE)
    step = aicf.train_step(mean_teacher(), None, optimizer, weights=weights, micro_batches=parts)
    student, teacher = weights["student"], weights["teacher"]
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(4 * parts, 3))
        step(x)
        gradient = np.zeros(3)
        for part in np.split(x, parts):
            teacher = 0.9 * teacher + 0.1 * student
            gradient += (
                (2 * (part * student - np.tanh(part * teacher)) * part).sum(axis=0) / part.size / parts
            )
        student = student - RATE * gradient
    np.testing.assert_allclose(step.weights()["student"], student, rtol=1e-12)
    np.testing.assert_allclose(step.weights()["teacher"], teacher, rtol=1e-12)
    assert "logical.detach" not in step.ir("lowered")


@pytest.mark.parametrize(
    ("loss", "optimizer", "message"),
    [
        ("mse", "adam", "the optimizer is 'adam'; it is one made as in aicf.optimizers.Adam"),
        ("mse", aicf.optimizers.Adam, "the optimizer is <class .*Adam'>; it is one made as in"),
        ("mse", aicf.optimizers.Adam(lr="1e-3"), "Adam: lr is '1e-3'; it is a number, or a schedule"),  # pyright: ignore[reportArgumentType]
        (aicf.losses.MSELoss, aicf.optimizers.Adam(), "the loss is <class .*MSELoss'>; it is a name"),
    ],
)
def test_what_is_no_loss_or_optimizer_is_refused(loss: object, optimizer: object, message: str):
    with pytest.raises(InvalidIR, match=message):
        aicf.train_step(classifier(), loss, optimizer)  # pyright: ignore[reportArgumentType]


def scaled(role: str, name: str, dtype: str = "f64", shape: tuple[int, ...] = ()) -> Graph:
    """w * x, times an argument of that role and name."""
    graph = Graph("scaled")
    x, w = graph.input("x", (4,), "f64"), graph.param("w", (4,), "f64")
    argument = getattr(graph, role)(name, shape, dtype)
    factor = argument if dtype == "f64" else graph.cast(argument, "f64")
    graph.output(x * w * factor if not shape else x * w * graph.reduce_sum(factor, [0]), "product")
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            scaled("meta", "step"),
            "'step' has the role meta and the type f64 in 'scaled'; a training step counts",
        ),
        (scaled("input", "step", "i64"), "'step' has the role input and the type i64"),
        (scaled("meta", "step", "i64", (2,)), "'step' has the role meta and the type 2xi64"),
        (scaled("param", "y"), "'y' (param of 'scaled') is the name of the target in a training step"),
        (scaled("param", "lr"), "'lr' (param of 'scaled') is the name of the learning rate"),
        (
            scaled("param", "aicf.own"),
            "'aicf.own' (param of 'scaled'): names that begin with 'aicf.' are those of",
        ),
        (scaled("param", "loss"), "'loss' (param of 'scaled') is the name of the loss"),
        (
            scaled("state", "w.momentum_buffer"),
            "'w.momentum_buffer' (state of 'scaled') is the name of a state of 'w'",
        ),
    ],
)
def test_names_that_the_step_needs_are_told(graph: Graph, message: str):
    optimizer = aicf.optimizers.SGD(aicf.schedules.FromHost(RATE), momentum=0.9)
    with pytest.raises(InvalidIR, match=re.escape(message)):
        aicf.train_step(graph, "mse", optimizer)


def test_a_model_does_not_count_its_steps():
    counting = Graph("counting")
    counter, w = counting.meta("step", (), "i64"), counting.param("w", (), "f64")
    counting.update(counter, counting.step_inc(counter))
    counting.output(w * w, "loss")
    with pytest.raises(InvalidIR, match="'counting' updates 'step'; a training step counts by itself"):
        aicf.train_step(counting, None, aicf.optimizers.SGD(RATE))


def test_a_step_begins_at_the_number_that_is_given():
    graph, x, y = scaled("meta", "step", "i64"), np.arange(4.0), np.ones(4)
    weights = {"w": np.ones(4), "step": np.array(7)}
    step = aicf.train_step(graph, "mse", aicf.optimizers.SGD(0.0), weights=weights)
    assert float(step(x, y)) == pytest.approx(((x * 7 - y) ** 2).mean())
    assert float(step.replay(2)) == pytest.approx(((x * 9 - y) ** 2).mean())
    assert step.steps == 10 and len(step.losses()) == 3
