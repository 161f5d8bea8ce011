"""A compiled model to its file, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
)
from aicf.runtime.tensors import Array
from aicf.saving import artifact, native_file, tensor_bytes
from aicf.support.dataclass_json import to_json_value

if TYPE_CHECKING:
    from aicf.compilation.compiled import CompiledModel


def write_model(
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
    ours = Manifest(model.name, record.options, prepared_for)
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
    write_model(model, path, False, False, more)


def save_step(model: CompiledModel, path: str | Path, kept: Mapping[str, Array]) -> None:
    """Writes a training step as it is now.

    Args:
        kept: What the host keeps of it beside its state, such as its losses.

    Raises:
        ArtifactError: the file cannot be written.
    """
    write_model(model, path, True, True, {KEPT: tensor_bytes.to_bytes(kept)})


def _to_json(value: object) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode()
