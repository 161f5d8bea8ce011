"""ONNX models trained on digits beside the modules that they would be exported from, in PyTorch's f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicf
from tests.support.onnx_training import cnn, cnn_weights, digit_batches, mlp, mlp_weights

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

ROWS, STEPS = 32, 10
ACCURACY = {"f64": 1e-9, "f32": 1e-4}
DTYPES: dict[str, Any] = {"f64": np.float64, "f32": np.float32}


class Mlp(torch.nn.Module):
    """`onnx_training.mlp`."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(64, 24), torch.nn.Linear(24, 10)

    def forward(self, x: Any) -> Any:
        return self.fc2(torch.relu(self.fc1(x)))


class Cnn(torch.nn.Module):
    """`onnx_training.cnn`: its batch norm is in evaluation mode, and its weights are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.Conv2d(8, 12, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(8).eval()
        self.scale = torch.nn.Parameter(torch.ones(12, 1, 1))
        self.fc = torch.nn.Linear(48, 10)

    def forward(self, x: Any) -> Any:
        hidden = torch.max_pool2d(torch.relu(self.bn(self.conv1(x))), 2)
        hidden = torch.tanh(self.conv2(hidden) * (self.scale * 0.5))
        return self.fc(torch.nn.functional.avg_pool2d(hidden, 2).flatten(1))


MODELS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, mlp_weights, Mlp, (64,)),
    "cnn": (cnn, cnn_weights, Cnn, (1, 8, 8)),
}
OPTIMIZERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "momentum": (aicf.optimizers.SGD(0.05, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "adamw": (aicf.optimizers.AdamW(1e-2), lambda p: torch.optim.AdamW(p, 1e-2)),
}


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_weights_are_those_of_pytorch(name: str, optimizer: str, dtype: str) -> None:
    flow, random_weights, module, shape = MODELS[name]
    ours, theirs = OPTIMIZERS[optimizer]
    weights = random_weights(DTYPES[dtype])
    step = aicf.train_step(flow(weights), "cross_entropy", ours, dims={"batch": ROWS})
    peer = module().double()
    values = {key: torch.from_numpy(value.astype(np.float64)) for key, value in weights.items()}
    peer.load_state_dict(values, strict=False)
    optimizer_of_peer = theirs(peer.parameters())
    losses: list[float] = []
    for x, y in digit_batches(STEPS, ROWS, shape, DTYPES[dtype]):
        step(x, y)
        optimizer_of_peer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            peer(torch.from_numpy(x.astype(np.float64))), torch.from_numpy(y)
        )
        loss.backward()
        optimizer_of_peer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(step.losses(), losses, rtol=ACCURACY[dtype])
    trained = step.weights()
    assert trained.keys() == weights.keys()
    for key, value in peer.state_dict().items():
        if key in weights:
            np.testing.assert_allclose(
                trained[key], value.numpy(), rtol=ACCURACY[dtype], atol=20 * ACCURACY[dtype], err_msg=key
            )
