"""What a training step cannot take is one line, after which all is as before; what it can take gives eager's values."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import aicf.pytorch
from aicf.errors import AicfError
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]

Forward = Callable[[nn.Module, Tensor], Tensor]
X, TARGET = random(6, 8), random(6, 4, seed=1)


class _Own(nn.Module):
    """Layers, and how a test goes through them."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)).double()
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        """See above."""
        return self._forward(self.layers, x)


def _plain(layers: nn.Module, x: Tensor) -> Tensor:
    return layers(x)


def _eager_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, target: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


class _Pair:
    """A model for train_step, and the same for PyTorch."""

    def __init__(self, forward: Forward = _plain, make: Any = torch.optim.SGD, model: Any = None) -> None:
        self.ours: Any = _Own(forward) if model is None else model
        self.theirs = copy.deepcopy(self.ours)
        self.our_optimizer, self.their_optimizer = (
            make(each.parameters(), lr=0.1) for each in (self.ours, self.theirs)
        )
        self.step = aicf.pytorch.train_step(self.ours, F.mse_loss, self.our_optimizer)

    def run(self, x: Tensor = X, target: Tensor = TARGET, count: int = 2) -> None:
        """As many steps of both, with the same losses and weights."""
        for _ in range(count):
            found = self.step(x, target)
            assert_same(found, _eager_step(self.theirs, self.their_optimizer, x, target), 1e-9)
        self.check()

    def check(self) -> None:
        """Weights and states are those of PyTorch."""
        assert_same(self.ours.state_dict(), self.theirs.state_dict(), 1e-9)
        ours, theirs = (each.state_dict()["state"] for each in (self.our_optimizer, self.their_optimizer))
        assert_same(ours, theirs, 1e-9)

    def refused(self, *batch: Any) -> str:
        """The line of the error for a batch, after which both go on alike."""
        with pytest.raises(AicfError) as caught:
            self.step(*batch)
        assert "\n" not in str(caught.value)
        self.check()
        return str(caught.value)


# What the trace of a forward part says nothing of


def _no_grad_part(layers: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        hidden = layers[1](layers[0](x))
    return layers[2](hidden)


def _no_grad_scale(layers: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        largest = layers(x).abs().max()
        with torch.enable_grad():
            pass
        mean = layers(x).mean()
    return layers(x) / largest + mean


@torch.no_grad()
def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.mean(), x.std(), x.argmax()


def _decorated(layers: Any, x: Tensor) -> Tensor:
    mean, deviation, at = _statistics(layers(x))
    return (layers(x) - mean) / deviation + at


STOPS: dict[str, Forward] = {
    "detach": lambda layers, x: layers(x) + layers[2](layers[1](layers[0](x)).detach()),
    "no_grad": _no_grad_part,
    "a scale under no_grad": _no_grad_scale,
    "a function under no_grad": _decorated,
    "checkpoint": lambda layers, x: checkpoint(layers, x, use_reentrant=False),
    "data": lambda layers, x: layers(x) * layers(x).data,
    "steps": lambda layers, x: layers(x).round() + layers[0](x).sum(),
}


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_gradients_stop_where_they_do_in_eager_mode(name: str, make: Any) -> None:
    _Pair(STOPS[name], make).run()


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 5


def _hooked(layers: Any, x: Tensor) -> Tensor:
    hidden = layers[0](x)
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient * 2)
    return layers[2](hidden)


@pytest.mark.parametrize("forward", [lambda layers, x: _Twice.apply(layers(x)), _hooked])
def test_gradients_of_the_users_own(forward: Forward) -> None:
    _Pair(forward, torch.optim.AdamW).run()


def _hook_parameter(model: Any) -> None:
    model.layers[0].weight.register_hook(lambda gradient: gradient * 3)


def _hook_accumulated(model: Any) -> None:
    model.layers[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)


def _hook_module(model: Any) -> None:
    model.layers[0].register_full_backward_hook(lambda *_: None)


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (_hook_parameter, "parameter 'layers.0.weight' has a hook on its gradient"),
        (_hook_accumulated, "parameter 'layers.0.weight' has a hook on its gradient"),
        (_hook_module, "module 'layers.0' has backward hooks"),
    ],
)
def test_hooks_of_the_module(hook: Callable[[Any], None], said: str) -> None:
    pair = _Pair()
    hook(pair.ours)
    assert said in pair.refused(X, TARGET)


# Batches


