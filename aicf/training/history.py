"""The losses of the last steps, kept by the step itself: a ring in its state, so that no step waits for the host.

Entry `(s - 1) mod LENGTH` is the loss of step s, counted from 1.
"""

from __future__ import annotations

import numpy as np

from aicf.dialects.logical import OWN
from aicf.frontends.builder import Graph, Value
from aicf.runtime.tensors import Array, numpy_dtype

RING = f"{OWN}losses"
"""Name of the state."""
LENGTH = 1024
"""Steps between two readings, at most."""


def write_ring(graph: Graph, step: Value, loss: Value) -> dict[str, Array]:
    """Adds the state and its update by the loss of step number `step`; gives the state's first value."""
    ring = graph.state(RING, (LENGTH,), loss.dtype)
    place = graph.mod(graph.sub(step, 1), LENGTH, name="losses.place")
    is_place = graph.eq(graph.iota((LENGTH,), 0, "i64", name="losses.places"), place)
    graph.update(ring, graph.select(is_place, loss, ring, name="losses.ring"))
    return {RING: np.zeros(LENGTH, numpy_dtype(loss.dtype))}


def read_ring(ring: Array, first: int, last: int) -> Array:
    """The losses of steps `first` to `last`, both counted from 1, of which the ring still holds all."""
    return ring[np.arange(first - 1, last) % LENGTH]
