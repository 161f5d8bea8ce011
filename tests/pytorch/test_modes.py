"""Modes of PyTorch around a compiled module: without gradients, autocast, dropout, checkpoints, hooks and threads."""

from __future__ import annotations

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import aicf.pytorch
from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = pytest.mark.peers


def _layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).double()


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_without_gradients(mode: Any) -> None:
    model, x = _layers(), random(4, 16)
    ours = compiled(model)
    with mode():
        found = ours(x)
        assert_same(found, model(x), 1e-9)
    assert not found.requires_grad


def test_with_and_without_gradients_in_turn() -> None:
    model, x = _layers(), random(4, 16)
    theirs = copy.deepcopy(model)
    ours = compiled(model)
    for _ in range(2):
        with torch.no_grad():
            assert_same(ours(x), model(x), 1e-9)
        ours(x).sum().backward()
        theirs(x).sum().backward()
    assert_same(gradients(model), gradients(theirs), 1e-9)


def test_a_switch_of_modes_inside() -> None:
    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().max()
        return (x / scale).sum()

    ours, theirs = random(6).requires_grad_(), random(6).requires_grad_()
    compiled(run)(ours).backward()
    run(theirs).backward()
    assert_same(ours.grad, theirs.grad, 1e-9)


def test_detached_results() -> None:
    x = random(4).requires_grad_()
    kept, detached = compiled(lambda x: (x * 2, (x * 3).detach()))(x)
    assert kept.requires_grad and not detached.requires_grad
    assert_same(detached, (x * 3).detach())


def test_autocast() -> None:
    model = _layers().float()
    theirs = copy.deepcopy(model)
    x = random(4, 16, dtype=torch.float32)
    ours = compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = ours(x), theirs(x)
    assert found.dtype == torch.bfloat16
    assert_same(found, expected, 3e-2)
    found.float().sum().backward()
    expected.float().sum().backward()
    assert_same(gradients(model), gradients(theirs), 3e-2)
    assert_same(ours(x), theirs(x), 1e-5)


@pytest.mark.parametrize("form", ["none", "bool", "float", "causal", "scale", "groups"])
def test_attention(form: str) -> None:
    query, key, value = random(2, 4, 5, 8), random(2, 4, 7, 8, seed=1), random(2, 4, 7, 8, seed=2)
    named: dict[str, Any] = {
        "none": {},
        "bool": {"attn_mask": torch.arange(7) < torch.tensor([3, 7])[:, None, None, None]},
        "float": {"attn_mask": random(5, 7, seed=3)},
        "causal": {"is_causal": True},
        "scale": {"scale": 0.3},
        "groups": {"enable_gqa": True},
    }[form]
    if form == "groups":
        key, value = key[:, :2], value[:, :2]
    leaves = [each.clone().requires_grad_() for each in (query, key, value)]
    peers = [each.clone().requires_grad_() for each in (query, key, value)]
    found = compiled(lambda *each: F.scaled_dot_product_attention(*each, **named))(*leaves)
    expected = F.scaled_dot_product_attention(*peers, **named)
    assert_same(found, expected, 1e-9)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert_same([each.grad for each in leaves], [each.grad for each in peers], 1e-8)


def test_checkpoints() -> None:
    first, second = _layers(), nn.Linear(8, 8).double()

    def run(x: Tensor) -> Any:
        return checkpoint(lambda x: second(torch.tanh(first(x))), x, use_reentrant=False).square().sum()

    x, peer = random(4, 16).requires_grad_(), random(4, 16).requires_grad_()
    compiled(run)(x).backward()
    found = gradients(first)
    first.zero_grad()
    run(peer).backward()
    assert_same(found, gradients(first), 1e-9)
    assert_same(x.grad, peer.grad, 1e-9)


def test_dropout_with_a_seed_of_its_own() -> None:
    """Neither reads PyTorch's generator nor moves it; a second compile begins at the same numbers."""
    x = torch.ones(40, 50)
    runs: list[list[Tensor]] = []
    torch.manual_seed(1)
    state = torch.get_rng_state()
    for seed in (5, 5, 6):
        ours = compiled(lambda x: F.dropout(x, 0.5), seed=seed)
        runs.append([ours(x) for _ in range(3)])
        torch._dynamo.reset()
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(runs[0], runs[1])
    flat = [each for run in (runs[0], runs[2]) for each in run]
    assert all(not torch.equal(one, other) for i, one in enumerate(flat) for other in flat[:i])
    assert abs(float(torch.stack(flat).eq(0).double().mean()) - 0.5) < 0.02  # 4 standard deviations


def test_dropout_follows_the_seed() -> None:
    ours = compiled(lambda x: F.dropout(x, 0.25))
    x = torch.ones(40, 50)
    torch.manual_seed(7)
    first, second = ours(x), ours(x)
    torch.manual_seed(7)
    assert_same(ours(x), first)
    assert not torch.equal(first, second)
    assert_same(first.unique(), torch.tensor([0.0, 1 / 0.75]), 1e-6)
    assert abs((first == 0).double().mean() - 0.25) < 0.04  # 4 standard deviations