BATCHES: dict[str, tuple[Callable[[], Tensor], str]] = {
    "sparse": (X.to_sparse, "tensor 0 of the batch is sparse; make it dense with .to_dense()"),
    "complex": (lambda: torch.complex(X, X), "is complex; give its parts as torch.view_as_real(x)"),
    "nested": (
        lambda: torch.nested.nested_tensor([X[:2], X[2:]], layout=torch.jagged),
        "is nested; pad it with .to_padded_tensor(0.0)",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(X.float(), 0.1, 0, torch.qint8),
        "is quantized; give it as .dequantize()",
    ),
    "with a gradient": (
        lambda: X.clone().requires_grad_(),
        "requires a gradient, which a step does not compute",
    ),
    "on another device": (
        lambda: X.to("meta"),
        "FakeTensorDeviceMismatchError: Expected all tensors",
    ),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("is_first", [True, False])
def test_batches_that_no_step_takes(name: str, is_first: bool) -> None:
    make, said = BATCHES[name]
    pair = _Pair(make=torch.optim.AdamW)
    if not is_first:
        pair.run()
    assert said in pair.refused(make(), TARGET)
    assert bool(pair.our_optimizer.state) != is_first
    pair.run()


def test_a_parameter_as_the_batch() -> None:
    layer = nn.Linear(4, 4).double()
    pair = _Pair(model=layer)
    assert "pass it as x.detach()" in pair.refused(layer.weight, TARGET[:4])
    found = pair.step(layer.weight.detach(), TARGET[:4])
    weight = pair.theirs.weight.detach().clone()
    assert_same(found, _eager_step(pair.theirs, pair.their_optimizer, weight, TARGET[:4]), 1e-9)
    pair.check()


BASE = random(64, seed=5)
FORMS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "transposed": lambda: (random(8, 6).t(), TARGET),
    "slices": lambda: (random(12, 16)[::2, 1::2], TARGET),
    "expanded": lambda: (random(1, 8).expand(6, 8), random(4).expand(6, 4)),
    "overlapping": lambda: (BASE[:48].view(6, 8), BASE[40:].view(6, 4)),
    "of one memory": lambda: (BASE.as_strided((6, 8), (3, 1)), BASE.as_strided((6, 4), (1, 3))),
}


def _made_in_inference_mode() -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        return X * 1, TARGET * 1


@pytest.mark.parametrize("form", FORMS)
def test_batches_in_any_form(form: str) -> None:
    _Pair().run(*FORMS[form]())


def test_a_batch_made_in_inference_mode() -> None:
    """The trace of a new program refuses it as eager mode does; the program takes it."""
    pair = _Pair()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        pair.step(*_made_in_inference_mode())
    pair.run()
    found = pair.step(*_made_in_inference_mode())
    assert_same(found, _eager_step(pair.theirs, pair.their_optimizer, X, TARGET), 1e-9)
    pair.check()


def test_a_write_to_the_batch() -> None:
    x = X.clone()
    assert "user input mutation; return the new value instead" in _Pair(
        lambda layers, x: layers(x.mul_(2))
    ).refused(x, TARGET)
    assert_same(x, X)


def _inverse(layers: Any, x: Tensor) -> Tensor:
    return torch.linalg.inv(layers(x)[:4]).repeat(2, 1)[:6]


FLOWS: dict[str, tuple[Forward, str]] = {
    "a branch": (
        lambda layers, x: layers(x) if x.sum() > 0 else layers(x) * 2,
        "remove data-dependent control flow or sizes",
    ),
    "an item": (
        lambda layers, x: layers(x) * x.max().item(),
        "a size follows from elements of a tensor",
    ),
    "a size": (
        lambda layers, x: layers(x) * layers(x)[x[:, 0] > 0].sum(),
        "a size follows from elements of a tensor",
    ),
    "an op": (
        lambda layers, x: torch.linalg.inv(layers(x)[:4]).repeat(2, 1)[:6],
        "op aten.linalg_inv_ex.default is not supported",
    ),
    "no result": (lambda layers, x: x[:, :4] * 2, "passes no gradient to any parameter of the optimizer"),
    "a cut": (lambda layers, x: layers(x).detach(), "passes no gradient to any parameter of the optimizer"),
}


@pytest.mark.parametrize("name", FLOWS)
def test_models_that_cannot_be_traced(name: str) -> None:
    forward, said = FLOWS[name]
    pair = _Pair(forward, torch.optim.AdamW)
    assert said in pair.refused(X, TARGET)
    assert not pair.our_optimizer.state
    if name not in ("no result", "cut", "a cut"):
        _eager_step(pair.ours, pair.our_optimizer, X, TARGET)  # eager mode goes on
        _eager_step(pair.theirs, pair.their_optimizer, X, TARGET)
        pair.check()


def test_errors_of_the_users_code_are_the_users() -> None:
    pair = _Pair(make=torch.optim.AdamW)
    with pytest.raises(RuntimeError, match="same reduction dim"):
        pair.step(X[:, :3], TARGET)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        pair.step(TARGET)
    assert not pair.our_optimizer.state
    pair.run()


