"""The losses of the last steps, kept by the step itself: a ring in its state, so that no step waits for the host.

Entry `(s - 1) mod LENGTH` is the loss of step s, counted from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aicf.dialects.step_names import OWN
from aicf.runtime.tensors import Array, describe_array, numpy_dtype

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

RING, STEPS = f"{OWN}losses", f"{OWN}slots"
"""Names of the state, and of the steps of its entries, modulo its length."""
HISTORY = f"{OWN}history"
"""Name of the losses in a checkpoint or artifact: those of the last steps, up to its own."""
LENGTH = 1024
"""Steps between two readings, at most; a power of two."""


def write_ring(graph: Graph, step: Value, loss: Value) -> dict[str, Array]:
    """Adds the state and its update by the loss of step number `step`; gives first values.

    The numbers of the entries are read from memory, and compared with one number that follows from the step: so the
    update is arithmetic on tensors, like that of a parameter, and joins the one instruction of all of them.
    """
    ring = graph.state(RING, (LENGTH,), loss.dtype)
    steps = graph.param(STEPS, (LENGTH,), step.dtype)
    own = graph.and_(step, LENGTH - 1, name="losses.slot")
    graph.update(ring, graph.select(graph.eq(steps, own), loss, ring, name="losses.ring"))
    numbers = np.arange(1, LENGTH + 1, dtype=numpy_dtype(step.dtype)) % LENGTH
    return {RING: np.zeros(LENGTH, numpy_dtype(loss.dtype)), STEPS: numbers}


def read_ring(ring: Array, first: int, last: int) -> Array:
    """The losses of steps `first` to `last`, both counted from 1, of which the ring still holds all."""
    return ring[np.arange(first - 1, last) % LENGTH]


def history_problem(losses: Array, step: Array | None) -> str | None:
    """Why this cannot be the losses of a state whose counter is `step`; None if it can."""
    most = 0 if step is None or step.size != 1 else int(step.reshape(()))
    if losses.ndim != 1 or losses.dtype.kind != "f" or len(losses) > max(most, 0):
        return f"it has {describe_array(losses)} as the losses of {most} steps"
    return None
