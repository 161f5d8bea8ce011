"""Drawn poolings, a dozen in a program, and a few of fixed sizes, in every layout. Floats among them are no numbers.

Where a value is channels-last it is given so, and seen through a transposition: kernels read it where it lies.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from aicf.frontends.builder import Graph, Value
from tests.gpu.programs import Program
from tests.support.random_pools import DrawnPool, drawn_pool

Lies = Literal["rows", "mixed", "last"]
"""Row-major; channels-last but for the results; channels-last, which takes a policy that says so."""

EACH = 12
"""Poolings in a program."""
POOL_POLICY: dict[Lies, dict[str, Any]] = {
    "rows": {},
    "mixed": {"layouts": {"*": "row_major"}},
    "last": {"layouts": {"*": "channels_last"}},
}


def drawn_pools(lies: Lies, number: int) -> Program:
    """A program of drawn poolings: those of `number` are the same in every layout."""
    return pools(lies, [drawn_pool(seed) for seed in range(number * EACH, (number + 1) * EACH)])


def pools(lies: Lies, drawn: list[DrawnPool]) -> Program:
    """A program of some poolings, each with an operand of its own."""
    g, arrays = Graph("pools"), dict[str, Any]()
    for seed, pool in enumerate(drawn):
        name, values = f"x{seed}", pool.values(seed)
        if lies == "rows":
            g.output(pool.of(g, g.input(name, pool.shape, pool.dtype)), f"y{seed}")
        else:
            values = np.ascontiguousarray(np.moveaxis(values, 1, -1))
            x = g.input(name, values.shape, pool.dtype)
            y = pool.of(g, g.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)]))
            g.output(_channels_last(g, y) if lies == "last" else y, f"y{seed}")
        arrays[name] = values
    return Program(g.module(), arrays)


def _channels_last(g: Graph, y: Value) -> Value:
    return g.transpose(y, [0, *range(2, y.rank), 1])


def pool_layer(op: str, dtype: str, shape: tuple[int, ...], size: int, stride: int) -> DrawnPool:
    """A layer of a network, padded so that the windows are centred."""
    rank, low = len(shape) - 2, [size // 2] * (len(shape) - 2)
    windows: dict[str, Any] = {"sizes": [size] * rank, "strides": [stride] * rank, "low": low, "high": low}
    return DrawnPool(op, shape, dtype, windows)
