"""Dropout of the weights of attention, under torch.compile and in train_step, for the CPU and for what a GPU traces.

No test looks at eager mode's numbers, which are others: values are eager's formula with the mask that was drawn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

aten = torch.ops.aten
Attend: TypeAlias = Callable[..., Tensor]
RATE, SIZE = 0.3, 8
SCALE = SIZE**-0.5


def _plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rate: float = RATE) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, rate, scale=SCALE)


def _flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rate: float = RATE) -> Tensor:
    return aten._scaled_dot_product_flash_attention(q, k, v, rate, scale=SCALE)[0]


def _efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rate: float = RATE) -> Tensor:
    return aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, rate, scale=SCALE)[0]


def _cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rate: float = RATE) -> Tensor:
    return aten._scaled_dot_product_cudnn_attention(q, k, v, mask, True, rate, scale=SCALE)[0]


def _overrideable(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rate: float = RATE) -> Tensor:
    return aten._scaled_dot_product_fused_attention_overrideable(q, k, v, mask, rate, scale=SCALE)[0]


def _math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rate: float = RATE) -> Tensor:
    return aten._scaled_dot_product_attention_math(q, k, v, mask, rate, scale=SCALE)[0]


GPU: dict[str, Attend] = {
    "flash": _flash,
    "efficient": _efficient,
    "cudnn": _cudnn,
    "overrideable": _overrideable,
}
"""What PyTorch calls for each library of a GPU; tracing them needs none."""
ATTENTIONS = {"plain": _plain, "math": _math, **GPU}


def _heads(tokens: int = 6) -> list[Tensor]:
    return [random(2, 3, tokens, SIZE, seed=seed).requires_grad_() for seed in range(3)]


def _kept(weights: Tensor, rate: float = RATE) -> Tensor:
    """Which weights were not dropped, of what attention gives for the unit matrix as values: 0 or 1 / (1 - rate)."""
    return (weights.detach() != 0).double() / (1 - rate)


def _formula(q: Tensor, k: Tensor, v: Tensor, kept: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.mT * SCALE
    scores = scores if mask is None else scores + mask
    return (scores.softmax(-1) * kept) @ v


def _with_units(v: Tensor) -> Tensor:
    """The values beside the unit matrix: the result then has the dropped weights beside what they give."""
    return torch.cat([v, torch.eye(v.shape[-2], dtype=v.dtype).expand(*v.shape[:-1], -1)], -1)


def _with_dropped(attend: Attend) -> Attend:
    """The result of attention, and the dropped weights beside it; queries, keys and values get one size."""

    def both(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> Tensor:
        q, k = (F.pad(each, [0, k.shape[-2]]) for each in (q, k))
        return attend(q, k, _with_units(v), *more)

    return both


def _units(tokens: int, *batch: int) -> Tensor:
    return torch.eye(tokens, dtype=torch.float64).expand(*batch, -1, -1)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("masked", [True, False])
def test_both_parts_drop_the_same_weights(name: str, masked: bool) -> None:
    if masked and name == "flash":
        pytest.skip("it takes no mask")
    heads, attend = _heads(), ATTENTIONS[name]
    mask = (
        random(2, 3, 6, 6, seed=5).requires_grad_(name in ("efficient", "plain", "math")) if masked else None
    )
    leaves = [*heads, *([mask] if mask is not None and mask.requires_grad else [])]
    grad = random(2, 3, 6, SIZE + 6, seed=9)
    both = compiled(_with_dropped(attend))(*heads, mask)
    found = torch.autograd.grad(both, leaves, grad)
    kept = _kept(both[..., SIZE:])
    assert 0 < int((kept == 0).sum()) < kept.numel()
    expected = _formula(heads[0], heads[1], _with_units(heads[2]), kept, mask)
    # Sums that the libraries keep are f32.
    assert_same(both.detach(), expected.detach(), 1e-9)
    assert_same(found, torch.autograd.grad(expected, leaves, grad), 2e-6 if name in GPU else 1e-9)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_share_that_is_dropped(name: str) -> None:
    q, k = random(4, 4, 64, 64), random(4, 4, 64, 64, seed=1)
    weights = compiled(lambda q, k, v: ATTENTIONS[name](q, k, v, rate=0.1))(q, k, _units(64, 4, 4))
    share = float((weights == 0).double().mean())
    assert abs(share - 0.1) < 5 * (0.1 * 0.9 / weights.numel()) ** 0.5
    assert_same(weights, (q @ k.mT * SCALE).softmax(-1) * _kept(weights, 0.1), 1e-9)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_seed_and_calls(name: str) -> None:
    ours, heads = compiled(ATTENTIONS[name]), _heads()

    def twice(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return [ours(*heads).detach() for _ in range(2)]

    first = twice(3)
    assert_same(first, twice(3))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], twice(4)[0])


@pytest.mark.parametrize("name", GPU)
def test_two_attentions_drop_other_weights(name: str) -> None:
    q, k, _ = _heads(8)
    units = _units(8, 2, 3)
    one, other = compiled(lambda q, k, v: (GPU[name](q, k, v), GPU[name](q, k, 2 * v)))(q, k, units)
    assert not torch.equal(one == 0, other == 0)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_all_are_dropped(name: str) -> None:
    heads = _heads()
    y = compiled(lambda q, k, v: ATTENTIONS[name](q, k, v, rate=1.0))(*heads)
    grads = torch.autograd.grad(y.sum(), heads)
    assert_same([y.detach(), *grads], [torch.zeros_like(each) for each in (y, *heads)])


def test_heads_that_share_keys() -> None:
    q, k, v = random(2, 4, 6, 8), random(2, 2, 6, 8, seed=1), random(2, 2, 6, 8, seed=2)
    leaves = [each.requires_grad_() for each in (q, k, v)]
    both = compiled(_with_dropped(_flash))(q, k, v)
    grad = random(2, 4, 6, SIZE + 6, seed=9)
    found = torch.autograd.grad(both, leaves, grad)
    k, v = (each.repeat_interleave(2, 1) for each in (k, v))
    expected = _formula(q, k, _with_units(v), _kept(both[..., SIZE:]))
    assert_same(found, torch.autograd.grad(expected, leaves, grad), 2e-6)


def test_causal_attention_drops_what_it_sees() -> None:
    q, k, _ = _heads(8)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return aten._scaled_dot_product_flash_attention(q, k, v, RATE, True)[0]

    weights = compiled(attend)(q, k, _units(8, 2, 3))
    seen = torch.ones(8, 8, dtype=torch.bool).tril()
    scores = (q @ k.mT * SCALE).masked_fill(~seen, float("-inf"))
    assert_same(weights.detach(), (scores.softmax(-1) * _kept(weights)).detach(), 1e-9)


def test_queries_that_see_nothing() -> None:
    """They give 0 and pass nothing back, not NaN."""
    leaves = _heads()
    mask = torch.ones(6, 6, dtype=torch.bool).tril(-1)  # the first query sees nothing
    model = _Attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, RATE))
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    step(leaves[0].detach())
    assert all(bool(each.isfinite().all()) for each in model.parameters())


class _Attention(nn.Module):
    """Attention of linear layers of one input, which gives a loss."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.Linear(8, 8).double() for _ in range(3))
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        """A number that every weight has a part in."""
        return self.attend(*(layer(x) for layer in self.layers)).square().mean()


