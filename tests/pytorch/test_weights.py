"""Weights and buffers stay PyTorch's: whatever changes them is seen, and the model changes them in place."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = pytest.mark.peers


def _layers() -> nn.Module:
    """Two layers wide enough for their weights to be packed ahead."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))


X = random(48, 64, dtype=torch.float32)


def test_new_weights_by_load_state_dict() -> None:
    model, other = _layers(), nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    ours = compiled(model)
    with torch.no_grad():
        assert_same(ours(X), model(X), 1e-5)
        model.load_state_dict(other.state_dict())
        assert_same(ours(X), other(X), 1e-5)


def test_steps_of_an_optimizer_between_calls() -> None:
    model = _layers()
    ours = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(3):
        with torch.no_grad():
            assert_same(ours(X), model(X), 1e-5)
        model(X).square().mean().backward()
        optimizer.step()


def test_data_of_a_parameter_where_other_data_were() -> None:
    """The allocator gives the memory of the first weight to the third one."""
    model = _layers()
    ours = compiled(model)
    weight = model[0].weight
    with torch.no_grad():
        for factor in (1, 2, 3, 4, 5):
            weight.data = weight.data * factor
            assert_same(ours(X), model(X), 1e-4)


def test_weights_of_inference_mode() -> None:
    with torch.inference_mode():
        model = _layers()
        ours = compiled(model)
        assert_same(ours(X), model(X), 1e-5)
        model[0].weight.mul_(2)
        assert_same(ours(X), model(X), 1e-5)


def test_another_element_type_after_compiling() -> None:
    model = _layers()
    ours = compiled(model)
    with torch.no_grad():
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9), (torch.bfloat16, 2e-2)):
            model.to(dtype)
            assert_same(ours(X.to(dtype)), model(X.to(dtype)), tolerance)


def test_a_resized_parameter() -> None:
    model = nn.Linear(64, 32)
    ours = compiled(model)
    with torch.no_grad():
        assert_same(ours(X), model(X), 1e-5)
        model.weight, model.bias = nn.Parameter(torch.randn(16, 64)), nn.Parameter(torch.randn(16))
        assert_same(ours(X), model(X), 1e-5)


def test_one_graph_with_the_weights_of_two_modules_and_two_batch_sizes() -> None:
    """Programs of one graph share packed copies: which weights these are of may change with each call."""
    one, two = _layers(), _layers()
    with torch.no_grad():
        for parameter in two.parameters():
            parameter.mul_(-2)
    first, second = dict(one.named_parameters()), dict(two.named_parameters())
    run = compiled(lambda weights, x: functional_call(one, weights, (x,)), dynamic=True)
    with torch.no_grad():
        for weights, rows in [
            (first, 48),
            (second, 32),
            (first, 48),
            (second, 48),
            (first, 32),
            (second, 32),
        ]:
            assert_same(run(weights, X[:rows]), functional_call(one, weights, (X[:rows],)), 1e-5)


def test_two_modules_of_one_class() -> None:
    one, two = nn.Linear(64, 64), nn.Linear(64, 64)
    with torch.no_grad():
        for module in (one, two, one, two):
            assert_same(compiled(module)(X), module(X), 1e-5)


def test_batch_norm_updates_its_statistics_in_place() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).double().train()
    theirs = copy.deepcopy(model)
    address = model[1].running_mean.data_ptr()
    ours = compiled(model)
    for seed in range(3):
        x = random(4, 3, 8, 8, seed=seed) + 1
        assert_same(ours(x), theirs(x), 1e-9)
    assert model[1].running_mean.data_ptr() == address
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)
    assert int(model[1].num_batches_tracked) == 3


def test_batch_norm_in_training_without_gradients() -> None:
    model = nn.BatchNorm1d(4).double().train()
    theirs = copy.deepcopy(model)
    x = random(8, 4)
    with torch.no_grad():
        assert_same(compiled(model)(x), theirs(x), 1e-9)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


class _Cache(nn.Module):
    """Keys of all positions so far, in one buffer."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 16, 8))

    def forward(self, query: Tensor, at: Tensor) -> Tensor:
        """Scores of a query with all keys, its own written first."""
        self.keys.index_copy_(1, at, query)
        return query @ self.keys.transpose(1, 2)


def test_a_cache_is_updated_in_place() -> None:
    model = _Cache()
    theirs = copy.deepcopy(model)
    ours, address = compiled(model), model.keys.data_ptr()
    with torch.no_grad():
        for position in range(4):
            query = random(2, 1, 8, seed=position, dtype=torch.float32)
            at = torch.tensor([position])
            assert_same(ours(query, at), theirs(query, at), 1e-5)
    assert_same(model.keys, theirs.keys)
    assert model.keys.data_ptr() == address
    assert model.keys[:, :4].abs().sum() > 0


def test_a_slice_of_a_buffer_is_written() -> None:
    def write(cache: Tensor, x: Tensor) -> Tensor:
        cache[:, 1:3] = x
        return cache.sum(1) + x.sum()

    ours, theirs = torch.zeros(3, 5), torch.zeros(3, 5)
    x = random(3, 2, dtype=torch.float32)
    assert_same(compiled(write)(ours, x), write(theirs, x), 1e-5)
    assert_same(ours, theirs)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of all tokens."""
        return self.head(torch.tanh(self.embedding(tokens)))


