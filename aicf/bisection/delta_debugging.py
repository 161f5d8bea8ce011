"""Delta debugging: a smallest set of changes that makes a test fail.

The algorithm is ddmin of A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE
Transactions on Software Engineering 28(2), 2002. What the changes are is not known here: they are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum


class Outcome(Enum):
    """What a test says of a set of changes; `UNRESOLVED` is neither, as of a program that does not compile."""

    GOOD = "good"
    BAD = "bad"
    UNRESOLVED = "unresolved"


Test = Callable[[frozenset[int]], Outcome]
"""The outcome with some of the changes. It may be asked for a set again."""


def ddmin(changes: Sequence[int], test: Test, narrowed: Callable[[Sequence[int]], None]) -> list[int]:
    """A set of changes that is bad, and is not without any one of them (1-minimal).

    It asks for about log2(n) sets of n changes if one is to blame, and for n ** 2 at worst.

    Args:
        changes: All of them together are known to be bad, and none to be good.
        test: The outcome of a set.
        narrowed: Called with each smaller set that is bad.
    """
    left, parts = list(changes), 2
    while len(left) > 1:
        bad = (part for part in _smaller(left, parts) if test(frozenset(part)) is Outcome.BAD)
        smaller = next(bad, None)
        if smaller is not None:
            is_part = len(smaller) <= -(-len(left) // parts)
            left, parts = smaller, 2 if is_part else max(parts - 1, 2)
            narrowed(left)
        elif parts < len(left):
            parts = min(len(left), 2 * parts)
        else:
            break
    return left


def hierarchical(
    units: Sequence[Sequence[int]], test: Test, narrowed: Callable[[Sequence[int]], None]
) -> list[int]:
    """The same for changes in units of those that hardly go without each other: first of units, then within these.

    After G. Misherghi and Z. Su, "HDD: Hierarchical Delta Debugging", ICSE 2006. The units that are left may be too
    many once changes in them are gone, so the changes of all of them are taken together in the second pass.
    """

    def all_of(chosen: Collection[int]) -> list[int]:
        return [change for number in sorted(chosen) for change in units[number]]

    kept = ddmin(
        range(len(units)),
        lambda chosen: test(frozenset(all_of(chosen))),
        lambda chosen: narrowed(all_of(chosen)),
    )
    return ddmin(all_of(kept), test, narrowed)


def _smaller(changes: Sequence[int], parts: int) -> Iterator[list[int]]:
    """Each of the parts, then all but each of them."""
    cuts = [len(changes) * part // parts for part in range(parts + 1)]
    spans = [(cuts[part], cuts[part + 1]) for part in range(parts)]
    yield from (list(changes[first:end]) for first, end in spans)
    if parts > 2:  # of two parts, each is all but the other
        yield from ([*changes[:first], *changes[end:]] for first, end in spans)
