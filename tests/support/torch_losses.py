"""PyTorch's losses and its clipping of gradients by the names of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")
functional = torch.nn.functional

Tensor = Any


def cross_entropy(x: Tensor, labels: Tensor, axis: int, **more: Any) -> Tensor:
    """Theirs has the classes in dimension 1, or 0 of a single sample."""
    return functional.cross_entropy(x.movedim(axis, 1 if x.dim() > 1 else 0), labels.long(), **more)


def clip_factor(norm: Tensor, max_norm: float) -> Tensor:
    """What theirs makes of a gradient of 1."""
    parameter = torch.zeros_like(norm)
    parameter.grad = torch.ones_like(norm)
    torch.nn.utils.clip_grads_with_norm_([parameter], max_norm, norm)
    return parameter.grad


TORCH: Mapping[str, Callable[..., Tensor]] = {
    "mse_loss": functional.mse_loss,
    "huber_loss": functional.huber_loss,
    "bce_with_logits": functional.binary_cross_entropy_with_logits,
    "cross_entropy": cross_entropy,
    "global_norm": lambda *parts: torch.nn.utils.get_total_norm(parts),
    "clip_factor": clip_factor,
}
