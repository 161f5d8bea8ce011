"""Whether a command will be able to write what it makes, asked before it works for minutes."""

from __future__ import annotations

from pathlib import Path

from aicf.errors import ArtifactError
from aicf.files import check_writable, reason_of


def check_output(path: Path, what: str) -> None:
    """Raises ArtifactError if `path` cannot be written; `what` names it in the message."""
    try:
        check_writable(path)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {what}: {reason_of(error)}; choose a path that can be written", location=str(path)
        ) from error
