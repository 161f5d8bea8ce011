"""Delta debugging on tests that are known: what is found is bad, and is not without any one change."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from aicf.bisection.delta_debugging import Outcome, Test, ddmin, hierarchical
from aicf.bisection.race import LEAST_ROUNDS, sign

COUNT = 24
culprits = st.frozensets(st.integers(0, COUNT - 1), min_size=1, max_size=5)


def nothing(left: object) -> None:
    """Nobody looks on."""


def blaming(culprit: frozenset[int], asked: list[frozenset[int]]) -> Test:
    def test(chosen: frozenset[int]) -> Outcome:
        asked.append(chosen)
        return Outcome.BAD if culprit <= chosen else Outcome.GOOD

    return test


@given(culprits)
def test_the_culprits_are_found(culprit: frozenset[int]) -> None:
    assert frozenset(ddmin(range(COUNT), blaming(culprit, []), nothing)) == culprit


def test_one_culprit_takes_few_tests() -> None:
    for count in (2, 64, 1024):
        for culprit in (0, count // 3, count - 1):
            asked: list[frozenset[int]] = []
            assert ddmin(range(count), blaming(frozenset([culprit]), asked), nothing) == [culprit]
            assert len(asked) <= 2 * log2(count)


@given(st.integers(2, 9), st.randoms(use_true_random=False))
def test_what_is_found_is_minimal_whatever_the_test_says(count: int, random: object) -> None:
    """Outcomes without rhyme or reason, as of decisions that depend on each other."""
    known: dict[frozenset[int], Outcome] = {frozenset(range(count)): Outcome.BAD, frozenset(): Outcome.GOOD}

    def test(chosen: frozenset[int]) -> Outcome:
        return known.setdefault(chosen, random.choice(list(Outcome)))  # type: ignore[attr-defined]

    found = frozenset(ddmin(range(count), test, nothing))
    assert test(found) is Outcome.BAD
    if len(found) > 1:
        assert all(test(found - {one}) is not Outcome.BAD for one in found)


@given(culprits)
def test_units_go_together_at_first(culprit: frozenset[int]) -> None:
    """A set without the first change of a unit it has others of does not compile."""
    units = [list(range(first, first + 4)) for first in range(0, COUNT, 4)]
    asked: list[frozenset[int]] = []

    def test(chosen: frozenset[int]) -> Outcome:
        asked.append(chosen)
        if any(unit[0] not in chosen and chosen.intersection(unit) for unit in units):
            return Outcome.UNRESOLVED
        return Outcome.BAD if culprit <= chosen else Outcome.GOOD

    narrowed: list[int] = []
    found = frozenset(hierarchical(units, test, lambda left: narrowed.append(len(left))))
    heads = {unit[0] for unit in units if culprit.intersection(unit)}
    assert found == culprit | heads
    assert narrowed == sorted(narrowed, reverse=True)
    whole = [chosen for chosen in asked if all(chosen.isdisjoint(u) or chosen >= set(u) for u in units)]
    assert whole, "it begins with whole units"


def test_a_sign_is_clear_or_not() -> None:
    """By the binomial distribution: 11 of 11 are 1 in 1024 on either side, 13 of 14 are not clear, 16 of 17 are."""
    assert LEAST_ROUNDS == 11
    assert sign([0.1] * 10) == 0 and sign([0.1] * 11) == 1 and sign([-0.1] * 11) == -1
    assert sign([1.0] * 12 + [-9.0]) == 0 and sign([1.0] * 16 + [-1e9]) == 1
    assert sign([1.0, -1.0] * 30) == 0
