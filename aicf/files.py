"""Writes a whole file or none: to a temporary file in the same folder, then rename. Knows no format."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from errno import EISDIR
from pathlib import Path
from typing import BinaryIO


def write_whole(path: str | Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace ``path`` by what ``write`` puts into the stream, and only once all of it is on disk.

    A device or a pipe (``/dev/null``, ``/dev/stdout``) is written in place. After a failure or an interrupt ``path``
    is what it was and no temporary file stays.

    Raises:
        OSError: The file cannot be written.
    """
    path = Path(path)
    if not path.name:
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as stream:
            write(stream)
        return
    # Follow a link to the file it names: the link stays, and the rename happens within one file system.
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("x+b") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def reason_of(error: Exception) -> str:
    """Why a file could not be read or written, without the path, which a message names once."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_writable(path: Path) -> None:
    """Finds out before long work whether `write_whole` could write `path`. Nothing of it stays.

    Raises:
        OSError: It could not.
    """
    if path.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if path.exists() and not path.is_file():
        return
    path = path.resolve()
    probe = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    probe.open("xb").close()
    probe.unlink()


def _sync_folder(folder: Path) -> None:
    # Not every file system can sync a folder; the file itself is complete either way.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
