"""The errors every floor of AICF raises.

One class per kind of failure, all derived from :class:`AicfError`. A message is one line: what is wrong, the op it
is about, and the way out. It stays one whatever a caller gave: what it quotes is cut, and characters that move a cursor
are escaped. Nothing here formats tracebacks or decides exit codes; the command line does that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_MAX_MESSAGE, _MAX_LOCATION, _MAX_QUOTED = 700, 400, 200
"""Characters: of a message, of a location, and of one thing that a message quotes."""
_LONG_PIECES = re.compile(rf"""'[^']{{{_MAX_QUOTED},}}'|"[^"]{{{_MAX_QUOTED},}}"|[^\s'"]{{{_MAX_QUOTED},}}""")
"""Quotations, and words, that are too long."""


def quoted(value: object) -> str:
    """What a caller gave, as a message shows it: its `repr`, cut. Never raises, whatever `repr` does."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return _cut(text, _MAX_QUOTED)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known names that are most like `name`, as a question; empty if none is like it."""
    close = difflib.get_close_matches(name[:_MAX_QUOTED], known, n=3)
    return f"did you mean {' or '.join(repr(match) for match in close)}?" if close else ""


def _one_line(text: str, most: int) -> str:
    """`text` with single spaces, cut where it is long, and nothing in it that moves a cursor."""
    text = _LONG_PIECES.sub(lambda found: _cut(found.group(), _MAX_QUOTED), " ".join(text.split()))
    text = _cut(text, most)
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _cut("".join(escaped), most)


def _cut(text: str, most: int) -> str:
    """`text` without its middle if it has more than `most` characters; a message has its way out at the end."""
    if len(text) <= most:
        return text
    mark = f"... ({len(text)} characters) ..."
    head = (most - len(mark)) // 2
    return f"{text[:head]}{mark}{text[head + len(mark) - most :]}"


class AicfError(Exception):
    """Base of all AICF errors.

    Args:
        message: What is wrong and the way out, one line.
        location: Source position ``file:line:col`` if one exists.
    """

    def __init__(self, message: str, *, location: str | None = None) -> None:
        self.message = _one_line(message, _MAX_MESSAGE)
        super().__init__(self.message)
        self.location: str | None = None
        if location:
            self.locate(location)

    def locate(self, location: str) -> None:
        """Adds where it arose, which who raised it did not know."""
        self.location = _one_line(location, _MAX_LOCATION)
        self.args = (f"{self.location}: {self.message}",)


class InvalidIR(AicfError):
    """The program text or an IR module breaks a rule of its dialect."""


class UnsupportedOp(AicfError):
    """A valid op that no kernel of the target can run."""


class ValueNeeded(UnsupportedOp):
    """What a model computes follows from the values of inputs, which are not known before it runs.

    Args:
        inputs: Their names; values for all of them are the way out.
        message, location: See `AicfError`.
    """

    def __init__(self, message: str, *, inputs: tuple[str, ...] = (), location: str | None = None) -> None:
        super().__init__(message, location=location)
        self.inputs = inputs


class PolicyError(AicfError):
    """A policy, target, pass or option names something unknown or not allowed."""


class PlanError(AicfError):
    """An emit program cannot become a capture plan: something is undecided or contradictory."""


class CaptureError(AicfError):
    """A plan cannot be captured on this backend."""


class ArtifactError(AicfError):
    """An artifact is corrupt, truncated, foreign, tampered with or from another format version."""


class BackendUnavailable(AicfError):
    """The backend, device or CPU feature that a program needs is not on this machine."""


class InputMismatch(AicfError):
    """A tensor given to an executable has the wrong name, shape, dtype or rank, or overlaps another."""


class EngineError(AicfError):
    """An engine that is not AICF's own failed while it prepared or ran a model."""


class SessionClosed(AicfError):
    """A session was used after its end."""
