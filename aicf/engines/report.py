"""What a session did on its own account, as events: programs made, loaded, picked, evicted. Nothing is silent.

Events go to the logger `aicf.inference`. Where the program has set up no logging, those of level INFO and above go to
standard error; `logging.getLogger("aicf.inference").setLevel(logging.WARNING)` quiets them either way.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.inspection.explain import Decision, warning_of, wrong_declarations

LOGGER = logging.getLogger("aicf.inference")
_KEPT = 1000
"""Events that a report keeps; the oldest go first."""


@dataclass(frozen=True)
class Event:
    """One thing that a session did.

    Args:
        what: `opened`, `chosen` (the engine, by `auto`), `compiled`, `loaded`, `picked`, `evicted`, `followed`
            (programs are made for the values of an input), `declared` (wrongly, by the model), `rebuilt`, `waited`,
            `unsaved` or `closed`.
        program: The program it is about, by its sizes; empty if it is about the session.
        detail: Why and with what result, in words.
        seconds: How long it took; 0 for what takes no time.
        at: Seconds since the epoch.
    """

    what: str
    program: str
    detail: str
    seconds: float
    at: float

    def __str__(self) -> str:
        about = f" {self.program}" if self.program else ""
        took = f" in {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.what}{about}{took}: {self.detail}"


class Report:
    """The events of one session in order; the last thousand are kept.

    Attributes:
        name: Of the session's model, as soon as it is known.
    """

    def __init__(self) -> None:
        self.name = "model"
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._warned: set[tuple[str, ...]] = set()

    @property
    def events(self) -> tuple[Event, ...]:
        """All that are kept, the oldest first."""
        with self._lock:
            return tuple(self._events)

    def of(self, *what: str) -> tuple[Event, ...]:
        """The events of these kinds."""
        return tuple(event for event in self.events if event.what in what)

    def add(
        self, level: int, what: str, program: str, detail: str, seconds: float = 0.0, more: object = ""
    ) -> None:
        """Keeps an event and says it, followed by the text of `more`."""
        event = Event(what, program, detail, seconds, time.time())
        with self._lock:
            self._events.append(event)
        say(level, f"{self.name}: {event}{more}")

    def warn(self, decisions: Sequence[Decision]) -> None:
        """Says what the model declares of its values and is not so in a program, of each node once."""
        with self._lock:
            wrong = [each for each in wrong_declarations(decisions) if each.subjects not in self._warned]
            self._warned.update(each.subjects for each in wrong)
        if wrong:
            self.add(logging.WARNING, "declared", "", warning_of(wrong))

    def picked(self, program: str, *, is_first: bool) -> None:
        """Says which program a call runs; only the first call of each is kept."""
        if is_first:
            self.add(logging.DEBUG, "picked", program, "its first call")
        elif LOGGER.isEnabledFor(logging.DEBUG):
            say(logging.DEBUG, f"{self.name}: picked {program}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.events))


def say(level: int, message: str) -> None:
    """Logs a message, or prints it where no logging is set up."""
    if LOGGER.hasHandlers():
        LOGGER.log(level, "%s", message)
    elif level >= (LOGGER.level or logging.INFO):
        print(message, file=sys.stderr)
