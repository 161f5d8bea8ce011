"""Text that ends where a stop string begins, as it is made piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aicf.errors import InputMismatch, quoted


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One or several stop strings as a tuple. Raises InputMismatch if one is empty or no text."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    for each in strings:
        if not isinstance(each, str) or not each:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputMismatch(f"a stop string is {quoted(each)}; give text of one character or more")
    return strings


def until_stop(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The pieces up to the first stop string, which is not among them. What may be the start of one waits."""
    waiting = ""
    for piece in pieces:
        waiting += piece
        found = [at for stop in stops if (at := waiting.find(stop)) >= 0]
        if found:
            if min(found):
                yield waiting[: min(found)]
            return
        ready = len(waiting) - _longest_start(waiting, stops)
        if ready:
            yield waiting[:ready]
            waiting = waiting[ready:]
    if waiting:
        yield waiting


def _longest_start(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text that begin a stop string."""
    longest = min(max(map(len, stops), default=1) - 1, len(text))
    sizes = range(longest, 0, -1)
    return next((size for size in sizes if any(stop.startswith(text[-size:]) for stop in stops)), 0)
