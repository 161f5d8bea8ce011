"""What a compiled model knows of its making, as its file holds it, and the names of the file's entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aicf.inspection.explain import Decision
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.plateau import PlateauRule

if TYPE_CHECKING:
    from aicf.compilation.extensions import Extension

EMIT, LOGICAL, LEDGER, PLAN = "emit.mlir", "logical.mlir", "ledger.json", "plan.json"
LOCATIONS, TRAINED = "locations.json", "trained.json"
NATIVE, WEIGHTS, PREPARED = "native.bin", "weights.safetensors", "prepared.safetensors"
KEPT = "kept.safetensors"
"""What the host keeps of a training step beside its state."""


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
class Manifest:
    """The fields of the artifact's manifest that are ours."""

    name: str
    options: Options
    prepared_for: str | None


def title_of(name: str, plan: ModulePlan) -> str:
    """A model and its target in words."""
    threads = f", {plan.threads} threads" if plan.threads > 1 else ""
    return f"{name} for {plan.backend}:{plan.arch}{threads}"
