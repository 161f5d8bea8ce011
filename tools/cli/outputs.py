"""Whether a command can write what it makes, and over nothing that it reads: asked before it works for minutes."""

from __future__ import annotations

from pathlib import Path

from aicf.errors import ArtifactError
from aicf.support.files import check_writable, reason_of, write_whole


def check_output(path: Path, what: str, *reads: Path | str | None) -> None:
    """Raises ArtifactError if `path` cannot be written, or is one of the files that the command reads.

    Args:
        path: The file to write; `what` names it in the message.
        reads: Files, if they are given; a policy may also be a text.
    """
    if any(read is not None and _same_file(path, read) for read in reads):
        raise ArtifactError(
            f"{what} would take the place of what it is made of; give -o another path", location=str(path)
        )
    try:
        check_writable(path)
    except OSError as error:
        raise _unwritable(path, what, error) from error


def write_text(path: Path, what: str, text: str) -> None:
    """Writes a file, whole or not at all. Raises ArtifactError if it cannot be written; `what` names it there."""
    try:
        write_whole(path, lambda stream: stream.write(text.encode()))
    except OSError as error:
        raise _unwritable(path, what, error) from error


def _unwritable(path: Path, what: str, error: OSError) -> ArtifactError:
    return ArtifactError(
        f"cannot write {what}: {reason_of(error)}; choose a path that can be written", location=str(path)
    )


def _same_file(path: Path, read: Path | str) -> bool:
    try:
        return path.samefile(read)
    except (OSError, ValueError):  # one of them is not there, or is no path
        return False