def test_a_step_drops_the_same_weights_both_ways() -> None:
    """A buffer tells which weights were kept."""
    x = random(2, 3, 6, 8)

    class Told(_Attention):
        def forward(self, x: Tensor) -> Tensor:
            """The loss, and beside it the weights in a buffer."""
            q, k, v = (layer(x) for layer in self.layers)
            both = _with_dropped(_plain)(q, k, v)
            self.weights.copy_(both[..., SIZE:].detach())
            return both[..., :SIZE].square().mean()

    model = Told(_plain)
    model.register_buffer("weights", torch.zeros(2, 3, 6, 6, dtype=torch.float64))
    theirs = copy.deepcopy(model)
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(3):
        loss = step(x)
        q, k, v = (layer(x) for layer in theirs.layers)
        expected = _formula(q, k, v, _kept(model.weights)).square().mean()
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert_same(loss, expected.detach(), 1e-9)
    assert_same(dict(model.named_parameters()), dict(theirs.named_parameters()), 1e-9)


@pytest.mark.parametrize("name", GPU)
def test_steps_of_what_a_gpu_traces(name: str) -> None:
    """A loss that is lower after many steps: gradients fit the weights that were kept."""
    model, x = _Attention(GPU[name]), random(2, 3, 6, 8)
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.5))
    losses = [float(step(x)) for _ in range(30)]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_a_layer_of_an_encoder() -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True).double().train()
    ours, x = compiled(layer), random(2, 5, 8)

    def loss_and_gradients(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        layer.zero_grad()
        loss = ours(x).square().mean()
        loss.backward()
        return [loss.detach(), *(each.grad.clone() for each in layer.parameters() if each.grad is not None)]

    first = loss_and_gradients(3)
    assert_same(first, loss_and_gradients(3))
    assert not torch.equal(first[0], loss_and_gradients(4)[0])


def test_a_rate_that_is_none() -> None:
    with pytest.raises(Exception, match=r"at a rate of 1.5; give a rate from 0 to 1"):
        compiled(lambda q, k, v: _flash(q, k, v, rate=1.5))(*_heads())


def test_a_budget_computes_no_attention_again() -> None:
    """It would drop other weights: what it gave is kept, whatever the budget."""
    found: list[list[Tensor]] = []
    for budget in (1.0, 0.0):
        torch._dynamo.reset()
        torch.manual_seed(3)
        heads: list[Any] = _heads()
        result = compiled(lambda q, k, v: _flash(q, k, v).sin(), memory_budget=budget)(*heads)
        result.sum().backward()
        found.append([result.detach(), *(each.grad for each in heads)])
    assert_same(found[1], found[0], 1e-9)


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_a_model_of_transformers(gradients: str, tmp_path: Path) -> None:
    """At a rate of 1 nothing is left to chance: the steps are those of eager mode."""
    transformers = pytest.importorskip("transformers")

    def model(rate: float) -> Any:
        torch.manual_seed(1)
        config = transformers.GPT2Config(
            **{"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 16},
            **{
                "attn_pdrop": rate,
                "resid_pdrop": 0.0,
                "embd_pdrop": 0.0,
                "bos_token_id": 0,
                "eos_token_id": 0,
            },
        )
        return transformers.GPT2LMHeadModel(config).double().train()

    def trained(rate: float, seed: int, our: bool = True) -> list[Tensor]:
        ours = model(rate)
        optimizer = torch.optim.SGD(ours.parameters(), 0.1)
        # The same program again comes from the folder.
        options = {"gradients": gradients, "cache_dir": tmp_path}
        step = aicf.pytorch.train_step(ours, None, optimizer, options=options)
        ids = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(5))
        torch.manual_seed(seed)
        for _ in range(2):
            if our:
                step(input_ids=ids, labels=ids)
            else:
                optimizer.zero_grad()
                ours(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
        return [each.detach() for each in ours.parameters()]

    # Its loss is computed in f32.
    assert_same(trained(1.0, 3), trained(1.0, 3, our=False), 1e-6)
    first = trained(0.3, 3)
    assert_same(first, trained(0.3, 3))
    assert not torch.equal(first[0], trained(0.3, 4)[0])
