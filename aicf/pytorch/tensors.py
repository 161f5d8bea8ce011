"""AICF's element types in PyTorch, and arrays that stand for tensors on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aicf.runtime.tensors import numpy_dtype
from aicf.torch_types import NAMES

_DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, theirs.removeprefix("torch.")) for theirs, name in NAMES.items()
}


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's element type, by the name that AICF has for it."""
    return _DTYPES[name]


def stand_in(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array in place of a weight on a device. It is never read, so that its pages are never allocated."""
    return np.zeros(shape, numpy_dtype(dtype))
