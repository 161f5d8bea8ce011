"""Writes a whole file or none: to a temporary file in the same folder, then rename. Knows no format.

What a killed writer leaves is removed by the next one in that folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from errno import EISDIR
from functools import cache
from pathlib import Path
from typing import BinaryIO

from aicf.support.uninterrupted import uninterrupted


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
    remove_abandoned(path.parent)
    with _temporary(path.parent) as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
        Path(stream.name).replace(path)  # while it is locked
    _sync_folder(path.parent)


def remove_abandoned(folder: Path) -> None:
    """Removes the temporary files of writers in `folder` that are gone: killed, or switched off.

    A writer holds a lock of the system on its file, which ends with the process. Between machines that share a file
    system such a lock may not be seen, so a file of another machine must not have been written to for a day as well.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
        for name in names:
            if found := _TEMPORARY.fullmatch(name):
                _remove_if_abandoned(folder / name, is_ours=found["kernel"] == _kernel())


_PREFIX = ".aicf-"
_TEMPORARY = re.compile(rf"{re.escape(_PREFIX)}(?P<kernel>[0-9a-f]{{8}})-[0-9a-f]{{12}}\.tmp")
_DAY_S = 24 * 60 * 60


@cache
def _kernel() -> str:
    """What tells this running kernel from others: its processes, in all containers, see each other's locks."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        identity = platform.node().encode()
    return hashlib.sha256(identity).hexdigest()[:8]


def _new_name() -> str:
    return f"{_PREFIX}{_kernel()}-{secrets.token_hex(6)}.tmp"


@contextmanager
def _temporary(folder: Path) -> Generator[BinaryIO]:
    """A new locked file in `folder`. It goes at the end unless it was renamed."""
    while True:
        path = folder / _new_name()
        try:
            with path.open("x+b") as stream:
                if not _is_locked(stream) or not path.exists():
                    continue  # another process found it before it was locked, and removed it as abandoned
                yield stream
                return
        finally:
            with suppress(OSError):
                path.unlink()


def _is_locked(stream: BinaryIO) -> bool:
    """Locks a file of ours; False if another process has it. Where nothing can be locked, nothing is removed either."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _remove_if_abandoned(path: Path, *, is_ours: bool) -> None:
    with suppress(OSError), path.open("r+b") as stream:
        if not is_ours and time.time() - os.fstat(stream.fileno()).st_mtime < _DAY_S:
            return
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


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
    with _temporary(path.parent):
        pass


def _sync_folder(folder: Path) -> None:
    """Writes the entries of a folder to disk. Not every file system can; the file itself is complete either way."""

    def sync() -> None:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    uninterrupted(sync)
