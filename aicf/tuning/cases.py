"""What `aicf tune` measures, as data: cases, and the folder that takes them to the machine with the device.

A folder holds `cases.json` and one file of native code for each case. Reading it needs no compiler. Native code is
code: measure only what you or someone you trust prepared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aicf.backends.native import NativeCode
from aicf.errors import ArtifactError
from aicf.policies.tuning_table import WorkloadKey
from aicf.saving import native_file
from aicf.saving.artifact import digest
from aicf.support.arguments import instance_from, path_from
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value
from aicf.support.files import reason_of, write_whole

FORMAT = 5
INDEX = "cases.json"
NUMBERS = 2
"""How many different integers there are in memory that holds no indices: zeros and ones."""


@dataclass(frozen=True)
class Memory:
    """The memory that one entry of the pointer table points to.

    Args:
        nbytes: Its size.
        dtype: Element type of its data, `u8` for none.
        fixed: Whether the program never writes it, as weights and constants.
        numbers: Its integers are 0 or more and less than this; of indices, the size that they index.
    """

    nbytes: int
    dtype: str
    fixed: bool = False
    numbers: int = NUMBERS


@dataclass(frozen=True)
class CaseWorkload:
    """One kernel in one variant on one piece of work, whatever holds its code.

    Args:
        group: A group that does this work, for messages.
        work: What is run.
        kernel, version: Which kernel.
        spec: The entries that tell this variant from the kernel's others.
        device_fields: Entries of the record that only the device can give; then its code cannot run yet, and the
            device makes its variants from it.
        starts_early: Whether the kernel waits for its predecessors inside, and lets its successors start early.
        entry: Symbol of the program.
        memory: What the pointer table points to: the arena, then the binds.
    """

    group: str
    work: WorkloadKey
    kernel: str
    version: int
    spec: dict[str, object]
    device_fields: tuple[str, ...]
    starts_early: bool
    entry: str
    memory: tuple[Memory, ...]


@dataclass(frozen=True)
class Case(CaseWorkload):
    """One kernel in one variant on one piece of work, compiled.

    Args:
        native: Its code: one program with one instruction.
    """

    native: NativeCode

    @property
    def label(self) -> str:
        """The case in words."""
        variant = " ".join(f"{key}={value}" for key, value in self.spec.items())
        return f"{self.group}: {self.kernel} {variant}".strip()


@dataclass(frozen=True)
class _Target:
    """What cases are for, and how they were made.

    Args:
        backend, arch, threads: The target.
        libraries: Versions of the libraries that the target lists.
        toolchain: Versions of the packages that made the code.
    """

    backend: str
    arch: str
    threads: int
    libraries: dict[str, object]
    toolchain: dict[str, object]


@dataclass(frozen=True)
class Setting(_Target):
    """What a device has to know before the first case.

    Args:
        neighbour: What stands between two runs of a case; None for nothing.
        calls_library: Whether the record of a case lacks what only a library on the device can give.
    """

    neighbour: Case | None
    calls_library: bool


@dataclass(frozen=True)
class Prepared(_Target):
    """Everything there is to measure for a model.

    Args:
        cases: One for each candidate.
        neighbour: What stands between two runs of a case; None for nothing.
    """

    cases: tuple[Case, ...]
    neighbour: Case | None = None

    @property
    def setting(self) -> Setting:
        """What its device has to know."""
        calls_library = any(case.device_fields for case in self.cases)
        return Setting(
            *(self.backend, self.arch, self.threads, self.libraries, self.toolchain),
            self.neighbour,
            calls_library,
        )


# The folder


@dataclass(frozen=True)
class _StoredCase(CaseWorkload):
    """A case with its code in a file of its own, which is called by the digest of its bytes."""

    native: str


@dataclass(frozen=True)
class _Index(_Target):
    """The fields of `cases.json`."""

    format: int
    cases: tuple[_StoredCase, ...]
    neighbour: _StoredCase | None


_PREPARED = "what aicf.tuning.candidates.prepare returns"
_FOLDER = "the folder of prepared cases"


def save(prepared: Prepared, folder: Path) -> None:
    """Writes the folder; the index comes last. Raises ArtifactError if that fails."""
    instance_from(prepared, Prepared, ArtifactError, "what to save", _PREPARED)
    folder = path_from(folder, ArtifactError, _FOLDER)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        index = _Index(
            *(prepared.backend, prepared.arch, prepared.threads, prepared.libraries, prepared.toolchain),
            FORMAT,
            tuple(_stored(case, folder) for case in prepared.cases),
            None if prepared.neighbour is None else _stored(prepared.neighbour, folder),
        )
        _write(folder / INDEX, (json.dumps(to_json_value(index), indent=1) + "\n").encode())
    except OSError as error:
        raise ArtifactError(
            f"'{folder}' cannot be written: {reason_of(error)}; choose another folder"
        ) from error


def _write(path: Path, data: bytes) -> None:
    write_whole(path, lambda stream: stream.write(data))


def _stored(case: Case, folder: Path) -> _StoredCase:
    """A case whose code has been written."""
    code = native_file.to_bytes(case.native, case.work.digest)
    name = digest(code)
    _write(folder / name, code)
    return _StoredCase(**_with(case, native=name))


def load(folder: Path) -> Prepared:
    """Reads a folder. Raises ArtifactError if it is none, or damaged."""
    folder = path_from(folder, ArtifactError, _FOLDER)
    path = folder / INDEX
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"'{folder}' holds no prepared cases: {reason_of(error)}; `aicf tune MODEL --prepare {folder}` makes them"
        ) from None
    if isinstance(value, dict) and cast("dict[str, object]", value).get("format") != FORMAT:
        raise ArtifactError(f"'{path}' is not of format {FORMAT}; prepare the cases again")
    index = from_json_value(_Index, cast(object, value), INDEX)
    cases = tuple(_case(stored, folder) for stored in index.cases)
    neighbour = None if index.neighbour is None else _case(index.neighbour, folder)
    fields = _with(index, cases=cases, neighbour=neighbour)
    del fields["format"]
    return Prepared(**fields)


def _with(value: object, **others: object) -> dict[str, Any]:
    """The fields of a value, with others in place of some."""
    return {**vars(value), **others}


def _case(stored: _StoredCase, folder: Path) -> Case:
    try:
        code = (folder / stored.native).read_bytes()
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"the code of '{stored.kernel}' is missing: {reason_of(error)}; prepare the cases again"
        ) from None
    if digest(code) != stored.native:
        raise ArtifactError(f"the code of '{stored.kernel}' is damaged; prepare the cases again")
    native, _ = native_file.read(code)
    return Case(**_with(stored, native=native))
