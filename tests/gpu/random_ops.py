"""Every op in shapes and with attributes that Hypothesis draws: a family of ops with an element type is one program.

The draws follow from the name of the case and the version of Hypothesis: what one process compiles another one runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from random import Random
from typing import TypeVar
from zlib import crc32

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gpu.programs import DTYPES, Program
from tests.support import elementwise_ops
from tests.support.elementwise_ops import OPS, every_op, operands
from tests.support.op_rows import FAMILIES
from tests.support.op_rows.row import Use, program

_T = TypeVar("_T")

DRAWS = 3
"""Programs of each family and element type."""

SIZES = (1, 2, 3, 5, 8, 9, 16, 33, 64, 100, 257)
"""Of elementwise ops: vectors of all widths, full and with tails."""
ELEMENTWISE = "elementwise"


@dataclass(frozen=True)
class RandomOps:
    """What a case was drawn from.

    Args:
        family: Key of `FAMILIES`, or `ELEMENTWISE`.
        dtype: The element type of the ops.
        number: Which draw.
    """

    family: str
    dtype: str
    number: int

    @property
    def name(self) -> str:
        """Of the case."""
        return f"drawn-{self.family}-{self.dtype}-{self.number}"

    def program(self) -> Program:
        """The program with its inputs."""
        if self.family == ELEMENTWISE:
            shape, arrays = self.elementwise()
            return Program(every_op(shape, self.dtype), dict(zip(("x0", "x1"), arrays, strict=True)))
        return Program(*program(self.uses()))

    def uses(self) -> tuple[Use, ...]:
        """One use of each op of the family that takes the element type; results are ``y0``, ``y1`` and so on."""
        return _uses(self)

    def elementwise(self) -> tuple[tuple[int, ...], Sequence[elementwise_ops.Array]]:
        """A shape, and two operands of it for all elementwise ops."""
        shape, number = _made_from(st.tuples(_SHAPES, st.integers(0, 2**32 - 1)), self.name)
        return shape, operands(2, self.dtype, shape, number)


_SHAPES = (
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=3)
    .map(tuple)
    .filter(lambda shape: prod(shape) <= 20_000)
)
_ENOUGH_BYTES = 1 << 14


@cache
def _uses(ops: RandomOps) -> tuple[Use, ...]:
    rows = [row for row in FAMILIES[ops.family] if ops.dtype in row.dtypes]
    return _made_from(st.tuples(*(row.uses(ops.dtype) for row in rows)), ops.name)


def _made_from(strategy: st.SearchStrategy[_T], name: str) -> _T:
    """A value of the strategy that follows from `name` alone: seeded draws of Hypothesis also take constants from the
    modules that a process has loaded, draws from given bytes do not."""
    found: list[_T] = []

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: _T) -> None:
        found.append(value)

    random = Random(crc32(name.encode()))
    while not found:  # some bytes make no value
        collect.hypothesis.fuzz_one_input(random.randbytes(_ENOUGH_BYTES))
    return found[0]


def _families() -> dict[str, tuple[str, ...]]:
    """The element types of each family."""
    taken = {family: {dtype for row in rows for dtype in row.dtypes} for family, rows in FAMILIES.items()}
    taken[ELEMENTWISE] = {dtype for op in OPS.values() for dtype in op.dtypes}
    return {family: tuple(dtype for dtype in DTYPES if dtype in types) for family, types in taken.items()}


RANDOM_OPS = {
    ops.name: ops
    for family, dtypes in _families().items()
    for dtype in dtypes
    for ops in (RandomOps(family, dtype, number) for number in range(DRAWS))
}
"""By the names of the cases."""
