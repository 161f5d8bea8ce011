"""A compiled model as users hold it: the runtime's executable, with its texts, its ledger and its file.

Loading an artifact imports neither xDSL nor Numba: the plan is read from JSON and the code is loaded as it is. Texts of
stages that are not kept, and `native="rebuild"`, import the compiler when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from aicf.backends.native import NativeCode
from aicf.compilation.weight_arrays import read_weights
from aicf.errors import ArtifactError, InputMismatch, PolicyError, quoted
from aicf.inspection.explain import (
    Decision,
    Explanation,
    ValueExplanation,
    explain_programs,
    explain_value,
    wrong_declarations,
)
from aicf.inspection.summary import Summary, summarize
from aicf.inspection.trace import Trace, traced
from aicf.inspection.value_names import ValueNames, value_names
from aicf.inspection.why_not import WhyNot, why_not
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.deferred_weights import DeferredWeights, chosen
from aicf.runtime.device import split_device
from aicf.runtime.executable import Executable
from aicf.runtime.on_device.weights import DeviceWeights
from aicf.runtime.plateau import PlateauRule
from aicf.runtime.tensors import Array
from aicf.saving import artifact, native_file, tensor_bytes
from aicf.saving.artifact import Artifact
from aicf.support.arguments import text_from
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value

if TYPE_CHECKING:
    from aicf.compilation.extensions import Extension

EMIT, LOGICAL, LEDGER, PLAN = "emit.mlir", "logical.mlir", "ledger.json", "plan.json"
LOCATIONS, TRAINED = "locations.json", "trained.json"
NATIVE, WEIGHTS, PREPARED = "native.bin", "weights.safetensors", "prepared.safetensors"
KEPT = "kept.safetensors"
"""What the host keeps of a training step beside its state."""


class SharedWeights(Protocol):
    """What the executables of one model have in common."""

    @property
    def on_device(self) -> DeviceWeights:
        """On the device."""
        ...

    def packed(self, plan: ModulePlan) -> Mapping[str, Array] | None:
        """All prepared weights of a plan, if they are on the host already."""
        ...


@dataclass(frozen=True)
class Options:
    """What the passes were told; with the logical IR it determines the program.

    Args:
        target: `backend:level`; empty if the program said it itself.
        policy: Inline JSON, empty for the program's own or the default.
        dims: Sizes of symbolic dimensions, `N=1,540`.
        threads: Threads the program is decided for.
        tuning: The rows of the tuning table that it read, as inline JSON; empty for none.
        meta: Who computes counters and rates of a training step, `device` or `host`; empty for the default.
        check_finite: Whether a step of training that is not finite changes nothing.
        memory_budget: Bytes that a training step may take; 0 sets no bound.
        values: Inputs of an ONNX model that were bound, as JSON; empty for none.
        strict: Whether a wrong declaration in an ONNX model is an error.
        passes: Of the caller, each with its extension point, `lowered=my-pass{limit=4}`.
        training: Whether the model was taken as in training, with its dropouts; else in evaluation.
        saved_share: Of the bytes that the forward part of a training step would save, those that it may, 0 to 1.
    """

    target: str
    policy: str
    dims: str
    threads: int
    tuning: str = ""
    meta: str = ""
    check_finite: bool = False
    memory_budget: int = 0
    values: str = ""
    strict: bool = False
    passes: tuple[str, ...] = ()
    training: bool = False
    saved_share: float = 1.0


@dataclass(frozen=True)
class Trained:
    """What a program that trains a model is beyond what it runs.

    Args:
        ops: What the model computes and how it is trained, op by op: what checkpoints are compared by.
        added: Names of what the step keeps beside the model: optimizer states, counter, losses.
        logits: Sizes of a prediction of rank 3 or more with classes in dimension 1; empty for others.
        plateau: By which the host lowers the learning rate; None of other schedules.
    """

    ops: tuple[str, ...]
    added: tuple[str, ...]
    logits: tuple[int | str, ...] = ()
    plateau: PlateauRule | None = None


@dataclass(frozen=True)
class Record:
    """What an executable knows of its making, beyond what runs.

    Args:
        name: Name of the model.
        options: What the passes were told.
        logical: Logical IR with ids; None if the model was an emit program.
        emit: Final emit IR.
        decisions: The ledger.
        toolchain: Versions by package.
        locations: Where the ops of the model are written, `file:line:col` by id, as far as that is known.
        trained: Of a step that `aicf.train_step` made; None of other programs.
        passes: Those of the caller, where it was compiled in this process; an artifact has their names in `options`.
    """

    name: str
    options: Options
    logical: str | None
    emit: str
    decisions: tuple[Decision, ...]
    toolchain: Mapping[str, str]
    locations: Mapping[str, str] = field(default_factory=dict[str, str])
    trained: Trained | None = None
    passes: tuple[Extension, ...] = ()


@dataclass(frozen=True)
class _Manifest:
    """The fields of the artifact's manifest that are ours."""

    name: str
    options: Options
    prepared_for: str | None


