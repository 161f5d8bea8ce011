"""Checkpoints: the state of a training step as one safetensors file, whole or not at all.

The file holds the tensors by their names in PyTorch, and in its header what was trained and how, op by op. A file that
is no checkpoint of the same model and optimizer is refused with the first difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import safetensors

from aicf.errors import ArtifactError, InputMismatch
from aicf.runtime.tensors import Array, describe_array
from aicf.saving.tensor_bytes import to_bytes
from aicf.support.arguments import path_from
from aicf.support.dataclass_json import parse_json
from aicf.support.files import reason_of, write_whole

_FORMAT, _OPS = "aicf.checkpoint", "aicf.ops"
_VERSION = "1"


def _open(path: str | Path) -> Any:
    """The file as safetensors reads it, for a `with`."""
    return safetensors.safe_open(path, "numpy")  # pyright: ignore[reportUnknownVariableType]


def write_checkpoint(path: str | Path, tensors: Mapping[str, Array], ops: Sequence[str]) -> None:
    """Replaces `path` by a checkpoint, once all of it is on disk; until then what was there stays. The same tensors and
    ops give the same bytes.

    Args:
        ops: What is trained and how, op by op.

    Raises:
        ArtifactError: the file cannot be written.
    """
    path = path_from(path, ArtifactError, "the checkpoint's path")
    header = {_FORMAT: _VERSION, _OPS: json.dumps(list(ops))}
    data = to_bytes(tensors, header)
    try:
        write_whole(path, lambda stream: stream.write(data))
    except OSError as error:
        raise ArtifactError(f"cannot write the checkpoint: {reason_of(error)}", location=str(path)) from error


def read_checkpoint(path: str | Path, ops: Sequence[str]) -> dict[str, Array]:
    """The tensors of a checkpoint of the model that `ops` is.

    Raises:
        ArtifactError: the file cannot be read or is no checkpoint.
        InputMismatch: it is of another model or optimizer; names the first difference.
    """
    path = path_from(path, ArtifactError, "the checkpoint's path")
    try:
        with _open(path) as file:
            header: Mapping[str, str] = file.metadata() or {}
            tensors: dict[str, Array] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no dict
    except (OSError, safetensors.SafetensorError) as error:
        raise ArtifactError(f"cannot read the checkpoint: {reason_of(error)}", location=str(path)) from error
    _check_ops(_ops_in(header, path), ops, path)
    return tensors


def _ops_in(header: Mapping[str, str], path: str | Path) -> Sequence[str]:
    """What the header says was trained and how."""
    try:
        ops = parse_json(header[_OPS]) if header[_FORMAT] == _VERSION else None
    except (KeyError, ValueError):
        ops = None
    if isinstance(ops, list):
        return [str(op) for op in cast("list[object]", ops)]
    raise ArtifactError(
        "the file is no checkpoint of this version of AICF; TrainStep.save writes one", location=str(path)
    )


def _check_ops(theirs: Sequence[str], ours: Sequence[str], path: str | Path) -> None:
    for number, (their, our) in enumerate(zip_longest(theirs, ours, fillvalue="nothing"), 1):
        if their != our:
            raise InputMismatch(
                f"the checkpoint is of another model: its op {number} is {their}, here it is {our}",
                location=str(path),
            )


def check_tensors(given: Mapping[str, Array], ours: Mapping[str, Array]) -> None:
    """Raises InputMismatch for the first tensor that is missing, unknown, or of another shape or element type."""
    for name, mine in ours.items():
        if name not in given:
            raise InputMismatch(f"the state has no '{name}': here it is {describe_array(mine)}")
        theirs = given[name]
        if theirs.shape != mine.shape or theirs.dtype != mine.dtype:
            raise InputMismatch(
                f"'{name}' is {describe_array(theirs)} in the state, here it is {describe_array(mine)}"
            )
    if unknown := [name for name in given if name not in ours]:
        raise InputMismatch(f"the state has '{unknown[0]}', which nothing here has")
