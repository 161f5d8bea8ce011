"""Whole networks, small: inference, gradients and steps of training against eager mode."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import aicf.pytorch
from tests.support.pytorch_backend import assert_same, compiled, gradients

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

FILE = Path(__file__).parents[2] / "benchmarks" / "models" / "torch_networks.py"


def _definitions() -> ModuleType:
    """benchmarks/models is no package."""
    spec = spec_from_file_location("networks_of_pytorch", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


torch_networks = _definitions()
NETWORKS: dict[str, Any] = torch_networks.NETWORKS
Factory = Any
OPTIMIZERS: dict[str, Factory] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-2, eps=1e-3),
}


def _wide(name: str, **options: int) -> Any:
    """A network in f64, where rounding cannot hide a mistake."""
    network = torch_networks.make(name, True, **options)
    network.module.double()
    inputs = {
        key: value.double() if value.is_floating_point() else value for key, value in network.inputs.items()
    }
    return replace(network, inputs=inputs)


def _assert_whole() -> None:
    report = aicf.pytorch.report()
    assert not report.breaks
    assert not report.eager
    assert report.executables


@pytest.mark.parametrize("name", NETWORKS)
def test_inference(name: str) -> None:
    network = _wide(name, batch=2)
    with torch.no_grad():
        expected = network.result(network.module)
        found = network.result(compiled(network.module))
    assert_same(found, expected, 1e-6)  # T5 and Llama compute norms and positions in f32
    _assert_whole()


@pytest.mark.parametrize("name", [*(name for name in NETWORKS if name != "bert"), *torch_networks.FINE_TUNED])
def test_gradients(name: str) -> None:
    """The encoder of BERT is that of the classifier."""
    network = _wide(name)
    theirs = copy.deepcopy(network.module)
    expected = network.loss(theirs)
    expected.backward()
    found = network.loss(compiled(network.module))
    found.backward()
    assert_same(found, expected, 1e-5)
    assert_same(gradients(network.module), gradients(theirs), 1e-6)
    _assert_whole()


def _loss_of(network: Any) -> Any:
    return lambda result, _: torch_networks.weighted_square(network.result(lambda **_: result))


@pytest.mark.parametrize(("name", "optimizer"), [("gpt2", "adamw"), ("resnet", "sgd"), ("vit", "sgd")])
def test_three_steps(name: str, optimizer: str) -> None:
    network = _wide(name, batch=2)
    network.module.train()
    for module in network.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for module in network.module.modules():
        for attribute in ("dropout_prob", "attn_dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    theirs = copy.deepcopy(network.module)
    our_optimizer = OPTIMIZERS[optimizer](network.module.parameters())
    their_optimizer = OPTIMIZERS[optimizer](theirs.parameters())
    step = aicf.pytorch.train_step(network.module, _loss_of(network), our_optimizer)
    for _ in range(3):
        found = step(torch.zeros(()), **network.inputs)
        their_optimizer.zero_grad()
        expected = torch_networks.weighted_square(network.result(theirs))
        expected.backward()
        their_optimizer.step()
        assert_same(found, expected.detach(), 1e-8)
    assert_same(dict(network.module.state_dict()), dict(theirs.state_dict()), 1e-7)
