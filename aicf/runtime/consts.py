"""Values of const binds, and of metas that say what they start with, which a plan holds as text."""

from __future__ import annotations

import numpy as np

from aicf.errors import ArtifactError
from aicf.runtime.graph import Bind
from aicf.runtime.memory import allocate_tensor
from aicf.runtime.tensors import Array, describe, numpy_dtype


def read_const(bind: Bind) -> Array:
    """The value of a bind that has one, in memory of ours; one element stands everywhere.

    Raises:
        ArtifactError: it has another size.
        BackendUnavailable: there is not so much memory.
    """
    try:
        raw = bytes.fromhex(bind.value or "")
        elements = np.frombuffer(raw, numpy_dtype(bind.dtype))
        value = (
            np.broadcast_to(elements[0], bind.shape) if len(elements) == 1 else elements.reshape(bind.shape)
        )
    except ValueError as error:
        raise ArtifactError(
            f"{bind.role} '{bind.name}' does not hold {describe(bind.shape, bind.dtype)}: {error}"
        ) from error
    array = allocate_tensor(bind.shape, bind.strides, bind.dtype, bind.nbytes)
    if any(raw):  # new memory is zero, and takes no room until it is written
        array[...] = value
    return array