class CompiledModel(Executable):
    """What `aicf.compile` and `aicf.load` give: an `Executable` that can say where it comes from.

    Args:
        record: What it knows of its making.
        plan, native, weights, derived, on_device, ordinal: See `Executable`.
    """

    def __init__(
        self,
        record: Record,
        plan: ModulePlan,
        native: NativeCode,
        weights: Mapping[str, Array],
        derived: Mapping[str, Array] | None = None,
        on_device: DeviceWeights | None = None,
        ordinal: int = 0,
    ) -> None:
        texts = {"emit": record.emit} | ({} if record.logical is None else {"logical": record.logical})
        super().__init__(
            plan, native, weights, derived=derived, texts=texts, on_device=on_device, ordinal=ordinal
        )
        self.record = record
        if native.memory == "host":
            self._code.on_host()  # what this machine lacks is an error now; a device is asked for at the first use

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.record.name

    def to(self, device: str) -> CompiledModel:
        """The same program on another device of its kind, `cuda:1`, with the state that this one has now.

        Nothing is compiled, and the device is first used by the first call.

        Raises:
            PolicyError: the program is compiled for another kind of device.
            BackendUnavailable: this machine has no such device; at the first call.
        """
        backend, ordinal = split_device(device)
        if backend != self.plan.backend:
            own = f"{self.plan.backend}:{self.plan.arch}"
            raise PolicyError(
                f"device '{device}': the program is compiled for {own}; compile it for {backend}"
            )
        moved = self.placed(ordinal)
        if self.is_stateful:
            moved.set_state(self.state())
        return moved

    def placed(self, ordinal: int, on_device: DeviceWeights | None = None) -> CompiledModel:
        """The same program on device number `ordinal`, with its initial state.

        Args:
            on_device: What executables of the same model have there already; None shares with no other.
        """
        return CompiledModel(
            self.record, self.plan, self.native, self.weights, on_device=on_device, ordinal=ordinal
        )

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The ledger: every decision in the order it was made."""
        return self.record.decisions

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an ONNX model declares of its values and is not so, a line for each; the inferred types hold."""
        return tuple(decision.because for decision in wrong_declarations(self.decisions))

    def ir(self, stage: str) -> str:
        """IR text: `logical`, `lowered` (primitive ops), `emit`, or the program after any pass by its name.

        Stages that are not kept are made again from the logical IR by the same passes.

        Raises:
            InputMismatch: there is no such stage.
            ArtifactError: the passes of this installation make another program than the one here.
        """
        text_from(stage, InputMismatch, "the IR stage")
        if stage in self._texts:
            return self._texts[stage]
        if self.record.logical is None:
            raise InputMismatch(f"there is no IR stage '{stage}': the model was an emit program; it has emit")
        from aicf.compilation.stages import stage_text

        return stage_text(self.record, stage)

    @overload
    def explain(self) -> Explanation: ...

    @overload
    def explain(self, value: str) -> ValueExplanation: ...

    @overload
    def explain(self, value: str | None) -> Explanation | ValueExplanation: ...

    def explain(self, value: str | None = None) -> Explanation | ValueExplanation:
        """The instruction tables, or for one value or op id: what it became, why, and what was rejected.

        Raises:
            InputMismatch: the program has no such value.
        """
        return _explained(self.name, self.plan, self.decisions, value)

    def work_by_source(self) -> Mapping[str, Mapping[str, float]]:
        """How much of the work of each instruction each op of the model is that it stands for, in scalar operations;
        what profiles share times by. It reads the emit IR, which imports the compiler."""
        from aicf.inspection.attribution import work_by_source

        return work_by_source(self.record.emit)

    def trace(self, *inputs: Any, repeats: int = 3) -> Trace:
        """What ran when, as a file for Perfetto: see `Trace`. State is left alone.

        Args:
            inputs: In order.
            repeats: How often the program runs instruction by instruction, and then whole.

        Raises:
            InputMismatch: the inputs do not fit.
            CaptureError: the code runs whole programs only.
        """
        return traced(self, self.explain(), self.record.locations, inputs, repeats)

    def value_names(self) -> ValueNames:
        """What `explain` answers for: inputs, outputs, weights, ops of the model and instructions."""
        return value_names(self.plan)

    def why_not(self, one: str, other: str) -> WhyNot:
        """Why two ops are not one instruction, or in which they are, by their ids in the model or after lowering.

        Raises:
            InputMismatch: the program has no such op.
        """
        return why_not(self.plan, self.decisions, self.record.locations, one, other)

    def summary(self) -> Summary:
        """The program in a few lines: instructions, kernels, bytes, memory, expected time, and what is not fused."""
        return summarize(title_of(self.name, self.plan), self.plan, self.decisions)

    def save(self, path: str | Path, weights: bool = True, *, state: bool = False) -> None:
        """Writes the artifact, whole or not at all.

        Args:
            path: The `.aicf` file.
            weights: Whether it holds them; if not, `load` needs them.
            state: Whether what calls changed is in it as it is now; if not, as it was in the beginning.

        Raises:
            ArtifactError: the file cannot be written.
        """
        _write(self, path, weights, state, {})


