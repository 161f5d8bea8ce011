"""`--half-drawn` chooses cases by their position, whatever else is named."""

from __future__ import annotations

import pytest

from tests.drawn_cases import in_half, position_of

LETTERS = "xyz"


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize(("number", "double"), [(n, 2 * n) for n in range(4)])
def test_positions_count_in_the_order_of_the_cases(
    number: int, double: int, letter: str, request: pytest.FixtureRequest
) -> None:
    assert double == 2 * number
    assert position_of(request.node) == number * len(LETTERS) + LETTERS.index(letter)


def test_a_test_without_parameters_is_the_first_of_its_cases(request: pytest.FixtureRequest) -> None:
    assert position_of(request.node) == 0


@pytest.mark.parametrize("divisor", [2, 3, 4])
def test_half_has_every_remainder(divisor: int) -> None:
    kept = list(filter(in_half, range(24)))
    assert len(kept) == 12
    assert {position % divisor for position in kept} == set(range(divisor))
