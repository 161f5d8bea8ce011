"""Which cases of tests with the marker `drawn` run with `--half-drawn`.

It follows from the position of a case in the parametrisation of its test alone, so that naming cases or files changes
nothing about the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

_KEPT = (0, 2, 5, 7)
"""Of each eight positions. Those kept have every remainder of 2, 3 and 4: what a seed means often follows from that."""
_POSITION = pytest.StashKey[int]()


def in_half(position: int) -> bool:
    """Whether the case at a position is one of the half; the first one is."""
    return position % 8 in _KEPT


def number_cases(cases: Sequence[pytest.Item]) -> None:
    """Tells the cases of one test, all of them in pytest's order, their positions."""
    for position, case in enumerate(cases):
        case.stash[_POSITION] = position


def position_of(case: pytest.Item) -> int:
    """Of a case among all of its test; 0 if it is the only one."""
    return case.stash.get(_POSITION, 0)
