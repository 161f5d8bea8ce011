"""Training steps from models: trajectories beside NumPy in f64, losses, state, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf import Graph, InputMismatch, InvalidIR, PlanError
from aicf.dialects.emit import ProgramOp, find_ledger
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.training import initial_weights
from aicf.training.forward import read_forward
from aicf.training.step_graph import Recipe, write_step
from tests.support.training_models import HIDDEN, INPUTS, batches, classifier

ROOT = Path(__file__).parent.parent.parent
RATE, MOMENTUM = 0.1, 0.9


class Expected:
    """The classifier trained by SGD with momentum, written by hand in NumPy."""

    def __init__(self, weights: dict[str, np.ndarray], frozen: tuple[str, ...] = ()) -> None:
        self.weights = {name: array.copy() for name, array in weights.items()}
        self.buffers = {name: np.zeros_like(array) for name, array in weights.items() if name not in frozen}

    def gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
        w = self.weights
        before = x @ w["fc1.weight"].T + w["fc1.bias"]
        hidden = np.maximum(before, 0)
        logits = hidden @ w["fc2.weight"].T + w["fc2.bias"]
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = -np.log(shares[rows, y]).mean()
        shares[rows, y] -= 1
        shares /= len(y)
        back = (shares @ w["fc2.weight"]) * (before > 0)
        return float(loss), {
            "fc1.weight": back.T @ x,
            "fc1.bias": back.sum(axis=0),
            "fc2.weight": shares.T @ hidden,
            "fc2.bias": shares.sum(axis=0),
        }

    def step(self, x: np.ndarray, y: np.ndarray, rate: float = RATE) -> float:
        loss, gradients = self.gradients(x, y)
        for name, buffer in self.buffers.items():
            buffer *= MOMENTUM
            buffer += gradients[name]
            self.weights[name] -= rate * buffer
        return loss


def sgd(lr: float | aicf.schedules.Schedule = RATE) -> aicf.optimizers.SGD:
    return aicf.optimizers.SGD(lr, momentum=MOMENTUM)


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return initial_weights(classifier(), seed=3)


@pytest.fixture(scope="module")
def compiled(weights: dict[str, np.ndarray]) -> aicf.TrainStep:
    return aicf.train_step(classifier(), "cross_entropy", sgd(aicf.schedules.FromHost(RATE)), weights=weights)


@pytest.fixture
def step(compiled: aicf.TrainStep, weights: dict[str, np.ndarray]) -> aicf.TrainStep:
    """The step as it was when it was compiled."""
    zeros = {name: np.zeros_like(array) for name, array in compiled.state_dict().items()}
    compiled.load_state_dict({**zeros, **weights, "lr": np.asarray(RATE)})
    return compiled


def test_steps_are_those_of_numpy(step: aicf.TrainStep, weights: dict[str, np.ndarray]):
    expected = Expected(weights)
    losses = [expected.step(x, y) for x, y in batches(20)]
    for x, y in batches(20):
        step(x, y)
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-12)
    state = step.state_dict()
    for name, buffer in expected.buffers.items():
        np.testing.assert_allclose(state[name], expected.weights[name], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state[f"{name}.momentum_buffer"], buffer, rtol=1e-9, atol=1e-12)
    assert state["step"] == step.steps == 20


def test_replays_are_steps_on_the_same_batch(step: aicf.TrainStep, weights: dict[str, np.ndarray]):
    ((x, y),) = batches(1)
    expected = Expected(weights)
    losses = [expected.step(x, y) for _ in range(1500)]
    first, last = step(x, y), step.replay(1499)
    assert (first.number, last.number) == (1, 1500)
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-6)  # more of them than the ring holds at once
    assert float(first) == step.losses()[0] and float(last) == step.losses()[-1]


def test_the_host_sets_the_learning_rate(step: aicf.TrainStep, weights: dict[str, np.ndarray]):
    expected = Expected(weights)
    rates = [0.1, 0.02, 0.3]
    for (x, y), rate in zip(batches(3), rates, strict=True):
        step.set_learning_rate(rate)
        step(x, y)
        expected.step(x, y, rate)
    np.testing.assert_allclose(step.weights()["fc2.weight"], expected.weights["fc2.weight"], rtol=1e-12)
    assert step.state_dict()["lr"] == rates[-1]


def test_weights_are_those_that_compile_takes(step: aicf.TrainStep, weights: dict[str, np.ndarray]):
    ((x, y),) = batches(1)
    step(x, y)
    assert step.weights().keys() == weights.keys()
    before = aicf.compile(classifier(), step.weights(), "reference")(x)
    shares = before - np.log(np.exp(before).sum(axis=1, keepdims=True))
    step(x, y)
    assert step.losses()[1] == pytest.approx(-shares[np.arange(len(y)), y].mean(), rel=1e-12)


def test_micro_batches_are_the_batch(weights: dict[str, np.ndarray]):
    step = aicf.train_step(
        classifier("N"), "cross_entropy", sgd(), weights=weights, micro_batches=4, dims={"N": 2}
    )
    expected = Expected(weights)
    losses = [expected.step(x, y) for x, y in batches(5)]
    for x, y in batches(5):
        step(x, y)
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-12)
    np.testing.assert_allclose(step.weights()["fc1.weight"], expected.weights["fc1.weight"], rtol=1e-10)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_micro_batches_take_the_memory_of_each_other(target: str):
    """Of a model whose activations are most of its memory: half of it at least is saved by four parts."""
    arenas: list[int] = []
    for parts in (1, 4):
        step = aicf_training_passes(deep(256 // parts), parts, target)
        (program,) = (op for op in step.body.block.ops if isinstance(op, ProgramOp))
        assert program.arena_bytes is not None
        arenas.append(program.arena_bytes.value.data)
        if parts > 1:
            ledger = find_ledger(step)
            assert ledger is not None
            assert any("they are of different micro-batches" in str(op.rejected) for op in ledger.decisions)
    assert arenas[1] < arenas[0] / 2


def deep(rows: int) -> Graph:
    """Four layers of 32 with GELU."""
    graph = Graph("deep")
    value = graph.input("x", (rows, 32))
    for layer in range(4):
        weight, bias = graph.param(f"fc{layer}.weight", (32, 32)), graph.param(f"fc{layer}.bias", (32,))
        value = graph.gelu(graph.linear(value, weight, bias, name=f"fc{layer}"))
    graph.output(value, "y_hat")
    return graph


def aicf_training_passes(graph: Graph, parts: int, target: str) -> ModuleOp:
    """The final program of a step; nothing is compiled."""
    recipe = Recipe(aicf.losses.MSELoss(), aicf.optimizers.SGD(), micro_batches=parts)
    module = write_step(read_forward(graph), recipe).graph.module()
    AicfTrainingPass("cpu:x86-64-v3" if target == "cpu" else target).apply(make_context(), module)
    return module


def test_sums_over_micro_batches_add_up(weights: dict[str, np.ndarray]):
    loss = aicf.losses.CrossEntropyLoss("sum")
    step = aicf.train_step(classifier(4), loss, aicf.optimizers.SGD(0.01), weights=weights, micro_batches=2)
    ((x, y),) = batches(1)
    mean, gradients = Expected(weights).gradients(x, y)
    assert float(step(x, y)) == pytest.approx(8 * mean, rel=1e-12)
    moved = weights["fc1.bias"] - 0.01 * 8 * gradients["fc1.bias"]
    np.testing.assert_allclose(step.weights()["fc1.bias"], moved, rtol=1e-10)


def test_gradients_are_clipped_together(weights: dict[str, np.ndarray]):
    step = aicf.train_step(
        classifier(), "cross_entropy", aicf.optimizers.SGD(0.5), weights=weights, clip_norm=0.25
    )
    ((x, y),) = batches(1)
    _, gradients = Expected(weights).gradients(x, y)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    assert norm > 0.25
    step(x, y)
    for name, array in step.weights().items():
        moved = weights[name] - 0.5 * gradients[name] * 0.25 / (norm + 1e-6)
        np.testing.assert_allclose(array, moved, rtol=1e-10)


def test_frozen_parameters_stay(weights: dict[str, np.ndarray]):
    step = aicf.train_step(classifier(), "cross_entropy", sgd(), weights=weights, frozen=["fc1.*"])
    expected = Expected(weights, frozen=("fc1.weight", "fc1.bias"))
    for x, y in batches(3):
        step(x, y)
        expected.step(x, y)
    for name, array in step.weights().items():
        np.testing.assert_allclose(array, expected.weights[name], rtol=1e-12)
    np.testing.assert_array_equal(step.weights()["fc1.weight"], weights["fc1.weight"])
    assert "fc1.weight.momentum_buffer" not in step.state_dict()
    other = {**step.state_dict(), "fc1.bias": np.ones(HIDDEN)}
    with pytest.raises(InputMismatch, match="'fc1.bias' is frozen, and has other values here"):
        step.load_state_dict(other)


def test_sizes_share_one_state(weights: dict[str, np.ndarray]):
    step = aicf.train_step(classifier("N"), "cross_entropy", sgd(), weights=weights, dims={"N": [8, 3]})
    expected = Expected(weights)
    for rows in (8, 3, 8):
        ((x, y),) = batches(1, rows, seed=rows)
        assert float(step(x, y)) == pytest.approx(expected.step(x, y), rel=1e-12)
    assert step.steps == 3


def test_a_model_may_compute_its_loss(weights: dict[str, np.ndarray]):
    graph = Graph("distance")
    x, w = graph.input("x", (4, 2), "f64"), graph.param("w", (2,), "f64")
    graph.output(graph.reduce_mean((x - w) ** 2.0, [0, 1]), "loss")
    step = aicf.train_step(graph, None, aicf.optimizers.SGD(0.25), weights={"w": np.zeros(2)})
    x_array = np.random.default_rng(0).normal(size=(4, 2))
    assert float(step(x_array)) == pytest.approx((x_array**2).mean(), rel=1e-12)
    np.testing.assert_allclose(step.weights()["w"], 0.25 * x_array.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("meta", ["device", "host"])
def test_a_step_that_is_not_finite_changes_nothing(
    weights: dict[str, np.ndarray], meta: Literal["device", "host"]
):
    optimizer = aicf.optimizers.Adam(aicf.schedules.Linear(0.01, total=50, warmup=3))
    options = {"weights": weights, "meta": meta, "check_finite": True}
    step = aicf.train_step(classifier(), "cross_entropy", optimizer, **options)
    good = batches(4)
    for x, y in good[:3]:
        step(x, y)
    before = step.state_dict()
    assert step.bad_step is None and before["step"] == 3
    x, y = good[3]
    bad = step(np.where(np.arange(x.size).reshape(x.shape) == 7, np.nan, x), y)
    after = step(x, y)
    assert step.bad_step == 4 and step.steps == 3 and len(step.losses()) == 3
    for loss in (bad, after):
        with pytest.raises(InputMismatch, match=f"step 4 was not finite: .* step {loss.number} has no loss"):
            float(loss)
    state = step.state_dict()
    assert state.keys() == before.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])
    step.load_state_dict(before)
    assert step.bad_step is None and np.isfinite(float(step(x, y))) and step.steps == 4


def test_the_executable_may_count_and_compute_rates(weights: dict[str, np.ndarray]):
    """By the host or by the program: the same trajectory, also of several steps at once and from a checkpoint."""
    optimizer = aicf.optimizers.Adam(aicf.schedules.Cosine(0.01, total=30, warmup=3))
    model = classifier()
    one, other = (
        aicf.train_step(model, "cross_entropy", optimizer, weights=weights, meta=meta)
        for meta in ("device", "host")
    )
    for step in (one, other):
        for x, y in batches(3):
            step(x, y)
            step.replay(4)
    np.testing.assert_allclose(other.losses(), one.losses(), rtol=1e-12)
    other.load_state_dict(one.state_dict())
    assert other.steps == 15
    ((x, y),) = batches(1, seed=1)
    assert float(other(x, y)) == pytest.approx(float(one(x, y)), rel=1e-13)


def noisy(rows: int) -> Graph:
    """The loss is the number of inputs that dropout kept, over what is kept on average; it draws anew each step."""
    graph = Graph("noisy")
    x, w = graph.input("x", (rows, 64)), graph.param("w", (64,))
    seed, step = graph.meta("seed", (), "i64"), graph.meta("step", (), "i64")
    graph.output(graph.reduce_mean(graph.dropout(x * w, seed, step * 16, 0.5), [0, 1]), "loss")
    return graph


def test_dropout_draws_anew_each_step_and_repeats_by_its_seed():
    x, still = np.ones((1, 64), np.float32), aicf.optimizers.SGD(0.0)
    runs: list[np.ndarray] = []
    for seed in (1, 1, 2):
        step = aicf.train_step(noisy(1), None, still, weights={"w": np.ones(64, np.float32)}, seed=seed)
        step(x)
        step.replay(19)
        runs.append(step.losses())
    np.testing.assert_array_equal(runs[0], runs[1])
    assert len(set(runs[0])) > 5 and not np.array_equal(runs[0], runs[2])
    assert runs[0].mean() == pytest.approx(1, abs=0.15)
    state = step.state_dict()
    step.replay(5)
    later = step.losses()[-5:]
    step.load_state_dict(state)
    step.replay(5)
    np.testing.assert_array_equal(step.losses(), later)
    assert step.state_dict()["step"] == 25 and step.weights().keys() == {"w"}


def test_micro_batches_draw_numbers_of_their_own():
    """Parts of one step have the numbers of as many steps."""
    weights, still = {"w": np.ones(64, np.float32)}, aicf.optimizers.SGD(0.0)
    one = aicf.train_step(noisy(1), None, still, weights=weights, seed=3)
    parts = aicf.train_step(noisy(1), None, still, weights=weights, seed=3, micro_batches=2)
    one(np.ones((1, 64), np.float32))
    one.replay(5)
    parts(np.ones((2, 64), np.float32))
    parts.replay(2)
    np.testing.assert_allclose(parts.losses(), one.losses().reshape(3, 2).mean(axis=1), rtol=1e-6)


# Bad input


def test_feeds_never_touch_parameters_or_state(step: aicf.TrainStep):
    ((x, y),) = batches(1)
    before = step.state_dict()
    for name in ("fc1.weight", "fc1.weight.momentum_buffer", "step"):
        with pytest.raises(InputMismatch, match=f"'{name}' is no input: a feed replaces inputs only"):
            step(x, y, **{name: before[name]})
    for wrong in (lambda: step(x), lambda: step(x, y, z=y), lambda: step(x, y, x=x), lambda: step(x, y, y)):
        with pytest.raises(InputMismatch):
            wrong()
    for name, array in step.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_what_is_no_number_of_steps_or_no_rate_changes_nothing(step: aicf.TrainStep):
    ((x, y),) = batches(1)
    step(x, y)
    before: dict[str, Any] = step.state_dict()
    for n in (2.5, 0, -1, "3", True):
        with pytest.raises(InputMismatch, match=re.escape(f"{n!r} is no number of runs; give a whole one")):
            step.replay(n)  # pyright: ignore[reportArgumentType]
    for rate in ("a", "0.1", None, np.nan, np.inf, [0.1, 0.2], 1j, True, 10**400):
        with pytest.raises(InputMismatch, match="the learning rate is one finite number"):
            step.set_learning_rate(rate)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputMismatch, match="'step' is -5 in the state; a training step counts from 0"):
        step.load_state_dict({**before, "step": -5})
    for name, array in step.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    step.set_learning_rate(np.array(0.5, np.float32))
    assert step.replay(np.int64(2)).number == 3 and step.state_dict()["lr"] == 0.5


def refuses(
    message: str, graph: Graph, loss: aicf.losses.Loss | str | None = "mse", **options: object
) -> None:
    with pytest.raises(InvalidIR, match=re.escape(message)):
        aicf.train_step(graph, loss, sgd(), **options)  # pyright: ignore[reportArgumentType]


def test_messages_are_in_the_words_of_users():
    refuses(
        "there is no loss 'mean'; legal: bce_with_logits, cross_entropy, huber, mse", classifier(), "mean"
    )
    refuses("frozen: 'fc9.*' names no parameter", classifier(), frozen=["fc9.*"])
    refuses("nothing to train: the model has no parameter that is not frozen", classifier(), frozen=["*"])
    refuses("without a loss, the model's one output is 'loss'; 'classifier' has logits", classifier(), None)
    for wrong in (0, 2.5, True, "2"):
        refuses(f"micro_batches is {wrong!r}; it is a whole number", classifier(), micro_batches=wrong)
    refuses("micro-batches have a fixed size", classifier("N"), micro_batches=2)
    with pytest.raises(InvalidIR, match="reduction is 'none'; a step goes down one number"):
        aicf.losses.MSELoss("none")  # pyright: ignore[reportArgumentType]


def test_a_budget_that_no_choice_meets_is_refused():
    with pytest.raises(PlanError, match="budget"):
        aicf.train_step(classifier(), "cross_entropy", sgd(), memory_budget=1)


def test_a_parameter_that_the_loss_does_not_reach_is_named():
    graph = classifier()
    graph.param("unused.weight", (2, 2), "f64")
    refuses(
        "the loss does not depend on 'unused.weight'; leave it out, or declare it frozen", graph, weights={}
    )


def test_a_loss_that_is_no_number_is_refused():
    graph = Graph("rows")
    x, w = graph.input("x", (4, INPUTS)), graph.param("w", (INPUTS,))
    graph.output(graph.reduce_sum(x * w, [1]), "loss")
    refuses("the loss is 4xf32; it is one float", graph, None)


def test_two_outputs_have_no_loss():
    graph = Graph("two")
    x, w = graph.input("x", (4,)), graph.param("w", (4,))
    graph.output(x * w, "a")
    graph.output(x + w, "b")
    refuses("the loss is taken of one output, 'two' has a, b", graph)


def test_a_training_step_is_not_trained_again(compiled: aicf.TrainStep):
    with pytest.raises(InvalidIR, match="'classifier_step' is a training step already"):
        aicf.train_step(compiled.ir("logical"), None, sgd())
