"""Text that ends where a stop string begins, as it is made piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aicf.errors import InputMismatch, quoted


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One or several stop strings as a tuple. Raises InputMismatch if one is empty or no text, or if it is neither a
    text nor a sequence."""
    if not isinstance(stop, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputMismatch(f"stop is {quoted(stop)}; give a text or a list of texts, () for none")
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    for each in strings:
        if not isinstance(each, str) or not each:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputMismatch(f"a stop string is {quoted(each)}; give text of one character or more")
    return strings


class StopFilter:
    """A text up to the first stop string, which is not part of it. What may be the start of one waits.

    Args:
        stops: The stop strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.is_over = False
        self._stops, self._waiting = stops, ""

    def push(self, piece: str) -> str:
        """What is certain to belong to the text, with a piece more; once `is_over` the text has ended."""
        self._waiting += piece
        found = [at for stop in self._stops if (at := self._waiting.find(stop)) >= 0]
        self.is_over = bool(found)
        ready = min(found) if found else len(self._waiting) - _longest_start(self._waiting, self._stops)
        text, self._waiting = self._waiting[:ready], "" if found else self._waiting[ready:]
        return text

    def finish(self) -> str:
        """What still waited when the text ended by itself."""
        text, self._waiting = self._waiting, ""
        return text


def until_stop(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The pieces up to the first stop string, as `StopFilter` gives them."""
    text = StopFilter(stops)
    for piece in pieces:
        if ready := text.push(piece):
            yield ready
        if text.is_over:
            return
    if rest := text.finish():
        yield rest


def _longest_start(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text that begin a stop string."""
    longest = min(max(map(len, stops), default=1) - 1, len(text))
    sizes = range(longest, 0, -1)
    return next((size for size in sizes if any(stop.startswith(text[-size:]) for stop in stops)), 0)
