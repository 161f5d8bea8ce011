"""The cases of a model: made without the device they are for, kept in a folder, and read where the device is.

A folder holds `cases.json` and one file of native code for each case. Native code is code: measure only what you or
someone you trust prepared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from aicf.artifact import digest, toolchain_lock
from aicf.backends.native import NativeCode
from aicf.compiled import Options
from aicf.compiler import passes_of, resolve_options
from aicf.dialects.plain_values import plain_value
from aicf.errors import ArtifactError, PolicyError
from aicf.files import write_whole
from aicf.frontends.text import make_context
from aicf.passes.select_kernels import SelectKernelsPass
from aicf.passes.support.measured import libraries_of
from aicf.passes.support.pipeline import apply_pass
from aicf.passes.support.work import target_of
from aicf.plain import from_plain, to_plain
from aicf.policies.tuning_table import WorkKey
from aicf.progress import Step
from aicf.sources import Model, read_model
from aicf.tuning.cases import Case, Memory, candidates, compiled

FORMAT = 1
INDEX = "cases.json"


@dataclass(frozen=True)
class Prepared:
    """Everything there is to measure for a model.

    Args:
        backend, arch, threads: The target.
        libraries: Versions of the libraries that the target lists.
        toolchain: Versions of the packages that made the code.
        cases: One for each candidate.
    """

    backend: str
    arch: str
    threads: int
    libraries: dict[str, object]
    toolchain: dict[str, object]
    cases: tuple[Case, ...]


def prepare(model: Model, options: Options, variants: int, step: Step) -> Prepared:
    """Compiles every candidate of a model.

    Args:
        options: Target, policy, dims and threads, as for `compile`.
        variants: Most variants of one kernel on one piece of work.
        step: Is told what is being done.

    Raises:
        PolicyError: an option is not legal, or the model is an emit program, whose kernels are chosen.
        BackendUnavailable: what compiles for the target is missing.
    """
    context = make_context()
    source = read_model(model, context)
    if source.is_emit:
        raise PolicyError(
            "aicf tune takes logical IR; the groups of an emit program are gone: run raise-emit"
        )
    for module_pass in passes_of(source, resolve_options(source, options)):
        if isinstance(module_pass, SelectKernelsPass):
            break
        step(module_pass.name)
        apply_pass(module_pass, context, source.module)
    found = candidates(source.module, variants)
    cases: list[Case] = []
    for number, candidate in enumerate(found, 1):
        step(f"compiling {number} of {len(found)}: {candidate.label}")
        cases.append(compiled(candidate, source.module, context))
    target = target_of(source.module)
    threads = target.facts.data.get("threads")
    return Prepared(
        target.backend.data,
        target.arch.data,
        int(str(plain_value(threads))) if threads is not None else 1,
        dict(libraries_of(target)),
        dict(toolchain_lock()),
        tuple(cases),
    )


# The folder


@dataclass(frozen=True)
class _Code:
    """Native code in a file of its own, found by its digest."""

    sha256: str
    features: tuple[str, ...]
    functions: tuple[str, ...]


@dataclass(frozen=True)
class _StoredCase:
    """A case with its code elsewhere; otherwise the fields of `Case`."""

    group: str
    work: WorkKey
    kernel: str
    version: int
    spec: dict[str, object]
    device_fields: tuple[str, ...]
    entry: str
    memory: tuple[Memory, ...]
    native: _Code


@dataclass(frozen=True)
class _Index:
    """The fields of `cases.json`."""

    format: int
    backend: str
    arch: str
    threads: int
    libraries: dict[str, object]
    toolchain: dict[str, object]
    cases: tuple[_StoredCase, ...]


def save(prepared: Prepared, folder: Path) -> None:
    """Writes the folder; the index comes last. Raises ArtifactError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for case in prepared.cases:
            code = case.native.code
            _write(folder / digest(code), code)
        index = {
            **to_plain(replace(prepared, cases=())),
            "format": FORMAT,
            "cases": [_stored(case) for case in prepared.cases],
        }
        _write(folder / INDEX, (json.dumps(index, indent=1) + "\n").encode())
    except OSError as error:
        raise ArtifactError(f"'{folder}' cannot be written: {error}; choose another folder") from error


def _write(path: Path, data: bytes) -> None:
    write_whole(path, lambda stream: stream.write(data))


def _stored(case: Case) -> object:
    native = case.native
    code = _Code(digest(native.code), native.features, native.functions)
    fields = {name: to_plain(value) for name, value in vars(case).items() if name != "native"}
    return {**fields, "native": to_plain(code)}


def load(folder: Path) -> Prepared:
    """Reads a folder. Raises ArtifactError if it is none, or damaged."""
    path = folder / INDEX
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(
            f"'{folder}' holds no prepared cases: {error}; `aicf tune MODEL --prepare {folder}` makes them"
        ) from None
    if isinstance(value, dict) and cast("dict[str, object]", value).get("format") != FORMAT:
        raise ArtifactError(f"'{path}' is not of format {FORMAT}; prepare the cases again")
    index = from_plain(_Index, cast(object, value), INDEX)
    cases = tuple(_case(stored, folder) for stored in index.cases)
    return Prepared(index.backend, index.arch, index.threads, index.libraries, index.toolchain, cases)


def _case(stored: _StoredCase, folder: Path) -> Case:
    try:
        code = (folder / stored.native.sha256).read_bytes()
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"the code of '{stored.kernel}' is missing: {error}; prepare the cases again"
        ) from None
    if digest(code) != stored.native.sha256:
        raise ArtifactError(f"the code of '{stored.kernel}' is damaged; prepare the cases again")
    native = NativeCode(code, stored.native.features, stored.native.functions)
    return Case(
        stored.group,
        stored.work,
        stored.kernel,
        stored.version,
        stored.spec,
        stored.device_fields,
        stored.entry,
        stored.memory,
        native,
    )
