"""Options of the backend: what each does."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aicf
import aicf.pytorch
from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[2]


def _layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))


def _origins() -> list[str]:
    return [program.origin for graph in aicf.pytorch.report().graphs for program in graph.programs]


def _instructions(model: nn.Module) -> int:
    return sum(
        len(run.launches) for each in aicf.pytorch.report(model).executables for run in each.plan.programs
    )


UNFUSED: aicf.Policy = {"fusion": {"epilogue": False}}


def test_a_policy() -> None:
    one, other, x = _layers(), _layers(), random(4, 16, dtype=torch.float32)
    with torch.no_grad():
        assert_same(compiled(one)(x), one(x), 1e-5)
        torch._dynamo.reset()
        assert_same(compiled(other, policy=UNFUSED)(x), other(x), 1e-5)
        more = _instructions(other)
        torch._dynamo.reset()
        compiled(one)(x)
    assert more > _instructions(one)


def test_a_policy_in_force() -> None:
    one, other, x = _layers(), _layers(), random(4, 16, dtype=torch.float32)
    with torch.no_grad():
        with aicf.pytorch.policy(UNFUSED):
            assert_same(compiled(one)(x), one(x), 1e-5)
        more = _instructions(one)
        torch._dynamo.reset()
        compiled(other)(x)
    assert more > _instructions(other)


def test_a_policy_that_is_not_legal() -> None:
    with pytest.raises(Exception, match="nonsense: unknown field"):
        compiled(_layers(), policy={"nonsense": 1})(torch.ones(4, 16))


def test_a_policy_in_force_that_is_not_legal() -> None:
    with pytest.raises(aicf.AicfError), aicf.pytorch.policy({"nonsense": 1}):
        pass


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int) -> None:
    model, x = _layers(), random(4, 16, dtype=torch.float32)
    with torch.no_grad():
        assert_same(compiled(model, threads=threads)(x), model(x), 1e-5)
    (executable,) = aicf.pytorch.report(model).executables
    assert executable.plan.threads == threads


def test_the_reference_backend() -> None:
    model, x = _layers(), random(4, 16, dtype=torch.float32)
    with torch.no_grad():
        assert_same(compiled(model, target="reference")(x), model(x), 1e-5)


def test_programs_are_loaded_from_the_cache(tmp_path: Path) -> None:
    model, x = _layers(), random(4, 16, dtype=torch.float32)
    with torch.no_grad():
        first = compiled(model, cache_dir=tmp_path)(x)
        assert _origins()[-1].startswith("compiled")
        torch._dynamo.reset()
        second = compiled(model, cache_dir=tmp_path)(x)
    assert_same(second, first)
    assert _origins()[-1].startswith("loaded")


def test_loaded_programs_take_the_weights_of_this_model(tmp_path: Path) -> None:
    model, other, x = _layers(), _layers(), random(4, 16, dtype=torch.float32)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-3)
        compiled(model, cache_dir=tmp_path)(x)
        torch._dynamo.reset()
        assert_same(compiled(other, cache_dir=tmp_path)(x), other(x), 1e-5)
    assert _origins()[-1].startswith("loaded")


def test_both_parts_of_a_training_graph_are_loaded(tmp_path: Path) -> None:
    model, x = _layers(), random(4, 16, dtype=torch.float32)
    theirs = copy.deepcopy(model)
    for _ in range(2):
        torch._dynamo.reset()
        model.zero_grad()
        compiled(model, cache_dir=tmp_path)(x).square().sum().backward()
    theirs(x).square().sum().backward()
    assert_same(gradients(model), gradients(theirs), 1e-4)
    assert all(origin.startswith("loaded") for origin in _origins()[-2:])


SCRIPT = """
import sys, torch
from torch import nn
import aicf.pytorch
for _ in range(int(sys.argv[2])):  # other graphs before it
    torch.compile(lambda x: x + 1, backend=aicf.pytorch.aicf_backend)(torch.ones(3))
    torch._dynamo.reset()
torch.manual_seed(1)
model = nn.Linear(16, 8)
run = torch.compile(model, backend=aicf.pytorch.aicf_backend, options={"cache_dir": sys.argv[1]})
with torch.no_grad():
    run(torch.ones(4, 16))
print(aicf.pytorch.report(model))
"""


def test_another_process_loads_from_the_cache(tmp_path: Path) -> None:
    def messages(before: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), str(before)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        return done.stdout

    assert "compiled" in messages(0)
    assert "loaded" in messages(1)


class _Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        """Many intermediates, of which each is kept or made again."""
        for layer in self.layers:
            x = torch.tanh(torch.nn.functional.gelu(layer(x)))
        return x


def _saved_bytes(result: Tensor) -> int:
    """Of what the forward part keeps."""
    saved: Any = result.grad_fn
    return sum({each.data_ptr(): each.nbytes for each in saved.saved_tensors}.values())


def test_a_budget_for_what_is_kept() -> None:
    model = _Deep().double()
    theirs = copy.deepcopy(model)
    x = random(64, 32)
    theirs(x).square().sum().backward()
    kept: list[int] = []
    for budget in (1.0, 0.5, 0.0):
        torch._dynamo.reset()
        model.zero_grad()
        result = compiled(model, memory_budget=budget)(x)
        kept.append(_saved_bytes(result))
        result.square().sum().backward()
        assert_same(gradients(model), gradients(theirs), 1e-8)
    assert kept[0] > kept[1] > kept[2]


def test_options_do_not_leak_into_pytorch() -> None:
    before = torch._functorch.config.activation_memory_budget
    compiled(_layers(), memory_budget=0.25)(torch.ones(4, 16)).sum().backward()
    assert torch._functorch.config.activation_memory_budget == before


def test_the_report_of_a_module_lists_its_own_graphs() -> None:
    one, other = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    compiled(one)(torch.ones(2, 4)).sum().backward()
    compiled(other)(torch.ones(2, 4)).sum().backward()
    assert [graph.kind for graph in aicf.pytorch.report(one).graphs] == ["forward", "backward"]
    assert [graph.kind for graph in aicf.pytorch.report(other).graphs] == ["forward", "backward"]
    assert aicf.pytorch.report(one).graphs[0].calls == 1
    assert "nothing was compiled" in str(aicf.pytorch.report(nn.Linear(2, 2)))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_of_inductor(mode: str) -> None:
    model, x = _layers(), random(4, 16, dtype=torch.float32)
    assert_same(torch.compile(model, backend="aicf", mode=mode)(x), model(x), 1e-5)


def test_an_unknown_mode() -> None:
    message = (
        "mode is 'fastest'; it is one of default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs"
    )
    with pytest.raises(Exception, match=message) as caught:
        torch.compile(_layers(), backend="aicf", mode="fastest")(torch.ones(4, 16))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), aicf.PolicyError)
