"""Modules under DDP and FSDP, in a group of one process on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import aicf.pytorch
from aicf.errors import InvalidIR
from aicf.pytorch import aicf_backend
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    # TorchDynamo looks at the gradient of whatever tensor it is given.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """A layer."""
        return torch.tanh(self.layer(x))


class _Own(nn.Module):
    """Of classes of the user: TorchDynamo does not compile the methods of PyTorch's own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.Sequential(_Block(4, 8), _Block(8, 2)).double()

    def forward(self, x: Tensor) -> Tensor:
        """See above."""
        return self.blocks(x) * 2


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Generator[None]:
    """One process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def _assert_three_steps(run: nn.Module, parameters: nn.Module, theirs: nn.Module) -> None:
    """As many as eager mode makes of the same weights; and AICF made programs for them."""
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (parameters, theirs)]
    for seed in range(3):
        x = random(3, 4, seed=seed)
        losses = [module(x).square().sum() for module in (run, theirs)]
        assert_same(losses[0], losses[1], 1e-9)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    report = aicf.pytorch.report()
    assert {graph.kind for graph in report.graphs if graph.programs} >= {"forward", "backward"}
    assert any("addmm" in str(executable.explain()) for executable in report.executables)


def test_a_distributed_module_is_compiled() -> None:
    model = _Own()
    theirs = copy.deepcopy(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    _assert_three_steps(torch.compile(wrapped, backend=aicf_backend), wrapped, theirs)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


def test_a_compiled_module_is_distributed() -> None:
    model = _Own()
    theirs = copy.deepcopy(model)
    wrapped = nn.parallel.DistributedDataParallel(torch.compile(model, backend=aicf_backend))
    _assert_three_steps(wrapped, wrapped, theirs)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


def test_modules_compile_themselves_and_are_sharded() -> None:
    model = _Own()
    theirs, mesh = copy.deepcopy(model), init_device_mesh("cpu", (1,))
    for block in model.blocks:
        block.compile(backend=aicf_backend)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    _assert_three_steps(model, model, theirs)
    state = {name: value.full_tensor() for name, value in model.state_dict().items()}
    assert_same(state, dict(theirs.state_dict()), 1e-9)


def test_a_step_refuses_shards() -> None:
    model = _Own()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = aicf.pytorch.train_step(model, nn.functional.mse_loss, optimizer)
    with pytest.raises(
        InvalidIR, match="'blocks.0.layer.weight' is a DTensor, .*torch.compile, which traces its parts"
    ):
        step(random(3, 4), random(3, 2))
