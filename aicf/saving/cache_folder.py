"""A folder of compiled programs that processes share: who may write an entry, and what all keys are made of.

Entries appear whole or not at all (`files.write_whole`), and one process at a time makes one. What an entry holds is
known to those who make it: `inference.cache` and `llm.cache`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

from aicf.errors import ArtifactError
from aicf.saving.artifact import FORMAT_VERSION, toolchain_lock
from aicf.support.files import remove_abandoned


class CacheFolder:
    """A folder of entries. What a killed process left half written is removed when it is opened.

    Args:
        folder: Made if it is not there.

    Raises:
        ArtifactError: the folder cannot be made or used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(
                f"cannot use the cache folder: {error.strerror}; choose one that can be written",
                location=str(folder),
            ) from error
        remove_abandoned(folder)

    def path(self, key: str, suffix: str = ".aicf") -> Path:
        """Where an entry is, or another file of its."""
        return self._folder / f"{key}{suffix}"

    @contextmanager
    def alone(
        self, key: str, *, waits: Callable[[], object], refused: Callable[[str], object]
    ) -> Generator[None]:
        """Keeps other processes, and others in this one, from making the same entry meanwhile.

        Args:
            waits: Called if one of them makes it now.
            refused: Called with the reason if the folder cannot be written; nobody is kept out then.
        """
        try:
            stream = self.path(key, ".lock").open("ab")
        except OSError as error:
            refused(f"the cache folder cannot be written: {error.strerror}")
            yield
            return
        with stream:  # closing it gives the lock back, as the end of a process does
            _lock(stream, waits)
            yield


def _lock(stream: BinaryIO, waits: Callable[[], object]) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waits()
        fcntl.flock(stream, fcntl.LOCK_EX)


def compiler_stamp() -> dict[str, object]:
    """What a program depends on beside its model and options: the format, the versions and files of the compiler, and
    the kind of machine; plain JSON values."""
    return {
        "format": FORMAT_VERSION,
        "toolchain": toolchain_lock(),
        "source": _source_stamp(),
        "machine": [sys.platform, platform.machine()],
    }


@cache
def _source_stamp() -> str:
    """Names, sizes and times of AICF's own files: versions say nothing of a clone that is being worked on."""
    root = Path(__file__).parent
    return hashlib.sha256("\n".join(sorted(_stamps(str(root), ""))).encode()).hexdigest()


def _stamps(folder: str, prefix: str) -> Iterator[str]:
    """A line for each source file in a folder and those below, with its path below the first one."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{prefix}{entry.name} {status.st_size} {status.st_mtime_ns}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _stamps(entry.path, f"{prefix}{entry.name}/")
