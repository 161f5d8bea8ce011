"""Convolutions whose epilogue has other dimensions than their result: dropped and added ones of size 1, repeated ones;
against float64 NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import aicf
from aicf.frontends.builder import Graph
from tests.backends.cpu.test_conv import arrays
from tests.support.random_graphs import run_program

Shape = Sequence[int]

CASES: dict[str, tuple[Shape, Shape, Shape, Shape]] = {
    "no batch": ((1, 3, 8, 9), (5, 3, 3, 3), (5, 8, 9), (5, 8, 9)),
    "no batch, one dimension": ((1, 3, 17), (5, 3, 3), (5, 17), (5, 17)),
    "no columns": ((2, 3, 9, 1), (5, 3, 3, 3), (2, 5, 9), (2, 5, 9)),
    "no rows": ((2, 3, 1, 9), (5, 3, 3, 3), (2, 5, 9), (2, 5, 9)),
    "no batch and no columns": ((1, 3, 16, 1), (2, 3, 3, 3), (2, 16), (2, 16)),
    "no channels": ((2, 3, 4, 5), (1, 3, 3, 3), (2, 4, 5), (2, 4, 5)),
    "single pixels without a batch": ((1, 4, 4, 6), (7, 4, 1, 1), (7, 4, 6), (7, 4, 6)),
    "one more": ((2, 3, 8), (5, 3, 3), (2, 1, 5, 8), (2, 1, 5, 8)),
    "repeated images": ((1, 3, 8, 9), (4, 3, 3, 3), (1, 4, 8, 9), (3, 4, 8, 9)),
    "repeated channels": ((2, 3, 8, 9), (1, 3, 3, 3), (2, 1, 8, 9), (2, 5, 8, 9)),
    "repeated rows": ((2, 3, 1, 9), (5, 3, 3, 3), (2, 5, 1, 9), (2, 5, 6, 9)),
}
"""Shapes of the operand and of the weight, of what follows, and of what is added to that."""


@pytest.mark.parametrize("layout", ["row_major", "channels_last"])
@pytest.mark.parametrize("name", CASES)
def test_what_follows_has_other_dimensions(name: str, layout: str) -> None:
    x, weight, seen, beside = CASES[name]
    g = Graph("convolution")
    low = [size // 2 for size in weight[2:]]
    y = g.conv(g.input("x", x), g.param("w", weight), low=low, name="c")
    g.output(g.relu(g.reshape(y, seen)) + g.input("r", beside), "y")
    given = arrays(g)
    wanted = run_program(g.module(), given)["y"]
    policy = f"{{layouts: {{'*': {layout}}}}}"
    exe = aicf.compile(g.module(), weights={"w": given.pop("w")}, target="cpu", policy=policy)
    np.testing.assert_allclose(exe.run(given)["y"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
