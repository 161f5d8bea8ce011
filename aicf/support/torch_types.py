"""Element types of PyTorch by their names: `torch.float32` is f32. Importing it imports neither PyTorch nor xDSL."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

NAMES: Mapping[str, str] = {
    "torch.float64": "f64",
    "torch.float32": "f32",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.float8_e4m3fn": "f8E4M3FN",
    "torch.float8_e5m2": "f8E5M2",
    "torch.int64": "i64",
    "torch.int32": "i32",
    "torch.int16": "i16",
    "torch.int8": "i8",
    "torch.uint8": "u8",
    "torch.bool": "i1",
}
"""PyTorch's name of each type that AICF has."""


_WORDS: Mapping[str | None, tuple[str, np.dtype[Any]]] = {
    "bf16": ("int16", np.dtype(ml_dtypes.bfloat16)),
    "f8E4M3FN": ("uint8", np.dtype(ml_dtypes.float8_e4m3fn)),
    "f8E5M2": ("uint8", np.dtype(ml_dtypes.float8_e5m2)),
}
"""Of types that NumPy does not have, an integer of PyTorch with as many bits, and the dtype."""

SEED = "aicf.seed"
"""The input with the seed of a program's random numbers."""


def name_of(dtype: object) -> str | None:
    """The name of an element type of PyTorch; None for one that AICF does not have, such as a complex type."""
    return NAMES.get(str(dtype))


def host_view(tensor: Any) -> NDArray[Any]:
    """An array on the memory of a tensor on the host, with the same dimensions and strides."""
    detached = tensor.detach()
    name = name_of(detached.dtype)
    if name in _WORDS:
        word, dtype = _WORDS[name]
        return np.asarray(detached.view(getattr(import_module("torch"), word)).numpy()).view(dtype)
    return np.asarray(detached.numpy())