# Weights that are changed, moved or replaced between steps


def _float(model: Any) -> None:
    model.float()


def _cast_and_back(model: Any) -> None:
    model.float().double()


def _strided(model: Any) -> None:
    model.layers[0].weight.data = random(8, 12, seed=3).t()


def _other_size(model: Any) -> None:
    model.layers[0].weight.data, model.layers[0].bias.data = random(16, 8, seed=3), random(16, seed=4)
    model.layers[2].weight.data = random(4, 16, seed=5)


def _other_data(model: Any) -> None:
    model.layers[0].weight.data = random(12, 8, seed=6)


@pytest.mark.parametrize("change", [_cast_and_back, _strided, _other_size, _other_data])
def test_weights_that_change_between_steps(change: Callable[[Any], None]) -> None:
    """On a batch of the same form, so that nothing else tells the step."""
    pair = _Pair()
    pair.run()
    for model in (pair.ours, pair.theirs):
        change(model)
    pair.run()


class _Words(nn.Module):
    """A batch of whole numbers says nothing of the element type of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores."""
        return self.head(self.norm(self.embedding(tokens).mean(1)))


def test_another_element_type_between_steps() -> None:
    torch.manual_seed(1)
    model = _Words()
    theirs, tokens, labels = copy.deepcopy(model), torch.randint(0, 10, (6, 5)), torch.randint(0, 3, (6,))
    step = aicf.pytorch.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), 0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-5), (torch.float32, 1e-5)):
        model.to(dtype)
        theirs.to(dtype)
        found = step(tokens, labels)
        optimizer.zero_grad()
        expected = F.cross_entropy(theirs(tokens), labels)
        expected.backward()
        optimizer.step()
        assert_same(found, expected.detach(), tolerance)
        assert_same(model.state_dict(), theirs.state_dict(), tolerance)


def test_a_buffer_that_is_replaced() -> None:
    torch.manual_seed(1)
    pair = _Pair(model=nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).double().train())
    pair.run()
    for model in (pair.ours, pair.theirs):
        model[1].running_mean = torch.ones(4, dtype=torch.float64)
    pair.run()


def test_parameters_that_are_replaced_need_another_optimizer() -> None:
    pair = _Pair()
    pair.run()
    state = {name: value * 2 for name, value in pair.ours.state_dict().items()}
    for model in (pair.ours, pair.theirs):
        model.load_state_dict(copy.deepcopy(state), assign=True)
    assert "does not belong to the module; make the optimizer from model.parameters()" in pair.refused(
        X, TARGET
    )
    pair.our_optimizer, pair.their_optimizer = (
        torch.optim.SGD(each.parameters(), 0.1) for each in (pair.ours, pair.theirs)
    )
    pair.step = aicf.pytorch.train_step(pair.ours, F.mse_loss, pair.our_optimizer)
    pair.run()


def test_parameters_that_are_replaced_in_the_optimizer_too() -> None:
    pair = _Pair()
    pair.run()
    for model, optimizer in ((pair.ours, pair.our_optimizer), (pair.theirs, pair.their_optimizer)):
        model.layers[0].weight = nn.Parameter(random(12, 8, seed=7))
        optimizer.param_groups[0]["params"] = list(model.parameters())
    pair.run()


def _freeze(pair: _Pair, number: int | None) -> None:
    for model in (pair.ours, pair.theirs):
        model.requires_grad_(True)
        if number is not None:
            model.layers[number].requires_grad_(False)
    pair.their_optimizer.zero_grad()


def test_weights_are_frozen_and_melt_again() -> None:
    pair = _Pair()
    for frozen in (None, 0, 2, None):
        _freeze(pair, frozen)
        pair.run()


def test_weights_that_melt_have_made_fewer_steps_of_adam() -> None:
    pair = _Pair(make=torch.optim.AdamW)
    for frozen in (None, 0):
        _freeze(pair, frozen)
        pair.run()
    _freeze(pair, None)
    assert "some parameters have made 2 steps of the optimizer, others 4" in pair.refused(X, TARGET)
    for model, optimizer in ((pair.ours, pair.our_optimizer), (pair.theirs, pair.their_optimizer)):
        _eager_step(model, optimizer, X, TARGET)  # PyTorch's own step goes on
    pair.check()
    _freeze(pair, 0)
    pair.run()


def test_a_parameter_that_is_not_dense() -> None:
    for weight in (random(12, 16)[:, ::2], random(12, 1).expand(12, 8)):
        model = _Own(_plain)
        model.layers[0].weight = nn.Parameter(weight)
        before = weight.clone()
        step = aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
        with pytest.raises(AicfError, match=r"'layers.0.weight' is not dense in memory; .*contiguous\(\)"):
            step(X, TARGET)
        assert_same(weight, before)


