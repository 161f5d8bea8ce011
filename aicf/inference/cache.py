"""Compiled programs on disk, by what determines them: one artifact without weights for each, shared by processes.

A key is the hash of the model's text, what the passes were told, the versions of the toolchain and the kind of machine.
Entries appear whole or not at all, one process at a time makes one, and an entry is checked as a whole, and against
the model, before any of its code is loaded: one that fails is made anew. Anything in the folder may be deleted at any
time; what a killed process left half written is, when the folder is opened or written to next.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from aicf.compilation.compiled import CompiledModel, SharedWeights
from aicf.compilation.reading import load_program
from aicf.compilation.record import Options
from aicf.engines.report import Report
from aicf.errors import AicfError, ArtifactError
from aicf.runtime.tensors import Array
from aicf.saving.cache_folder import CacheFolder, compiler_stamp
from aicf.support.dataclass_json import to_json_value

_LAYOUT = 1
"""Of the folder; another one finds none of the entries of this."""


class ProgramCache:
    """A folder of compiled programs.

    Args:
        folder: Made if it is not there.
        report: Is told of entries that cannot be used, or not be written, and of waiting for other processes.

    Raises:
        ArtifactError: the folder cannot be made or used.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        self._files = CacheFolder(folder)
        self._report = report

    def path(self, key: str) -> Path:
        """Where the program of `key` is."""
        return self._files.path(key)

    def load(
        self,
        key: str,
        label: str | None,
        logical: str,
        options: Options,
        weights: Mapping[str, Array],
        shared: SharedWeights,
    ) -> CompiledModel | None:
        """The program of `key`; None if there is none that can be used.

        Args:
            label: Its sizes in words, for the report of one that cannot; None for no report.
            logical, options: What it must have been made of.
            weights: Of the model; it takes those that it reads.
            shared: What other executables of the model have already.
        """
        path = self.path(key)
        if not path.exists():
            return None
        try:
            found = load_program(path, weights, shared)
            if found.record.logical != logical or not _is_made_by(found.record.options, options):
                raise ArtifactError("it is the program of another model", location=str(path))
        except AicfError as error:
            if label is not None:
                self._report.add(
                    logging.WARNING, "rebuilt", label, f"the cached program cannot be used: {error}"
                )
            return None
        return found

    def save(self, key: str, label: str, executable: CompiledModel) -> str:
        """Puts a program there; says in words what became of it. A folder that cannot be written costs only time."""
        path = self.path(key)
        try:
            executable.save(path, weights=False)
        except ArtifactError as error:
            self._report.add(logging.WARNING, "unsaved", label, f"the cache cannot keep it: {error}")
            return "not cached"
        return f"cached as {path}"

    def load_or_compile(
        self,
        label: str,
        logical: str,
        options: Options,
        weights: Mapping[str, Array],
        shared: SharedWeights,
        compiled: Callable[[], CompiledModel],
        passes: Sequence[str] = (),
    ) -> tuple[CompiledModel, str | None, str]:
        """A program: out of the folder, or else compiled, alone among all processes, and put there.

        Args:
            label: Its sizes in words, for the report.
            logical, options: What it is made of.
            weights, shared: See `load`.
            compiled: Makes it.
            passes: Hashes of the caller's passes.

        Returns:
            The program, where it was loaded from in words (None if it was compiled), and what became of a new one.
        """
        key = key_of(logical, options, passes)
        if (found := self.load(key, None, logical, options, weights, shared)) is not None:
            return found, f"from {self.path(key)}", ""
        with self.alone(key, label):
            if (found := self.load(key, label, logical, options, weights, shared)) is not None:
                return found, f"from {self.path(key)}, where another process put it", ""
            executable = compiled()
            return executable, None, self.save(key, label, executable)

    def alone(self, key: str, label: str) -> AbstractContextManager[None]:
        """Keeps other processes, and other sessions, from making the same program meanwhile."""
        add = self._report.add
        return self._files.alone(
            key,
            waits=lambda: add(logging.INFO, "waited", label, "another process or session is making it"),
            refused=lambda reason: add(logging.WARNING, "unsaved", label, reason),
        )


def key_of(logical: str, options: Options, passes: Sequence[str] = ()) -> str:
    """What a program is kept under: the hash of all that determines it; `passes` are hashes of the caller's passes."""
    from aicf.backends.common.user_kernel import definitions_stamp

    made_of = {
        "layout": _LAYOUT,
        "model": hashlib.sha256(logical.encode()).hexdigest(),
        "options": to_json_value(options),
        "passes": list(passes),
        "definitions": definitions_stamp(),
        **compiler_stamp(),
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def _is_made_by(found: Options, wanted: Options) -> bool:
    """Whether an entry was made by these options. Of a tuning table it has only the rows that it read."""
    return replace(found, tuning="") == replace(wanted, tuning="")
