"""Whether outputs are those that a case asks for, by the tolerances of onnx's own runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BF16_RTOL = 2.0**-6


def difference(found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> str | None:
    """What is wrong with `found`, in one line; None if nothing is."""
    if len(found) != len(expected):
        return f"{len(found)} outputs instead of {len(expected)}"
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        if (wrong := _of_value(one, other, rtol, atol)) is not None:
            return f"output {index}: {wrong}"
    return None


def _of_value(found: Any, expected: Any, rtol: float, atol: float) -> str | None:
    if expected is None or isinstance(expected, list):
        if type(found) is not type(expected):
            return f"{type(found).__name__} instead of {type(expected).__name__}"
        return None if expected is None else difference(found, expected, rtol, atol)
    found = np.asarray(found)
    if found.shape != expected.shape:
        return f"shape {list(found.shape)} instead of {list(expected.shape)}"
    if expected.dtype.kind in "OSU":
        return None if np.array_equal(found.astype(object), expected.astype(object)) else "other strings"
    if found.dtype != expected.dtype:
        return f"{found.dtype} instead of {expected.dtype}"
    return _of_numbers(found, expected, rtol, atol)


def _of_numbers(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str | None:
    if found.dtype.name == "bfloat16":
        found, expected, rtol = found.astype(np.float32), expected.astype(np.float32), max(rtol, _BF16_RTOL)
    try:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    except AssertionError:
        return _worst(found, expected, rtol, atol)
    return None


def _worst(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """The element that is farthest outside its tolerance, with both values."""
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.abs(one - other) - (atol + rtol * np.abs(other))
    excess[np.isnan(one) & np.isnan(other) | (one == other)] = -np.inf
    worst = np.unravel_index(int(np.argmax(np.nan_to_num(excess, nan=np.inf))), excess.shape)
    return f"{found[worst]} instead of {expected[worst]} at {[int(index) for index in worst]}"