def _write(
    model: CompiledModel, path: str | Path, weights: bool, state: bool, more: Mapping[str, bytes]
) -> None:
    """See `CompiledModel.save`.

    Args:
        more: Other entries.
    """
    record = model.record
    entries = {
        EMIT: record.emit.encode(),
        LEDGER: _to_json(to_json_value(record.decisions)),
        PLAN: _to_json(to_json_value(model.plan)),
        **more,
    }
    entries[NATIVE] = native_file.to_bytes(model.native, artifact.digest(entries[PLAN]))
    if weights:
        changed = model.state() if state else {}
        entries[WEIGHTS] = tensor_bytes.to_bytes({**model.weights, **changed})
    if record.locations:
        entries[LOCATIONS] = _to_json(dict(record.locations))
    if record.trained is not None:
        entries[TRAINED] = _to_json(to_json_value(record.trained))
    if record.logical is not None:
        entries[LOGICAL] = record.logical.encode()
    prepared_for = None
    if weights and model.plan.prepare is not None and model.native.memory == "host":
        entries[PREPARED] = tensor_bytes.to_bytes(model.prepared())
        prepared_for = artifact.digest(entries[WEIGHTS])
    ours = _Manifest(model.name, record.options, prepared_for)
    artifact.write(
        path,
        entries,
        {
            **to_json_value(ours),
            "toolchain": dict(record.toolchain),
            "cpu_features": list(model.native.features),
        },
    )


def save_program(model: CompiledModel, path: str | Path, more: Mapping[str, bytes]) -> None:
    """Writes the artifact without weights.

    Args:
        more: Other entries, by name.

    Raises:
        ArtifactError: the file cannot be written.
    """
    _write(model, path, False, False, more)


def save_step(model: CompiledModel, path: str | Path, kept: Mapping[str, Array]) -> None:
    """Writes a training step as it is now.

    Args:
        kept: What the host keeps of it beside its state, such as its losses.

    Raises:
        ArtifactError: the file cannot be written.
    """
    _write(model, path, True, True, {KEPT: tensor_bytes.to_bytes(kept)})


def _to_json(value: object) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode()


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


def title_of(name: str, plan: ModulePlan) -> str:
    """A model and its target in words."""
    threads = f", {plan.threads} threads" if plan.threads > 1 else ""
    return f"{name} for {plan.backend}:{plan.arch}{threads}"


def explain(path: str | Path, value: str | None = None) -> Explanation | ValueExplanation:
    """See `CompiledModel.explain`; needs neither the weights nor the device that the artifact is for.

    Raises:
        ArtifactError: the file is no artifact, damaged, edited, or of a newer format.
        InputMismatch: the program has no such value.
    """
    with _opened(path) as file:
        program = _read_program(file)
        return _explained(_read_manifest(file).name, program.plan, program.decisions, value)


def _explained(
    name: str, plan: ModulePlan, decisions: Sequence[Decision], value: str | None
) -> Explanation | ValueExplanation:
    if value is not None:
        return explain_value(plan, decisions, value)
    return explain_programs(title_of(name, plan), plan, decisions)


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


def _record(file: Artifact, ours: _Manifest, program: _Program) -> Record:
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


def _read_manifest(file: Artifact) -> _Manifest:
    known = ("name", "options", "prepared_for")
    return from_json_value(
        _Manifest, {key: file.manifest[key] for key in known if key in file.manifest}, "manifest"
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
