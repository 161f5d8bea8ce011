"""Whole training steps beside PyTorch: same first weights, same batches, f64 over 50 steps and f32 over 20."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.training import initial_weights
from tests.support.training_models import HIDDEN, INPUTS, batches, classifier

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

ACCURACY = {"f64": (50, 1e-9), "f32": (20, 1e-4)}
DTYPES = {"f64": torch.float64, "f32": torch.float32}

OPTIMIZERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "momentum": (
        aicf.optimizers.SGD(0.05, momentum=0.9, weight_decay=1e-3),
        lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=1e-3),
    ),
    "adam": (aicf.optimizers.Adam(1e-2), lambda params: torch.optim.Adam(params, 1e-2)),
    "adamw": (
        aicf.optimizers.AdamW(1e-2, amsgrad=True),
        lambda params: torch.optim.AdamW(params, 1e-2, amsgrad=True),
    ),
}


def peer_of(weights: dict[str, np.ndarray], dtype: str) -> Any:
    """The classifier as a module, under the same names."""
    layers = {
        "fc1": torch.nn.Linear(INPUTS, HIDDEN),
        "relu": torch.nn.ReLU(),
        "fc2": torch.nn.Linear(HIDDEN, 3),
    }
    model = torch.nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    model = model.to(DTYPES[dtype])
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return model


def train_peer(
    model: Any, optimizer: Any, steps: int, dtype: str, parts: int = 1, clip: float = 0.0
) -> list[float]:
    """The losses of each step; with `parts` gradients are accumulated, as PyTorch's users do it."""
    losses: list[float] = []
    for x, y in batches(steps, dtype=dtype):
        optimizer.zero_grad()
        total = 0.0
        for rows in np.split(np.arange(len(y)), parts):
            scores = model(torch.from_numpy(x[rows]))
            loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y[rows])) / parts
            loss.backward()
            total += float(loss.detach())
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(total)
    return losses


def states_of(model: Any, optimizer: Any) -> dict[str, np.ndarray]:
    """Parameters and states by the names of a `TrainStep`."""
    found = {name: value.detach().numpy() for name, value in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for state, value in optimizer.state[parameter].items():
            if state != "step":
                found[f"{name}.{state}"] = value.numpy()
    return found


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_trajectory_is_that_of_pytorch(name: str, dtype: str):
    steps, tolerance = ACCURACY[dtype]
    ours, theirs = OPTIMIZERS[name]
    graph = classifier(dtype=dtype)
    weights = initial_weights(graph, seed=1)
    step = aicf.train_step(graph, "cross_entropy", ours, weights=weights)
    for x, y in batches(steps, dtype=dtype):
        step(x, y)
    model = peer_of(weights, dtype)
    optimizer = theirs(model.parameters())
    losses = train_peer(model, optimizer, steps, dtype)
    np.testing.assert_allclose(step.losses(), losses, rtol=tolerance)
    expected = states_of(model, optimizer)
    state = step.state_dict()
    assert state.keys() == {*expected, "step"}
    for key, array in expected.items():
        np.testing.assert_allclose(
            state[key], array, rtol=tolerance, atol=tolerance * np.abs(array).max(), err_msg=key
        )


def test_accumulation_and_clipping_are_those_of_pytorch():
    graph = classifier(4)
    weights = initial_weights(graph, seed=2)
    step = aicf.train_step(
        graph, "cross_entropy", aicf.optimizers.Adam(1e-2), weights=weights, micro_batches=2, clip_norm=0.2
    )
    for x, y in batches(50):
        step(x, y)
    model = peer_of(weights, "f64")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = train_peer(model, optimizer, 50, "f64", parts=2, clip=0.2)
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-9)


def test_first_weights_are_spread_as_in_pytorch():
    """The same distribution: bounds, mean and variance of a layer with many weights."""
    graph = aicf.Graph("wide")
    x, w, b = graph.input("x", (1, 400)), graph.param("w", (500, 400)), graph.param("b", (500,))
    graph.output(graph.linear(x, w, b), "y")
    ours = initial_weights(graph, seed=0)
    layer = torch.nn.Linear(400, 500)
    for name, theirs in (("w", layer.weight), ("b", layer.bias)):
        peer = theirs.detach().numpy()
        assert np.abs(ours[name]).max() <= 0.05 and np.abs(peer).max() <= 0.05
        assert ours[name].std() == pytest.approx(peer.std(), rel=0.1)
        assert abs(ours[name].mean()) < 0.01