def test_tied_weights() -> None:
    model = _Tied().double()
    theirs = copy.deepcopy(model)
    tokens = torch.randint(0, 20, (3, 5))
    ours = compiled(model)
    for run, owner in ((ours, model), (theirs, theirs)):
        run(tokens).square().mean().backward()
        assert len(list(owner.parameters())) == 1
    assert_same(gradients(model), gradients(theirs), 1e-9)


def test_frozen_weights_get_no_gradient() -> None:
    model = _layers().double()
    model[0].requires_grad_(False)
    theirs = copy.deepcopy(model)
    compiled(model)(X.double()).square().mean().backward()
    theirs(X.double()).square().mean().backward()
    assert set(gradients(model)) == {"2.weight", "2.bias"}
    assert_same(gradients(model), gradients(theirs), 1e-9)


def test_gradients_add_up() -> None:
    model = _layers().double()
    theirs = copy.deepcopy(model)
    ours = compiled(model)
    for seed in range(3):
        x = random(8, 64, seed=seed)
        ours(x).square().mean().backward()
        theirs(x).square().mean().backward()
    assert_same(gradients(model), gradients(theirs), 1e-9)


@pytest.mark.parametrize("has_gradients", [True, False])
def test_parameters_that_are_replaced_by_a_state(has_gradients: bool) -> None:
    """By tensors and by parameters, which take the place of those that the program was made with."""
    model = _layers()
    ours, state = compiled(model), copy.deepcopy(model.state_dict())
    with torch.set_grad_enabled(has_gradients):
        for factor, kind in ((1, Tensor.clone), (2, Tensor.clone), (3, nn.Parameter)):
            model.load_state_dict({name: kind(value * factor) for name, value in state.items()}, assign=True)
            assert_same(ours(X), model(X), 1e-4)
            if has_gradients:
                found, expected = (
                    torch.autograd.grad(run(X).square().mean(), model.parameters()) for run in (ours, model)
                )
                assert_same(found, expected, 1e-3)


def test_another_element_type_in_training() -> None:
    model = _layers()
    ours = compiled(model)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9), (torch.float32, 1e-5)):
        model.to(dtype)
        found, expected = (
            torch.autograd.grad(run(X.to(dtype)).square().mean(), model.parameters()) for run in (ours, model)
        )
        assert_same(found, expected, tolerance)
    model.half()
    with torch.no_grad():
        assert_same(ours(X.half()), model(X.half()), 5e-3)


def test_weights_are_frozen_and_melt_again() -> None:
    model = _layers().double()
    theirs, x = copy.deepcopy(model), X.double()
    ours = compiled(model)
    for frozen in (None, 0, 2, None):
        for each in (model, theirs):
            each.requires_grad_(True).zero_grad()
            if frozen is not None:
                each[frozen].requires_grad_(False)
        ours(x).square().mean().backward()
        theirs(x).square().mean().backward()
        assert set(gradients(model)) == set(gradients(theirs))
        assert len(gradients(model)) == (4 if frozen is None else 2)
        assert_same(gradients(model), gradients(theirs), 1e-9)


# TorchDynamo looks at the gradient of whatever tensor it is given.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_an_input_that_is_a_view_of_a_parameter() -> None:
    model = nn.Linear(16, 16).double()
    theirs = copy.deepcopy(model)
    ours = compiled(model)
    for run, owner in ((ours, model), (theirs, theirs)):
        run(owner.weight[:5]).square().sum().backward()
        run(owner.weight.t()).sum().backward()
    assert_same(gradients(model), gradients(theirs), 1e-9)
    with torch.no_grad():
        assert_same(ours(model.weight[3:]), theirs(theirs.weight[3:]), 1e-9)


def test_a_write_to_a_view_of_a_parameter() -> None:
    """The product reads what was written before it."""
    model = nn.Linear(16, 16).double()
    theirs = copy.deepcopy(model)

    def run(layer: nn.Module, x: Tensor) -> Tensor:
        x.mul_(2)
        return layer(x)

    with torch.no_grad():
        found = compiled(lambda x: run(model, x))(model.weight[:5])
        assert_same(found, run(theirs, theirs.weight[:5]), 1e-9)
    assert_same(model.weight, theirs.weight)
