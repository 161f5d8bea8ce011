"""Page-locked host memory for callers: a device copies from and to it directly, beside the caller."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from aicf.errors import InputMismatch, quoted
from aicf.runtime.device import memory_of
from aicf.runtime.on_device.memory import PinnedBlock
from aicf.runtime.tensors import ELEMENT_NAMES, Array, numpy_dtype
from aicf.support.whole_numbers import is_whole


def pinned(shape: Sequence[int] | int, dtype: Any = "f32", device: str = "cuda") -> Array:
    """A zeroed row-major NumPy array in page-locked memory, given back when nothing refers to it.

    Args:
        shape: Sizes, or one size.
        dtype: Element type, `f32`, or what NumPy takes for one.
        device: Whose copies it is for. Raises as `runtime.pool`.

    Raises:
        InputMismatch: a size is no whole number of at least 0, or there is no such element type.
        BackendUnavailable: the system does not give so much page-locked memory.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(is_whole(size, least=0) for size in sizes):
        raise InputMismatch(f"pinned: shape {sizes} has a size that is no whole number of at least 0")
    element = _element(dtype)
    nbytes = prod(sizes) * element.itemsize
    if not nbytes:
        return np.zeros(sizes, element)
    block = PinnedBlock(memory_of(device), nbytes)
    block.array[:] = 0
    cells = (ctypes.c_uint8 * nbytes).from_address(block.address)
    weakref.finalize(cells, _let_go, block).atexit = False
    return np.ctypeslib.as_array(cells).view(element).reshape(sizes)


def _let_go(block: PinnedBlock) -> None:
    """Nothing is left to do: whoever calls this held the block as long as an array refers to its bytes."""


def _element(dtype: Any) -> np.dtype[Any]:
    try:
        return numpy_dtype(dtype) if dtype in ELEMENT_NAMES else np.dtype(dtype)
    except TypeError:
        raise InputMismatch(
            f"pinned: {quoted(dtype)} is no element type; known: {', '.join(ELEMENT_NAMES)}"
        ) from None
