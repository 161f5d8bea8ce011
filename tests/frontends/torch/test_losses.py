"""ATen's losses, and what they pass back, against eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.torch_single_ops import assert_op

pytestmark = pytest.mark.peers

aten = torch.ops.aten
_REDUCTIONS = [0, 1, 2]


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


def _share(*sizes: int) -> torch.Tensor:
    """Elements from 0 to 1."""
    return torch.rand(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


def _grad(reduction: int, *sizes: int) -> torch.Tensor:
    return _random(*sizes) if reduction == 0 else torch.tensor(1.5, dtype=torch.float64)


@pytest.mark.parametrize(
    ("op", "back", "more"),
    [
        (aten.mse_loss.default, aten.mse_loss_backward.default, ()),
        (aten.smooth_l1_loss.default, aten.smooth_l1_loss_backward.default, (1.0,)),
        (aten.smooth_l1_loss.default, aten.smooth_l1_loss_backward.default, (0.3,)),
        (aten.smooth_l1_loss.default, aten.smooth_l1_loss_backward.default, (0.0,)),
        (aten.huber_loss.default, aten.huber_loss_backward.default, (0.7,)),
        (aten.soft_margin_loss.default, aten.soft_margin_loss_backward.default, ()),
    ],
)
@pytest.mark.parametrize("reduction", _REDUCTIONS)
def test_distances(op: Any, back: Any, more: tuple[float, ...], reduction: int) -> None:
    x, target = _random(3, 4), _random(3, 4).flip(0)
    types = [torch.float64, torch.float32, torch.float16]
    # The numbers of a loss are rounded to f32 in halves.
    assert_op(op, x, target, reduction, *more, types=types[: 1 if more and more[0] not in (0.0, 1.0) else 3])
    given = (_grad(reduction, 3, 4), x, target, reduction, *more)
    assert_op(back, *given, types=types[: 1 if more and more[0] not in (0.0, 1.0) else 3])


@pytest.mark.parametrize("reduction", _REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_probabilities(reduction: int, weighted: bool) -> None:
    x, target, weight = _share(3, 4), _share(4, 3).T.contiguous(), _random(3, 4) if weighted else None
    x[0, 0], x[0, 1] = 0.0, 1.0
    assert_op(aten.binary_cross_entropy.default, x, target, weight, reduction)
    given = (_grad(reduction, 3, 4), x, target, weight, reduction)
    assert_op(aten.binary_cross_entropy_backward.default, *given, types=[torch.float64])
    scores, positive = _random(3, 4) * 20, _share(4) if weighted else None
    assert_op(aten.binary_cross_entropy_with_logits.default, scores, target, weight, positive, reduction)


@pytest.mark.parametrize("reduction", _REDUCTIONS)
@pytest.mark.parametrize("log_target", [True, False])
def test_divergence(reduction: int, log_target: bool) -> None:
    target = _share(3, 4)
    target[0, 0] = 0.0
    assert_op(aten.kl_div.default, _random(3, 4), target, reduction, log_target=log_target)


@pytest.mark.parametrize("sizes", [(5,), (4, 5), (2, 5, 3, 2)])
@pytest.mark.parametrize("reduction", _REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_labels(sizes: tuple[int, ...], reduction: int, weighted: bool, ignored: int) -> None:
    x, weight = _random(*sizes).log_softmax(min(1, len(sizes) - 1)), _share(5) if weighted else None
    samples = (*sizes[:1], *sizes[2:]) if len(sizes) > 1 else ()
    labels = torch.arange(x.numel() // 5).reshape(samples) % 5
    if len(sizes) > 1:
        labels.view(-1)[1] = ignored
    two = "2d" if len(sizes) == 4 else ""
    forward = getattr(aten, f"nll_loss{two}_forward").default
    backward = getattr(aten, f"nll_loss{two}_backward").default
    arguments = (labels, weight, reduction, ignored)
    types = [torch.float64, torch.float32]
    assert_op(forward, x, *arguments, types=types)
    y, total = forward(x, *arguments)
    assert_op(backward, _grad(reduction, *y.shape), x, *arguments, total, types=types)
    assert_op(aten.nll_loss_nd.default, x, *arguments, types=types)
    assert_op(aten.cross_entropy_loss.default, x, *arguments, 0.0, types=types)
    assert_op(aten.cross_entropy_loss.default, x, *arguments, 0.25, types=types)


@pytest.mark.parametrize("sizes", [(5,), (4, 5), (2, 5, 3)])
@pytest.mark.parametrize("reduction", _REDUCTIONS)
def test_probabilities_as_labels(sizes: tuple[int, ...], reduction: int) -> None:
    arguments = (_random(*sizes), _share(*sizes), _share(5), reduction, -100)
    assert_op(aten.cross_entropy_loss.default, *arguments, 0.25)
    assert_op(aten.cross_entropy_loss.default, *arguments[:2], None, reduction)


def test_labels_none_of_which_counts() -> None:
    x, labels = _random(3, 4), torch.full((3,), -100)
    assert_op(aten.cross_entropy_loss.default, x, labels)
    assert_op(aten.nll_loss_forward.default, x, labels, None, 1, -100)


@pytest.mark.parametrize("reduction", _REDUCTIONS)
def test_margins(reduction: int) -> None:
    x, other, sign = _random(3, 4), _random(4, 3).T.contiguous(), _random(3, 4).sign()
    assert_op(aten.margin_ranking_loss.default, x, other, sign, 0.5, reduction)
    assert_op(aten.hinge_embedding_loss.default, x, sign, 0.5, reduction)
    assert_op(aten.triplet_margin_loss.default, x, other, sign, 1.0, 2.0, 1e-6, True, reduction)
    assert_op(aten.cosine_embedding_loss.default, x, other, sign[:, 0], 0.25, reduction)
    labels = torch.tensor([1, 0, 3])
    assert_op(aten.multi_margin_loss.default, x, labels, 2, 0.5, _share(4), reduction)
    for weight, p in ((_share(4), 1), (None, 2)):
        given = (_grad(reduction, 3), x, labels, p, 0.5, weight, reduction)
        assert_op(aten.multi_margin_loss_backward.default, *given, types=[torch.float64, torch.float32])
