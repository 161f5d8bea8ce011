"""Weights as users hand them over, arrays by name or a file of them, in the one form that everything works on.

Whether they fit a program is checked where the program is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import isdir
from pathlib import Path
from typing import TypeAlias

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import ArrayLike

from aicf.errors import InputMismatch
from aicf.runtime.tensors import Array
from aicf.support.arguments import mapping_from, path_from

Weights: TypeAlias = str | Path | Mapping[str, ArrayLike]
"""A `.safetensors` path, or arrays by name."""


def read_weights(weights: Weights | None) -> dict[str, Array]:
    """Arrays by name.

    Raises:
        InputMismatch: the file cannot be read or is no safetensors file, or a weight is no array.
    """
    if weights is None:
        return {}
    if isinstance(weights, str | Path):
        return _read_weights_file(path_from(weights, InputMismatch, "the weights' path"))
    by_name = mapping_from(weights, InputMismatch, "weights")
    return {name: _as_weight(name, value) for name, value in by_name.items()}


def _as_weight(name: str, value: ArrayLike) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == np.object_:
        raise InputMismatch(f"weight '{name}': {type(value).__name__} is no array of numbers; use np.asarray")
    return array


def _read_weights_file(path: Path) -> dict[str, Array]:
    try:
        return dict(safetensors.numpy.load_file(path))  # pyright: ignore[reportUnknownMemberType]
    except OSError as error:
        reason = error.strerror or ("it is a folder" if isdir(path) else "no such file")
        raise InputMismatch(
            f"cannot read the weights: {reason}; check the path", location=str(path)
        ) from error
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputMismatch(
            f"no safetensors file: {error}; write it with safetensors.numpy.save_file", location=str(path)
        ) from error
