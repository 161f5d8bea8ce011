"""What a call reuses of the call before it, and what it must not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from aicf.pytorch import streams, tensors
from aicf.pytorch.graphs import CompiledGraph, GraphInfo
from aicf.pytorch.launcher import Launcher
from aicf.pytorch.options import TorchOptions
from aicf.pytorch.streams import current_stream, is_capturing
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = pytest.mark.peers


def _graph(function: Callable[..., Any], *args: Tensor, params: Sequence[int] = ()) -> CompiledGraph:
    """A graph without TorchDynamo, whose guards would see another layout before the graph does."""
    info = GraphInfo("inference", "graph", frozenset(params))
    return CompiledGraph(make_fx(function)(*args), info, TorchOptions())


def test_another_layout_at_the_address_of_the_last_input() -> None:
    x = random(4, 4)
    run = _graph(lambda x: [x + 1], x)
    for each in (x, x, x.t(), x.t(), x, x.t()):
        assert_same(run([each]), [each + 1])


def test_another_view_of_the_same_elements() -> None:
    """A view that negates has the address of the tensor."""
    z = torch.randn(4, dtype=torch.complex128)
    run = _graph(lambda x: [x * 2], torch.randn(4, dtype=torch.float64)[::1])
    plain, negated = z.imag, z.conj().imag
    for each in (plain, negated, plain, negated):
        assert_same(run([each]), [each * 2])


def test_addresses_of_every_alignment() -> None:
    memory = random(64)
    run = _graph(lambda x: [x + 1], memory[:16])
    for start in (0, 1, 2, 3, 0, 1):
        x = memory[start : start + 16]
        assert_same(run([x]), [x + 1])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_parameter_that_is_copied_in_each_call(order: Sequence[int]) -> None:
    """It is not dense, and its values change in place."""
    weight, x = random(8, 16)[:, ::2], random(8, 8)
    args = [(weight, x)[index] for index in order]

    def product(*args: Tensor) -> list[Tensor]:
        return [args[order[1]] @ args[order[0]]]

    run = _graph(product, *args, params=[order.index(0)])
    for factor in (1.0, 2.0, 0.5):
        weight.mul_(factor)
        assert_same(run(list(args)), [x @ weight])


def test_results_are_new_in_each_call_and_of_the_mode_of_the_call() -> None:
    ours = compiled(nn.Linear(8, 8))
    x = torch.randn(3, 8)
    for mode, is_inference in ((torch.no_grad, False), (torch.inference_mode, True)):
        with mode():
            first = ours(x)
            kept = first.clone()
            second = ours(x * 2)
        assert first.data_ptr() != second.data_ptr()
        assert_same(first, kept)
        assert first.is_inference() == second.is_inference() == is_inference


def test_the_same_tensors_are_launched_at_the_same_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Sequence[int]] = []
    launch = Launcher.launch

    def noted(self: Launcher, addresses: Sequence[int], *rest: Any) -> None:
        launched.append(addresses)
        launch(self, addresses, *rest)

    monkeypatch.setattr(Launcher, "launch", noted)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), torch.randn(48, 64)
    ours = compiled(model, static_outputs=True)
    with torch.no_grad():
        for _ in range(3):
            assert_same(ours(x), model(x), 1e-5)
    assert launched[0] == launched[1] == launched[2]
    assert x.data_ptr() in launched[0]


def test_threads_with_other_sizes_of_one_graph() -> None:
    """Each finds its own program, whichever ran last."""
    model = nn.Linear(8, 8).double()
    ours = compiled(model, dynamic=True)
    failures: list[BaseException] = []

    def call(rows: int) -> None:
        try:
            with torch.no_grad():
                for seed in range(50):
                    x = random(rows, 8, seed=seed)
                    assert_same(ours(x), model(x), 1e-9)
        except BaseException as error:
            failures.append(error)

    with torch.no_grad():
        for rows in (2, 3):
            ours(random(rows, 8))
    threads = [threading.Thread(target=call, args=(rows,)) for rows in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_host_has_no_streams() -> None:
    device = torch.device("cpu")
    assert current_stream(device).handle() == 0
    assert is_capturing(device) is False


def test_the_stream_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index it is the device that is current at the time of the call."""
    fake = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 100 + index)
    monkeypatch.setattr(streams, "_C", fake)
    of = current_stream.__wrapped__
    assert of(torch.device("cuda:1")).handle() == 101
    handle = of(torch.device("cuda")).handle
    for current in (0, 2):
        monkeypatch.setattr(torch.cuda, "current_device", lambda current=current: current)
        assert handle() == 100 + current


def test_results_are_on_the_device_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way allocates on the current device, so that it is taken only if that is the one."""
    current = 0
    guards = SimpleNamespace(_empty_strided_cuda=lambda *spec: ("current", *spec))
    fake = SimpleNamespace(_cuda_getDevice=lambda: current, _dynamo=SimpleNamespace(guards=guards))
    monkeypatch.setattr(tensors, "_C", fake)
    monkeypatch.setattr(torch, "empty_strided", lambda *spec, dtype, device: (device, *spec, dtype))
    device, spec = torch.device("cuda:1"), ((2, 3), (3, 1), torch.float16)
    empty = tensors.empty_on(device)
    assert empty(*spec) == (device, *spec)
    current = 1
    assert empty(*spec) == ("current", *spec)
