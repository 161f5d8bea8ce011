"""What follows from an attribute, worked out once and kept with it.

Attributes never change. A table of them would hash all parts of one at each look, which takes longer than most of what
is looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from xdsl.ir import Attribute

A = TypeVar("A", bound=Attribute)
T = TypeVar("T")


def kept(make: Callable[[A], T]) -> Callable[[A], T]:
    """The function, whose result for an attribute is kept with it; an error is raised each time."""
    key = f"aicf.{make.__module__}.{make.__qualname__}"
    missing = object()

    @wraps(make)
    def look(attribute: A) -> T:
        known: dict[str, Any] = vars(attribute)
        found = known.get(key, missing)
        if found is missing:
            found = known[key] = make(attribute)
        return cast(T, found)

    return look
