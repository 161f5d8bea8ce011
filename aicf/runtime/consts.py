"""Values of const binds, and of metas that say what they start with, which a plan holds as text."""

from __future__ import annotations

import numpy as np

from aicf.errors import ArtifactError
from aicf.runtime.graph import Bind
from aicf.runtime.memory import allocate_tensor
from aicf.runtime.tensors import Array, describe, numpy_dtype


def read_const(bind: Bind) -> Array:
    """The value of a bind that has one, in memory of ours. Raises ArtifactError if it has another size."""
    dtype = numpy_dtype(bind.dtype)
    try:
        values = np.frombuffer(bytes.fromhex(bind.value or ""), dtype)
        dense = values.reshape(bind.shape)
    except ValueError as error:
        raise ArtifactError(
            f"{bind.role} '{bind.name}' does not hold {describe(bind.shape, bind.dtype)}: {error}"
        ) from error
    array = allocate_tensor(bind.shape, bind.strides, bind.dtype, bind.nbytes)
    array[...] = dense
    return array
