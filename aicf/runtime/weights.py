"""Weights as a plan needs them: checked by name, shape and dtype, in memory that programs can read.

They come from a safetensors file or a dict; where they are stored is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aicf.errors import ArtifactError, InputMismatch
from aicf.runtime.consts import read_const
from aicf.runtime.deferred_weights import DeferredWeights
from aicf.runtime.graph import Bind
from aicf.runtime.memory import CACHE_LINE, copy_of
from aicf.runtime.ports import reject_unknown
from aicf.runtime.tensors import Array, address, dense_strides, describe, describe_array, numpy_dtype


def bind_weights(binds: Sequence[Bind], weights: Mapping[str, Array]) -> Mapping[str, Array]:
    """The array of each weight, as it is where a program can read it in place, else copied.

    What is deferred stays so, and its shape is checked when it is made.

    A state that is not given starts as `start_of_state` says, and a meta with the value that the program states.

    Raises:
        InputMismatch: weights are missing or too many, or one has another shape or dtype.
    """
    names = [bind.name for bind in binds]
    starts = {bind.name: read_const(bind) for bind in binds if bind.value is not None}
    starts |= {
        bind.name: start_of_state(bind.name, bind.shape, bind.dtype)
        for bind in binds
        if bind.role == "state" and bind.value is None and bind.name not in weights
    }
    if missing := [name for name in names if name not in weights and name not in starts]:
        given = ", ".join(weights) or "none; pass a .safetensors file (--weights) or arrays by name"
        raise InputMismatch(
            f"missing weight{'s' if len(missing) > 1 else ''} {', '.join(missing)}; given: {given}"
        )
    reject_unknown(weights, names, "weight")
    if isinstance(weights, DeferredWeights):
        by_name = {bind.name: bind for bind in binds}

        def make(name: str, _: str | None) -> Array:
            bind = by_name[name]
            return _in_place(bind, weights.read(name, bind.dtype) if name in weights else starts[name])

        return DeferredWeights(names, make)
    given = {**starts, **weights}
    return {bind.name: _in_place(bind, given[bind.name]) for bind in binds}


def start_of_state(name: str, shape: Sequence[int], dtype: str) -> Array:
    """What a state begins with: zeros; ones for a running variance, as in the norms of `torch.nn`."""
    value = 1 if name.endswith("running_var") else 0
    # Memory that is zero takes no room until it is written.
    return np.full(shape, value, numpy_dtype(dtype)) if value else np.zeros(shape, numpy_dtype(dtype))


def _in_place(bind: Bind, weight: Array) -> Array:
    array = np.asarray(weight)
    if array.shape != bind.shape or array.dtype != numpy_dtype(bind.dtype):
        wanted = describe(bind.shape, bind.dtype)
        raise InputMismatch(
            f"weight '{bind.name}': expected {wanted}, got {describe_array(array)}; save it with that type"
        )
    if bind.strides != dense_strides(bind.shape):
        raise InputMismatch(
            f"weight '{bind.name}' is bound with strides {bind.strides}; bind weights row-major and view them"
        )
    return array if array.flags.c_contiguous and array.flags.aligned else copy_of(array)


def bind_derived(binds: Sequence[Bind], cached: Mapping[str, Array]) -> dict[str, Array]:
    """Prepared weights that are there already, on cache-line boundaries: those of another executable as they are, those
    of an artifact, which are not to be written, as copies of ours.

    Raises:
        ArtifactError: one is missing or has another size.
    """
    for bind in binds:
        found = cached.get(bind.name)
        if found is None or found.nbytes != bind.nbytes:
            size = "none" if found is None else f"{found.nbytes} bytes"
            raise ArtifactError(
                f"prepared weight '{bind.name}' needs {bind.nbytes} bytes, found {size}; compile again"
            )
    arrays = {bind.name: np.ascontiguousarray(cached[bind.name]).reshape(-1).view(np.uint8) for bind in binds}
    return {
        name: array if array.flags.writeable and not address(array) % CACHE_LINE else copy_of(array)
        for name, array in arrays.items()
    }
