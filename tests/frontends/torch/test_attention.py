"""ATen's attention, and what it passes back, against eager mode."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from aicf.errors import UnsupportedOp
from tests.support.torch_single_ops import assert_op, op_program

pytestmark = pytest.mark.peers

aten = torch.ops.aten
_PLAIN = aten.scaled_dot_product_attention.default
_CPU = aten._scaled_dot_product_flash_attention_for_cpu.default
_CPU_BACK = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


def _mask(kind: str, *sizes: int) -> torch.Tensor | None:
    """A mask in which the second query sees no key."""
    if kind == "none":
        return None
    seen = _random(*sizes) > -0.5
    seen[..., 1, :] = False
    if kind == "bool":
        return seen
    return torch.where(seen, _random(*sizes), float("-inf"))


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((4, 3), (5, 3), (5, 2)),
        ((2, 4, 3), (2, 5, 3), (2, 5, 2)),
        ((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 6)),
        ((2, 3, 4, 3), (1, 1, 5, 3), (2, 3, 5, 6)),
    ],
)
@pytest.mark.parametrize("kind", ["none", "bool", "float"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], kind: str, scale: float | None
) -> None:
    heads = _random(*query), _random(*key), _random(*value)
    mask = _mask(kind, 4, 5)
    assert_op(_PLAIN, *heads, mask, scale=scale)
    if kind == "none":
        assert_op(_PLAIN, *heads, None, 0.0, True, scale=scale)


def test_heads_that_share_keys() -> None:
    heads = _random(2, 6, 4, 3), _random(2, 2, 5, 3), _random(2, 2, 5, 3)
    assert_op(_PLAIN, *heads, enable_gqa=True)
    assert_op(_PLAIN, *heads, _mask("float", 2, 1, 4, 5), enable_gqa=True)


def test_attention_is_one_op() -> None:
    program, _ = op_program(_PLAIN, *[_random(2, 3, 4, 5)] * 3, None, 0.0, True)
    assert program.module is not None
    (function,) = program.module.body.block.ops
    assert [op.name for op in function.regions[0].block.ops] == ["logical.attention", "func.return"]


def test_the_library_of_the_cpu_has_no_dropout() -> None:
    with pytest.raises(UnsupportedOp, match=r"rate of 0.5; call scaled_dot_product_attention for it"):
        op_program(_CPU, *[_random(2, 3, 4, 5)] * 3, 0.5)


def test_a_mask_of_dropped_weights_is_refused() -> None:
    math, kept = aten._scaled_dot_product_attention_math.default, _random(2, 3, 4, 4) > 0
    with pytest.raises(UnsupportedOp, match=r"mask of dropped weights; give it a rate of dropout instead"):
        op_program(math, *[_random(2, 3, 4, 5)] * 3, None, 0.5, False, kept)


@pytest.mark.parametrize("kind", ["none", "float"])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_the_cpu(kind: str, causal: bool) -> None:
    if kind == "float" and causal:
        pytest.skip("one or the other")
    heads = _random(2, 3, 4, 8), _random(2, 3, 5, 8), _random(2, 3, 5, 8)
    # A query that sees nothing has a sum of its own in each library, so that no mask hides all here.
    mask = None if kind == "none" else torch.where(_random(4, 5) > 1, float("-inf"), _random(4, 5))
    types = [torch.float64, torch.float32]
    assert_op(_CPU, *heads, 0.0, causal, attn_mask=mask, scale=0.4, types=types)
    y, sums = _CPU(*heads, 0.0, causal, attn_mask=mask, scale=0.4)
    given = (_random(2, 3, 4, 8) + 1, *heads, y, sums, 0.0, causal)
    assert_op(_CPU_BACK, *given, attn_mask=mask, scale=0.4, types=types[:1])


def _gradients(
    grad: torch.Tensor,
    heads: tuple[torch.Tensor, ...],
    mask: torch.Tensor | None,
    causal: bool,
) -> list[torch.Tensor]:
    query, key, value = (one.detach().clone().requires_grad_() for one in heads)
    more = None if mask is None else mask.detach().clone().requires_grad_()
    y = scaled_dot_product_attention(query, key, value, more, 0.0, causal, enable_gqa=True)
    leaves = [query, key, value, *([] if more is None else [more])]
    return list(torch.autograd.grad([y], leaves, [grad]))


def _sums(
    heads: tuple[torch.Tensor, ...], mask: torch.Tensor | None, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    query, key, value = heads
    repeats = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(repeats, 1) for one in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shared", [1, 2])
def test_what_attention_of_a_gpu_passes_back(causal: bool, shared: int) -> None:
    heads = _random(2, 4, 6, 8), *(_random(2, 4 // shared, 6, 8) + shift for shift in (0, 1))
    grad = _random(2, 4, 6, 8) + 1
    y, sums = _sums(heads, None, causal)
    assert_op(
        aten._scaled_dot_product_flash_attention_backward.default,
        *(grad, *heads, y, sums, torch.zeros(0), torch.zeros(0), 6, 6, 0.0, causal),
        *(torch.zeros(2), torch.zeros(2)),
        types=[torch.float64],
        like=lambda *_, **__: _gradients(grad, heads, None, causal),
    )


def test_what_a_mask_of_attention_gets() -> None:
    heads, grad = (_random(2, 4, 6, 8), _random(2, 4, 7, 8), _random(2, 4, 7, 8) + 1), _random(2, 4, 6, 8)
    mask = _random(2, 1, 6, 7)
    y, sums = _sums(heads, mask, False)
    padded = torch.nn.functional.pad(sums, [0, 26], value=float("inf"))
    assert_op(
        aten._scaled_dot_product_efficient_attention_backward.default,
        *(grad, *heads, mask, y, padded, torch.zeros(()), torch.zeros(()), 0.0, [True] * 4, False),
        types=[torch.float64],
        like=lambda *_, **__: _gradients(grad, heads, mask, False),
    )


def test_attention_with_a_mask_of_a_gpu() -> None:
    heads, mask = (_random(2, 4, 6, 8), _random(2, 4, 7, 8), _random(2, 4, 7, 8) + 1), _random(2, 1, 6, 7)
    program, _ = op_program(aten._scaled_dot_product_efficient_attention.default, *heads, mask, True)
    assert program.module is not None


def _layer() -> list[torch.Tensor]:
    sizes = [(24, 8), (24,), (8, 8), (8,)]
    return [_random(*each) * 0.3 for each in sizes]


@pytest.mark.parametrize("kind", [None, 0, 1])
@pytest.mark.parametrize("averages", [True, False])
def test_attention_between_layers(kind: int | None, averages: bool) -> None:
    x = _random(2, 4, 8)
    mask = None if kind is None else torch.eye(4, dtype=torch.bool) if kind == 0 else _random(2, 4) > 1
    assert_op(
        aten._native_multi_head_attention.default,
        *(x, x, x, 8, 2, *_layer(), mask, True, averages, kind),
        types=[torch.float64, torch.float32],
    )


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("use_gelu", [True, False])
def test_an_encoder_layer(norm_first: bool, use_gelu: bool) -> None:
    norms = [_random(8), _random(8) + 1, _random(8) * 2, _random(8) + 3]
    linear = [_random(12, 8), _random(12), _random(8, 12), _random(8)]
    assert_op(
        aten._transformer_encoder_layer_fwd.default,
        *(_random(2, 4, 8), 8, 2, *_layer(), use_gelu, norm_first, 1e-5, *norms, *linear),
        types=[torch.float64, torch.float32],
    )