def test_dropout_of_another_size_is_other_numbers() -> None:
    ours = compiled(lambda x: torch.rand_like(x * 2), dynamic=True)
    torch.manual_seed(7)
    one, other = ours(torch.ones(64)), ours(torch.ones(65))
    assert not torch.equal(one, other[:64])


def test_attention_with_dropout() -> None:
    query = random(2, 8, 64, 16)
    ours = compiled(lambda q: F.scaled_dot_product_attention(q, q, torch.ones_like(q), dropout_p=0.5))
    torch.manual_seed(7)
    first, second = ours(query), ours(query)
    torch.manual_seed(7)
    assert_same(ours(query), first)
    assert not torch.equal(first, second)
    assert abs(first.mean() - 1) < 0.1
    leaf = query.clone().requires_grad_()
    ours(leaf).sum().backward()
    assert leaf.grad is not None and leaf.grad.abs().sum() > 0


def test_backward_has_the_mask_of_forward() -> None:
    x = random(200).abs().add(1).requires_grad_()
    found = compiled(lambda x: F.dropout(x * 2, 0.5))(x)
    found.sum().backward()
    assert x.grad is not None
    assert_same(x.grad == 0, found == 0)
    assert_same(x.grad.unique(), torch.tensor([0.0, 4.0], dtype=torch.float64), 1e-9)


def test_no_dropout_in_evaluation() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    ours, x = compiled(model), torch.ones(8, 4)
    model.train()
    assert (ours(x) == 0).any()
    model.eval()
    assert_same(ours(x), model(x), 1e-5)


def test_a_graph_that_is_retained() -> None:
    x = random(4).requires_grad_()
    result = compiled(lambda x: x.exp().sum())(x)
    result.backward(retain_graph=True)
    result.backward()
    assert_same(x.grad, 2 * x.detach().exp(), 1e-9)


def test_a_graph_that_is_not_retained() -> None:
    x = random(4).requires_grad_()
    result = compiled(lambda x: x.exp().sum())(x)
    result.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()


def test_gradients_of_gradients_are_refused() -> None:
    x = random(4).requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(lambda x: x.exp().sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


def test_gradients_of_some_results() -> None:
    x, y = random(4).requires_grad_(), random(4, seed=1).requires_grad_()
    first, _ = compiled(lambda x, y: ((x * y).sum(), (x + y).sum()))(x, y)
    first.backward()
    assert_same((x.grad, y.grad), (y.detach(), x.detach()))


def test_gradients_that_are_not_contiguous() -> None:
    x, peer = random(3, 4).requires_grad_(), random(3, 4).requires_grad_()
    given = random(4, 3, seed=1).t()
    compiled(lambda x: x.sin())(x).backward(given)
    peer.sin().backward(given)
    assert_same(x.grad, peer.grad, 1e-9)


def test_an_expanded_gradient() -> None:
    x = random(3, 4).requires_grad_()
    compiled(lambda x: x * 2)(x).sum().backward()
    assert_same(x.grad, torch.full((3, 4), 2.0, dtype=torch.float64))


def test_hooks_that_read() -> None:
    model, seen = _layers(), list[Tensor]()
    model[0].register_forward_hook(lambda _, __, result: seen.append(result.detach()))
    x = random(4, 16)
    found = compiled(model, fullgraph=False)(x)
    assert_same(
        found, F.linear(F.gelu(F.linear(x, model[0].weight, model[0].bias)), model[2].weight, model[2].bias)
    )
    assert_same(seen[0], F.linear(x, model[0].weight, model[0].bias).detach(), 1e-9)


def test_hooks_of_tensors() -> None:
    x, seen = random(4).requires_grad_(), list[Tensor]()
    x.register_hook(lambda gradient: seen.append(gradient) or gradient * 2)
    compiled(lambda x: x.exp().sum())(x).backward()
    assert_same(seen, [x.detach().exp()], 1e-9)
    assert_same(x.grad, 2 * x.detach().exp(), 1e-9)


def test_a_copy_of_a_compiled_module() -> None:
    model, x = _layers(), random(4, 16)
    ours = compiled(model)
    expected = ours(x)
    other = copy.deepcopy(ours)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert_same(ours(x), expected)
    assert_same(other(x), torch.zeros(4, 8, dtype=torch.float64))


def _reloaded(module: Any) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Any] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": _reloaded,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("compiles_itself", [True, False])
def test_copies_have_weights_of_their_own(way: str, compiles_itself: bool) -> None:
    """With the backend by its name: a file has no functions of a test."""
    model, x = _layers(), random(4, 16)
    if compiles_itself:
        model.compile(backend=aicf.pytorch.aicf_backend)
        ours = model
    else:
        ours = torch.compile(model, backend=aicf.pytorch.aicf_backend)
    expected = ours(x).detach()
    other = COPIES[way](ours)
    assert_same(other(x).detach(), expected, 1e-9)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert_same(other(x).detach(), torch.zeros(4, 8, dtype=torch.float64))
    assert_same(ours(x).detach(), expected)


