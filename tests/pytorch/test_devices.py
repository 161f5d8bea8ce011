"""Graphs with tensors on several devices, and targets of other devices. GPUs are fake here, and real in tests/gpu."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import aicf
import aicf.pytorch
from aicf.errors import AicfError, InvalidIR, PolicyError, UnsupportedOp
from aicf.frontends.torch import Computed, Void, lower_graph
from aicf.pytorch.compiling import options_for
from aicf.pytorch.devices import check_target, device_of_graph
from aicf.pytorch.graphs import CompiledGraph, EagerProgram, GraphInfo
from aicf.pytorch.options import TorchOptions
from aicf.pytorch.programs import Argument, TorchProgram
from aicf.pytorch.training.checks import check_devices
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]
GPU, HOST = torch.device("cuda:0"), torch.device("cpu")


def _traced(run: Callable[..., Any], *places: tuple[Any, ...]) -> tuple[torch.fx.GraphModule, list[Tensor]]:
    """The graph of a function of fake tensors, each given by its device and its sizes."""
    with FakeTensorMode():
        tensors = [torch.empty(sizes, device=device) for device, *sizes in places]
        return make_fx(run)(*tensors), tensors


def _to_the_host(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    return x.sum().cpu(), torch.full((3,), 1.0), x * scale, torch.empty(0)


def test_a_graph_runs_on_the_gpu_and_has_results_on_the_host() -> None:
    module, _ = _traced(_to_the_host, ("cuda", 4), ("cpu",))
    assert device_of_graph(module.graph) == GPU
    found = lower_graph(module.graph, "f")
    assert [port.device for port in found.inputs] == [GPU, HOST]
    devices = [
        output.port.device if isinstance(output, Computed) else output.device
        for output in found.outputs
        if isinstance(output, Computed | Void)
    ]
    assert devices == [HOST, HOST, GPU, HOST]


def test_a_graph_without_arguments_runs_where_it_creates_tensors() -> None:
    assert device_of_graph(_traced(lambda: torch.ones(3, device="cuda"))[0].graph) == GPU
    assert device_of_graph(_traced(lambda: torch.ones(3))[0].graph) == HOST


def test_arguments_that_nothing_reads_do_not_count() -> None:
    assert device_of_graph(_traced(lambda x, y: x * 2, ("cpu", 3), ("cuda", 3))[0].graph) == HOST


def test_arguments_on_the_host_are_listed_in_the_ledger() -> None:
    module, tensors = _traced(_to_the_host, ("cuda", 4), ("cpu",))
    graph = CompiledGraph(module, GraphInfo("inference", "f"), TorchOptions(target="cuda:sm_90"))
    (program, _), (_, scale) = graph._compiled({}, tensors), module.graph.find_nodes(op="placeholder")
    assert program.executable is not None
    said = str(program.executable.explain("inference"))
    because = "because it is on cpu, and the program runs on cuda:0"
    assert f"argument '{scale.name}' is copied in each call, {because}" in said
    assert said.count("is copied in each call") == 1


def test_several_gpus() -> None:
    module, tensors = _traced(lambda x, y: (x * 2, y + 1), ("cuda:0", 4), ("cuda:1", 4))
    graph = CompiledGraph(module, GraphInfo("inference", "f"), TorchOptions())
    with pytest.raises(UnsupportedOp) as caught:
        graph(list(tensors))
    assert (
        "a tensor is on cuda:1, and another one of the graph is on cuda:0 (node 'y_1'); "
        "move the model and its inputs to one GPU" in str(caught.value)
    )
    graph = CompiledGraph(module, GraphInfo("inference", "f"), TorchOptions(fallback="eager"))
    assert isinstance(graph._compiled_or_eager({}, tensors)[0], EagerProgram)


def test_a_program_moves_its_results() -> None:
    """To the device `meta`, as there is no other one here."""
    module, _ = _traced(lambda x: (x * 2, x + 1, torch.empty(0)), ("cpu", 4))
    graph = CompiledGraph(module, GraphInfo("inference", "f"), TorchOptions())
    x = torch.rand(4)
    program, _ = graph._compiled({}, [x])
    assert isinstance(program, TorchProgram)
    first, second, empty = program.lowered.outputs
    assert isinstance(first, Computed)
    moved = Computed(replace(first.port, device=torch.device("meta")))
    lowered = replace(program.lowered, outputs=[moved, second, replace(empty, device=torch.device("meta"))])
    for is_static in (False, True):
        other = TorchProgram(lowered, program.executable, HOST, is_static=is_static)
        for value in (x, x + 1):
            found = other([value])
            assert [each.device.type for each in found] == ["meta", "cpu", "meta"]
            assert [tuple(each.shape) for each in found] == [(4,), (4,), (0,)]
            assert_same(found[1], value + 1)


def _sent(x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.aten._to_copy.default(x, device=y.device) * y


def test_an_argument_is_copied_to_the_device_of_the_program() -> None:
    lowered = lower_graph(_traced(_sent, ("cpu", 2, 3), ("cuda",))[0].graph, "f")
    x = torch.rand(2, 3)
    (port, _) = lowered.inputs
    assert Argument.of(port, 1, HOST).with_layout(x) is x
    moved = Argument.of(port, 1, torch.device("meta")).with_layout(x)
    assert (moved.device.type, moved.shape, moved.stride()) == ("meta", x.shape, x.stride())


def test_a_target_of_another_device() -> None:
    for device, target, other in ((HOST, "cuda", "cuda"), (HOST, "cuda:sm_90", "cuda"), (GPU, "cpu", "cpu")):
        options = TorchOptions(target=target)
        with pytest.raises(PolicyError) as caught:
            options_for(options, device)
        assert str(caught.value) == (
            f"options: target is '{target}', and the tensors of the graph are on {device}; leave target out, or move "
            f"the model and its inputs, and create tensors, on {other}, as with .to('{other}')"
        )
    for device, target in (
        (HOST, None),
        (GPU, None),
        (HOST, "reference"),
        (HOST, "cpu"),
        (GPU, "cuda:sm_90"),
    ):
        check_target(TorchOptions(target=target), device)


def _refused(run: Any, *args: Any, **options: Any) -> str:
    with pytest.raises((BackendCompilerFailed, AicfError)) as caught:
        compiled(run, **options)(*args)
    inner: Any = getattr(caught.value, "inner_exception", caught.value)
    assert isinstance(inner, PolicyError)
    return str(inner)


def test_tensors_on_the_host_for_a_gpu_are_refused_before_anything_runs() -> None:
    said = "target is 'cuda', and the tensors of the graph are on cpu"
    x = random(3)
    assert said in _refused(lambda x: x.mul_(2), x, target="cuda")
    assert_same(x, random(3))
    assert said in _refused(lambda: torch.full((3,), 1.0), target="cuda")
    assert said in _refused(lambda x: (x * 2).sum(), random(3).requires_grad_(), target="cuda")
    assert said in _refused(lambda x: x * 2, x, target="cuda", fallback="eager")


@pytest.mark.parametrize("source", ["aicf", "pytorch", "auto"])
def test_a_step_on_the_host_for_a_gpu(source: str) -> None:
    model = nn.Linear(4, 3)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    options = {"target": "cuda", "gradients": source}
    step = aicf.pytorch.train_step(model, F.mse_loss, optimizer, options=options)
    with pytest.raises(PolicyError, match="target is 'cuda', and the tensors of the graph are on cpu"):
        step(torch.rand(2, 4), torch.rand(2, 3))
    assert_same(model.state_dict(), before)
    assert not optimizer.state


def test_weights_and_states_elsewhere_are_refused_by_a_step() -> None:
    weight = torch.rand(3)
    check_devices({"weight": weight}, HOST)
    with pytest.raises(InvalidIR) as caught:
        check_devices({"weight": weight, "weight.exp_avg": weight.to("meta")}, HOST)
    assert "'weight.exp_avg' is on meta, and the step runs on cpu; move the module with" in str(caught.value)


class _Moving(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Results on two devices."""
        moved = x.to("meta") * 2
        return moved.cpu() + torch.ones(3), moved + torch.ones(3, device="meta")


def test_an_exported_program_runs_on_the_device_of_its_target() -> None:
    """Its arguments and results are arrays of the host, whatever devices the traced model used."""
    with FakeTensorMode():
        program = torch.export.export(_Moving(), (torch.empty(3),))
    x = torch.rand(3)
    for found in aicf.compile(program, target="cpu")(x.numpy()):
        assert_same(torch.from_numpy(found), x * 2 + 1)
