"""One compiled module with batches of many sizes."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import aicf.pytorch
from aicf.runtime import memory
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = pytest.mark.peers


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double()


def _sizes(model: nn.Module) -> list[list[int]]:
    return [list(program.sizes.values()) for program in aicf.pytorch.report(model).graphs[-1].programs]


def test_batches_of_many_sizes() -> None:
    model = _layers()
    ours = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (2, 5, 3, 2, 9, 5):
            x = random(rows, 8, seed=rows)
            assert_same(ours(x), model(x), 1e-9)
    assert sorted(_sizes(model)) == [[2], [3], [5], [9]]


def test_sizes_are_symbolic_from_the_second_on() -> None:
    model = _layers()
    ours = compiled(model)
    with torch.no_grad():
        for rows in (2, 5, 3, 7):
            x = random(rows, 8, seed=rows)
            assert_same(ours(x), model(x), 1e-9)
    graphs = aicf.pytorch.report(model).graphs
    assert [len(graph.programs) for graph in graphs] == [1, 3]


def test_the_least_recently_used_program_goes() -> None:
    model = _layers()
    ours = compiled(model, dynamic=True, max_programs=2)
    with torch.no_grad():
        for rows in (2, 3, 2, 4):
            ours(random(rows, 8))
        assert _sizes(model) == [[2], [4]]
        ours(random(3, 8))
    assert _sizes(model) == [[4], [3]]
    assert aicf.pytorch.report(model).graphs[-1].dropped == 2


def test_training_with_many_sizes() -> None:
    model = _layers()
    ours = compiled(model, dynamic=True, max_programs=2)
    for rows in (2, 5, 3, 4, 2):
        x, peer = random(rows, 8).requires_grad_(), random(rows, 8).requires_grad_()
        ours(x).square().sum().backward()
        model(peer).square().sum().backward()
        assert_same(x.grad, peer.grad, 1e-9)
    assert [len(graph.programs) for graph in aicf.pytorch.report(model).graphs] == [2, 2]


def test_a_dimension_marked_as_dynamic() -> None:
    model = _layers()
    ours = compiled(model)
    with torch.no_grad():
        for rows in (4, 6, 8):
            x = random(rows, 8)
            torch._dynamo.mark_dynamic(x, 0)
            assert_same(ours(x), model(x), 1e-9)
    (graph,) = aicf.pytorch.report(model).graphs
    assert len(graph.programs) == 3


def test_sizes_that_follow_from_others() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        both = torch.cat([x, y])
        return both.view(both.shape[0] // 2, -1).sum(1) * x.shape[0] + torch.arange(both.shape[0] // 2)

    ours = compiled(run, dynamic=True)
    for one, other in ((2, 4), (6, 2), (4, 4)):
        assert_same(ours(random(one, 3), random(other, 3)), run(random(one, 3), random(other, 3)), 1e-9)


def test_strides_that_follow_from_sizes() -> None:
    ours = compiled(lambda x: x.t() @ x, dynamic=True)
    for rows, columns in ((3, 4), (5, 2), (2, 5)):
        x = random(columns, rows).t()
        assert_same(ours(x), x.t() @ x, 1e-9)


def test_a_size_in_the_result() -> None:
    ours = compiled(lambda x: (x.sum(), x.shape[0] * 2, x.numel()), dynamic=True)
    for rows in (3, 5):
        assert_same(ours(random(rows, 2)), (random(rows, 2).sum(), 2 * rows, 2 * rows), 1e-9)


def test_many_sizes_leave_no_memory_behind() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    ours = compiled(model, dynamic=True, max_programs=4)
    held: list[int] = []
    with torch.no_grad():
        for call in range(150):
            ours(torch.ones(2 + call // 5 % 6, 64))
            held.append(memory.statistics().live_bytes)
    assert len(_sizes(model)) == 4
    assert aicf.pytorch.report(model).graphs[-1].dropped == 26
    assert max(held[75:]) <= max(held[30:75])


class _Attentive(nn.Module):
    """What models of language have, in small."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of words."""
        hidden = self.norm(self.embedding(tokens))
        return self.head(torch.softmax(hidden @ hidden.transpose(1, 2), -1) @ hidden)


class _Batches(IterableDataset[Tensor]):
    """150 batches of 10 sizes, the same size fifteen times in a row."""

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for number in range(150):
            rows = 2 + number // 15
            yield torch.randint(0, 20, (rows, 3 + rows * 7 % 20), generator=generator)


@pytest.mark.parametrize("dynamic", [True, None])
def test_a_loop_over_a_loader_frees_the_programs_that_it_drops(dynamic: bool | None) -> None:
    torch.manual_seed(1)
    model = _Attentive()
    ours = compiled(model, dynamic=dynamic, max_programs=4)
    seen: dict[int, weakref.ref[Any]] = {}
    with torch.no_grad():
        for number, tokens in enumerate(DataLoader(_Batches(), batch_size=None)):
            found = ours(tokens)
            if number % 5 == 0:
                assert_same(found, model(tokens), 1e-4)
                executables = aicf.pytorch.report(model).executables
                seen |= {id(each): weakref.ref(each) for each in executables if id(each) not in seen}
                del executables
    graphs = aicf.pytorch.report(model).graphs
    *first, last = graphs
    # Where nothing is said, the first size has a graph of its own; all others share one.
    assert [len(graph.programs) for graph in first] == ([] if dynamic else [1])
    assert (last.calls, len(last.programs)) == (150 - sum(graph.calls for graph in first), 4)
    assert last.dropped == (6 if dynamic else 5)
    gc.collect()
    alive = [executable for each in seen.values() if (executable := each()) is not None]
    assert set(map(id, alive)) == set(map(id, aicf.pytorch.report(model).executables))


def test_more_graphs_than_torch_dynamo_keeps_run_in_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    """Its own limit, of recompiles: 8 for one function. Sizes reach it if they are not dynamic."""
    model = _layers()
    ours = compiled(model, dynamic=False, fullgraph=False)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "torch._dynamo"):
        for rows in range(2, 14):
            assert_same(ours(random(rows, 8)), model(random(rows, 8)), 1e-9)
    graphs = aicf.pytorch.report(model).graphs
    assert [(graph.calls, len(graph.programs)) for graph in graphs] == [(1, 1)] * 8
    assert "recompile_limit (8)" in caplog.text


def test_graphs_and_their_memory_go_with_the_module() -> None:
    def held() -> int:
        torch._dynamo.reset()
        gc.collect()
        return memory.statistics().live_bytes

    def use() -> None:
        model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
        ours = compiled(model)
        with torch.no_grad():
            ours(torch.ones(64, 128))
        ours(torch.ones(64, 128)).sum().backward()
        assert memory.statistics().live_bytes > before

    before = held()
    use()
    assert held() == before
    assert not aicf.pytorch.report().graphs