def test_modes_in_turn() -> None:
    """Each has a program that gives what eager mode gives, with its marks."""
    model, x = _layers().float(), random(4, 16, dtype=torch.float32)
    ours = compiled(model)
    for _ in range(2):
        for mode in (
            torch.no_grad,
            torch.inference_mode,
            torch.enable_grad,
            lambda: torch.autocast("cpu", torch.bfloat16),
        ):
            with mode():
                found, expected = ours(x), model(x)
            assert_same(found, expected, 2e-2)
            assert found.requires_grad == expected.requires_grad
            assert found.is_inference() == expected.is_inference()


def test_the_state_of_a_compiled_module_is_saved() -> None:
    model, x = _layers(), random(4, 16)
    ours = compiled(model)
    expected, file = ours(x), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).double()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same(compiled(other)(x), expected, 1e-9)


def test_compiled_twice() -> None:
    model, x = _layers(), random(4, 16)
    assert_same(compiled(compiled(model))(x), model(x), 1e-9)


def test_compiled_inside_of_compiled() -> None:
    inner = compiled(_layers())
    assert_same(compiled(lambda x: inner(x) * 2)(random(4, 16)), _layers()(random(4, 16)) * 2, 1e-9)


class _Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = _layers()

    def forward(self, x: Tensor) -> Tensor:
        """Of a class of the user: PyTorch does not compile the methods of its own classes."""
        return self.layers(x)


def test_a_module_that_compiles_itself() -> None:
    model, x = _Own(), random(4, 16)
    expected = model.layers(x)
    model.compile(backend=aicf.pytorch.aicf_backend)
    assert_same(model(x), expected, 1e-9)
    assert aicf.pytorch.report(model).executables


def test_many_threads_call_one_module() -> None:
    model = _layers()
    ours = compiled(model, dynamic=True, max_programs=2)
    inputs = [random(2 + number % 4, 16, seed=number) for number in range(64)]

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return ours(x)

    run(inputs[0])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, inputs))
    with torch.no_grad():
        assert_same(found, [model(x) for x in inputs], 1e-9)


def test_many_threads_make_the_first_call() -> None:
    model, x = _layers(), random(4, 16)
    ours = compiled(model)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ours(x).detach(), range(8)))
    assert_same(found, [model(x).detach()] * 8, 1e-9)


def test_threads_make_steps_of_their_own() -> None:
    ours = compiled(lambda x: (x * x).exp().sum())
    leaves = [random(6, seed=seed).requires_grad_() for seed in range(16)]
    ours(leaves[0].detach().requires_grad_()).backward()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda x: ours(x).backward(), leaves))
    for x in leaves:
        value = x.detach()
        assert_same(x.grad, 2 * value * (value * value).exp(), 1e-9)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_views_that_negate(is_dynamic: bool) -> None:
    ours = compiled(lambda x: x * 2, dynamic=is_dynamic)
    view = torch._neg_view(torch.arange(6.0))
    assert view.is_neg()
    assert_same(ours(view), -2 * torch.arange(6.0))
    imaginary = torch.complex(torch.zeros(6), torch.arange(6.0)).conj().imag
    assert imaginary.is_neg()
    assert_same(ours(imaginary), -2 * torch.arange(6.0))
    assert_same(ours(torch.arange(6.0)), 2 * torch.arange(6.0))
    assert_same(compiled(lambda x: x[1:])(view), view[1:])


def test_writes_to_a_view_that_negates() -> None:
    view = torch._neg_view(torch.arange(6.0))
    compiled(lambda x: x.add_(1))(view)
    assert_same(view, 1 - torch.arange(6.0))


def test_computed_indices_are_not_checked() -> None:
    """A gather reads the nearest row, a scatter drops the update."""
    x, index = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 9])
    assert_same(compiled(lambda x, i: F.embedding(i + 1, x))(x, index), x[[1, 3]])
    scattered = compiled(lambda x, i: x.index_add(0, i + 1, torch.ones(2, 3)))(x, index)
    assert_same(scattered, x + torch.tensor([0.0, 1, 0, 0])[:, None])


def test_an_asynchronous_assertion_is_not_evaluated() -> None:
    def run(x: Tensor) -> Tensor:
        torch._assert_async((x > 100).all())
        return x * 2

    assert_same(compiled(run)(torch.ones(3)), torch.full((3,), 2.0))


def test_writes_that_pytorch_does_not_count() -> None:
    model, x = nn.Linear(64, 64), random(64, 64, dtype=torch.float32)
    ours = compiled(model)
    with torch.no_grad():
        ours(x)
        model.weight.data.mul_(2)
        torch.autograd.graph.increment_version(model.weight)
        assert_same(ours(x), model(x), 1e-4)
        model.weight.detach().numpy()[:] *= 2
        torch.autograd.graph.increment_version(model.weight)
        assert_same(ours(x), model(x), 1e-4)
