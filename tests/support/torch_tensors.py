"""Arrays as PyTorch tensors and back, bfloat16 among them, which NumPy knows only from ``ml_dtypes``."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support.elementwise_ops import Array

torch = pytest.importorskip("torch")


def tensor(array: Array) -> Any:
    """A PyTorch tensor with a copy of the elements."""
    if array.dtype != ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array))
    return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)


def array_of(result: Any) -> Array:
    """The other way round."""
    if result.dtype != torch.bfloat16:
        return result.numpy()
    return result.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
