"""A compiled model back from its file: to run it, or to say what the file knows of it.

It imports neither xDSL nor Numba: the plan is read from JSON and the code is loaded as it is. Only `native="rebuild"`
imports the compiler.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aicf.backends.native import NativeCode
from aicf.compilation.compiled import CompiledModel, SharedWeights, explained
from aicf.compilation.record import (
    EMIT,
    KEPT,
    LEDGER,
    LOCATIONS,
    LOGICAL,
    NATIVE,
    PLAN,
    PREPARED,
    TRAINED,
    WEIGHTS,
    Manifest,
    Options,
    Record,
    Trained,
)
from aicf.compilation.weight_arrays import read_weights
from aicf.errors import ArtifactError, InputMismatch, quoted
from aicf.inspection.explain import (
    Decision,
    Explanation,
    ValueExplanation,
)
from aicf.inspection.value_names import ValueNames, value_names
from aicf.inspection.why_not import WhyNot, why_not
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.deferred_weights import DeferredWeights, chosen
from aicf.runtime.tensors import Array
from aicf.saving import artifact, native_file, tensor_bytes
from aicf.saving.artifact import Artifact
from aicf.support.dataclass_json import from_json_value, parse_json


def load(
    path: str | Path,
    native: Literal["use", "rebuild"] = "use",
    *,
    weights: Mapping[str, Array] | str | Path | None = None,
) -> CompiledModel:
    """Loads an artifact into this process.

    Args:
        path: The `.aicf` file.
        native: `use` runs the code in the file; `rebuild` makes code from its IR, for this machine, and runs none of
            the file's.
        weights: In place of those in the file: arrays by name, or a `.safetensors` file.

    Raises:
        ArtifactError: the file is no artifact, damaged, edited, of a newer format, contradicts itself, or holds no
            weights and none are given.
        InputMismatch: a given weight is missing, unknown, or of another shape or dtype.
        BackendUnavailable: the backend, or a CPU feature that the code needs, is not here.
    """
    rebuild = _rebuilds(native)
    with _opened(path) as file:
        return _load(file, rebuild, weights)


def read_step(
    path: str | Path, native: Literal["use", "rebuild"]
) -> tuple[CompiledModel, Mapping[str, Array]]:
    """Loads an artifact with what `save_step` put in it, which is nothing where another function wrote it.

    Args:
        native: As of `load`.

    Raises: as `load`.
    """
    rebuild = _rebuilds(native)
    with _opened(path) as file:
        return _load(file, rebuild, None), _read_tensors(file, KEPT) if KEPT in file.entries else {}


def _rebuilds(native: object) -> bool:
    """The option `native`. Raises InputMismatch for what is not legal."""
    if not isinstance(native, str) or native not in ("use", "rebuild"):
        raise InputMismatch(f"native={quoted(native)} is not legal; legal: use, rebuild")
    return native == "rebuild"


def load_program(path: str | Path, offered: Mapping[str, Array], shared: SharedWeights) -> CompiledModel:
    """Loads an artifact that was saved without weights, on those of `offered` that it reads. Raises as `load`.

    Args:
        shared: What other executables of the model have already.
    """
    with _opened(path) as file:
        return _load(file, False, offered, shared)


@contextmanager
def _opened(path: str | Path) -> Generator[Artifact]:
    """The artifact, whose name errors are prefixed with."""
    file = artifact.read(path)
    try:
        yield file
    except ArtifactError as error:
        if error.location is not None:
            raise
        raise ArtifactError(error.message, location=str(path)) from error


def read_record(path: str | Path) -> tuple[Record, ModulePlan]:
    """What an artifact says of its making, and its plan; needs neither the weights nor the device that it is for.

    Raises:
        ArtifactError: the file is no artifact, damaged, edited, or of a newer format.
    """
    with _opened(path) as file:
        program = _read_program(file)
        return _record(file, _read_manifest(file), program), program.plan


def explain(path: str | Path, value: str | None = None) -> Explanation | ValueExplanation:
    """See `CompiledModel.explain`; needs neither the weights nor the device that the artifact is for.

    Raises:
        ArtifactError: the file is no artifact, damaged, edited, or of a newer format.
        InputMismatch: the program has no such value.
    """
    with _opened(path) as file:
        program = _read_program(file)
        return explained(_read_manifest(file).name, program.plan, program.decisions, value)


def explain_names(path: str | Path) -> ValueNames:
    """See `CompiledModel.value_names`; needs neither the weights nor the device that the artifact is for.

    Raises:
        ArtifactError: the file is no artifact, damaged, edited, or of a newer format.
    """
    with _opened(path) as file:
        return value_names(_read_program(file).plan)


def explain_why_not(path: str | Path, one: str, other: str) -> WhyNot:
    """See `CompiledModel.why_not`; needs neither the weights nor the device that the artifact is for. Raises as
    `explain`."""
    with _opened(path) as file:
        program = _read_program(file)
        return why_not(program.plan, program.decisions, _read_locations(file), one, other)


def _read_locations(file: Artifact) -> dict[str, str]:
    if LOCATIONS not in file.entries:
        return {}
    found = from_json_value(dict[str, object], _read_json(file, LOCATIONS), "locations")
    locations = {id_: location for id_, location in found.items() if isinstance(location, str)}
    if len(locations) < len(found):
        raise ArtifactError(f"entry '{LOCATIONS}' holds what is no location; compile the model again")
    return locations


def _read_trained(file: Artifact) -> Trained | None:
    if TRAINED not in file.entries:
        return None
    return from_json_value(Trained, _read_json(file, TRAINED), "trained")


@dataclass(frozen=True)
class _Program:
    """What runs, and why it is as it is."""

    plan: ModulePlan
    decisions: tuple[Decision, ...]
    native: NativeCode


def _read_program(file: Artifact) -> _Program:
    """What the file holds; its plan is the one that its code was made with."""
    plan = from_json_value(ModulePlan, _read_json(file, PLAN), "plan")
    native, made_with = native_file.read(file.view(NATIVE))
    # First, for it says more: which figure is not that of the code, and the way out.
    native_file.check_plan(plan, file.sha256(PLAN), native, made_with)
    plan.check()
    if list(native.features) != list(file.cpu_features):
        raise ArtifactError(
            f"the manifest says that the code needs {_listing(file.cpu_features)}, native.bin "
            f"{_listing(native.features)}; {native_file.REBUILD}"
        )
    return _Program(plan, _read_ledger(file), native)


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _read_ledger(file: Artifact) -> tuple[Decision, ...]:
    decisions = from_json_value(tuple[Decision, ...], _read_json(file, LEDGER), "ledger")
    if not all(decision.subjects for decision in decisions):
        raise ArtifactError(f"entry '{LEDGER}' has a decision about nothing; compile the model again")
    return decisions


def _rebuilt(file: Artifact) -> _Program:
    """What the IR in the file gives here; neither its plan nor its code is looked at."""
    from aicf.compilation.stages import rebuild_native

    return _Program(*rebuild_native(file.text(EMIT), file.path))


def _load(
    file: Artifact,
    rebuild: bool,
    given: Mapping[str, Array] | str | Path | None,
    shared: SharedWeights | None = None,
) -> CompiledModel:
    ours = _read_manifest(file)
    program = _rebuilt(file) if rebuild else _read_program(file)
    plan = program.plan
    if shared is not None and isinstance(given, Mapping):
        given = chosen(given, [bind.name for bind in plan.weights])
    record = _record(file, ours, program)
    weights = _weights(file, given)
    # What @prepare made is that of the code in the file: other code makes its own.
    is_current = given is None and not rebuild and ours.prepared_for == file.sha256(WEIGHTS)
    derived = _read_tensors(file, PREPARED) if plan.prepare is not None and is_current else None
    if shared is not None:
        derived = shared.packed(plan)
    on_device = None if shared is None else shared.on_device
    try:
        return CompiledModel(record, plan, program.native, weights, derived, on_device)
    except InputMismatch as error:
        if given is not None:
            raise
        raise ArtifactError(f"the artifact contradicts itself: {error.message}") from error


def _record(file: Artifact, ours: Manifest, program: _Program) -> Record:
    return Record(
        ours.name,
        ours.options,
        file.text(LOGICAL) if LOGICAL in file.entries else None,
        file.text(EMIT),
        program.decisions,
        file.toolchain,
        _read_locations(file),
        _read_trained(file),
    )


def _weights(file: Artifact, given: Mapping[str, Array] | str | Path | None) -> Mapping[str, Array]:
    """The weights given, else those of the file."""
    if given is None:
        if WEIGHTS not in file.entries:
            raise ArtifactError(
                "the artifact was saved without weights; load it with aicf.load(path, weights=...)"
            )
        return _read_tensors(file, WEIGHTS)
    return given if isinstance(given, DeferredWeights) else read_weights(given)


def _read_manifest(file: Artifact) -> Manifest:
    known = ("name", "options", "prepared_for")
    return from_json_value(
        Manifest, {key: file.manifest[key] for key in known if key in file.manifest}, "manifest"
    )


def options_of(file: Artifact) -> Options:
    """What the passes were told that made an artifact."""
    return _read_manifest(file).options


def _read_json(file: Artifact, name: str) -> Any:
    try:
        return parse_json(file.text(name))
    except ValueError:
        raise ArtifactError(f"entry '{name}' of the artifact is not JSON; compile the model again") from None


def _read_tensors(file: Artifact, name: str) -> dict[str, Array]:
    try:
        return tensor_bytes.view_tensors(file.view(name))
    except ValueError as error:
        raise ArtifactError(
            f"entry '{name}' of the artifact is not safetensors: {error}; compile the model again"
        ) from error
