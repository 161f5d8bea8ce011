"""The errors every floor of AICF raises.

One class per kind of failure, all derived from :class:`AicfError`. A message is one line: what is wrong, the op it
is about, and the way out. Nothing here formats tracebacks or decides exit codes; the command line does that.
"""

from __future__ import annotations


class AicfError(Exception):
    """Base of all AICF errors.

    Args:
        message: What is wrong and the way out, one line.
        location: Source position ``file:line:col`` if one exists.
    """

    def __init__(self, message: str, *, location: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.location = location
        super().__init__(f"{location}: {self.message}" if location else self.message)

    def locate(self, location: str) -> None:
        """Adds where it arose, which who raised it did not know."""
        self.location = location
        self.args = (f"{location}: {self.message}",)


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


class SessionClosed(AicfError):
    """A session was used after its end."""