def test_parameters_that_overlap() -> None:
    memory = random(100)
    model = nn.Sequential(nn.Linear(8, 8, False), nn.Linear(8, 4, False)).double()
    model[0].weight.data, model[1].weight.data = memory[:64].view(8, 8), memory[60:92].view(4, 8)
    step = aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(AicfError, match="'1.weight' and '0.weight' are two tensors that share memory"):
        step(X, TARGET)
    assert_same(memory, random(100))


def test_parameters_side_by_side_in_one_memory() -> None:
    memory = random(96, seed=3)
    model = nn.Sequential(nn.Linear(8, 8, False), nn.Linear(8, 4, False)).double()
    model[0].weight.data, model[1].weight.data = memory[:64].view(8, 8), memory[64:].view(4, 8)
    _Pair(model=model).run()
    assert not torch.equal(memory, random(96, seed=3))


def test_states_that_lie_in_another_order() -> None:
    """The state of a file is row-major, the weight of a convolution is channels-last."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 4)).double()
    pair = _Pair(make=torch.optim.AdamW, model=model)
    images = random(6, 3, 6, 6)
    pair.run(images)
    for module, optimizer in ((pair.ours, pair.our_optimizer), (pair.theirs, pair.their_optimizer)):
        module.to(memory_format=torch.channels_last)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    pair.run(images)


# Modes, threads and copies


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_steps_inside_of_modes_without_gradients(mode: Any) -> None:
    """The gradients are part of the step; PyTorch goes on with the states afterwards."""
    pair = _Pair(make=torch.optim.AdamW)
    for _ in range(2):
        with mode():
            found = pair.step(X, TARGET)
        assert not found.is_inference()
        assert_same(found, _eager_step(pair.theirs, pair.their_optimizer, X, TARGET), 1e-9)
    pair.check()
    for model, optimizer in ((pair.ours, pair.our_optimizer), (pair.theirs, pair.their_optimizer)):
        _eager_step(model, optimizer, X, TARGET)
    pair.check()


def test_threads_take_turns() -> None:
    pair = _Pair()
    with ThreadPoolExecutor(8) as pool:
        losses = list(pool.map(lambda _: float(pair.step(X, TARGET)), range(24)))
    expected = [float(_eager_step(pair.theirs, pair.their_optimizer, X, TARGET)) for _ in range(24)]
    assert sorted(losses, reverse=True) == pytest.approx(expected, rel=1e-9)
    pair.check()
    assert pair.step.steps == 24


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))])
def test_a_copy_of_a_step(copied: Callable[[Any], Any]) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)).double()
    pair = _Pair(make=torch.optim.AdamW, model=model)
    pair.run()
    weights = copy.deepcopy(pair.ours.state_dict())
    other = copied(pair.step)
    assert other.steps == pair.step.steps == 2
    assert not other.executables
    for _ in range(2):
        found = other(X, TARGET)
        assert_same(found, _eager_step(pair.theirs, pair.their_optimizer, X, TARGET), 1e-9)
    assert_same(other.model.state_dict(), pair.theirs.state_dict(), 1e-9)
    assert_same(other.optimizer.state_dict()["state"], pair.their_optimizer.state_dict()["state"], 1e-9)
    assert_same(pair.ours.state_dict(), weights)


def test_the_least_recently_used_program_goes() -> None:
    pair = _Pair()
    pair.step = aicf.pytorch.train_step(
        pair.ours, F.mse_loss, pair.our_optimizer, options={"max_programs": 2}
    )
    references: list[weakref.ref[Any]] = []
    for rows in (6, 5, 6, 4):
        pair.run(X[:rows], TARGET[:rows], 1)
        references.append(weakref.ref(pair.step.executables[-1]))
    gc.collect()
    assert [each() is None for each in references] == [False, True, False, False]  # that of 5 rows is gone
    assert len(pair.step.executables) == 2
    kept = pair.step.executables
    pair.run(X, TARGET, 1)
    assert pair.step.executables == [kept[1], kept[0]]


def test_a_compiled_module_is_taken_as_the_module_inside() -> None:
    pair = _Pair()
    wrapped = torch.compile(pair.ours, backend=aicf.pytorch.aicf_backend)
    pair.step = aicf.pytorch.train_step(wrapped, F.mse_loss, pair.our_optimizer)
    pair.run()


def test_a_distributed_module_is_refused(tmp_path: Any) -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        pair = _Pair()
        wrapped = nn.parallel.DistributedDataParallel(pair.ours)
        pair.step = aicf.pytorch.train_step(wrapped, F.mse_loss, pair.our_optimizer)
        assert "DistributedDataParallel sums gradients by hooks" in pair.refused(X, TARGET)
    finally:
        distributed.destroy_process_group()
