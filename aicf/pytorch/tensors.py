"""PyTorch's element types and memory as AICF has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicf.dialects.types import element_named
from aicf.frontends.torch.element_types import NAMES

_DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, theirs.removeprefix("torch.")) for theirs, name in NAMES.items()
}


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's element type of that name of ours."""
    return _DTYPES[name]


def host_view(tensor: Tensor) -> NDArray[Any]:
    """The array on the memory of a tensor on the host; its dimensions are in the order of the tensor."""
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def stand_in(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array for a weight that lies elsewhere: nobody reads it, so that its pages are never there."""
    return np.zeros(shape, element_named(dtype).dtype)
