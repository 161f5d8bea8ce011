"""A set of objects that it does not keep alive.

Unlike `weakref.WeakSet` it runs no Python when a member goes, where an exception of a signal handler would be lost.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

T = TypeVar("T")

_LEAST = 16
"""Members, dead ones too, before the dead ones are looked for."""


class WeakMembers(Generic[T]):
    """The members that are alive, in the order in which they came. For one thread at a time."""

    def __init__(self) -> None:
        self._members: dict[int, weakref.ref[T]] = {}
        self._full = _LEAST

    def add(self, member: T) -> None:
        """Takes a member, which may be there already."""
        if len(self._members) >= self._full:
            self._members = {key: known for key, known in self._members.items() if known() is not None}
            self._full = max(2 * len(self._members), _LEAST)
        self._members[id(member)] = weakref.ref(member)

    def all(self) -> list[T]:
        """The members that are alive."""
        return [member for known in self._members.copy().values() if (member := known()) is not None]

    def clear(self) -> None:
        """Forgets all members."""
        self._members = {}
