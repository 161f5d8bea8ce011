"""What the tests of the backend of PyTorch share: compiling with it, and comparing trees of results."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from aicf.pytorch import aicf_backend


def compiled(model: Any, *, dynamic: bool | None = None, fullgraph: bool = True, **options: Any) -> Any:
    """A module or function, compiled with the backend."""
    return torch.compile(
        model, backend=aicf_backend, dynamic=dynamic, fullgraph=fullgraph, options=options or None
    )


def random(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Elements of a normal distribution."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_same(found: Any, expected: Any, tolerance: float | None = None) -> None:
    """Trees of tensors and plain values are the same, within what their element types allow."""
    ours, our_form = tree_flatten(found)
    theirs, their_form = tree_flatten(expected)
    assert our_form == their_form
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, Tensor):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
        else:
            assert type(one) is type(other)
            assert one == other


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """By name of the parameter, of those that have one."""
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
