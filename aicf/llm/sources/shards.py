"""The tensors of a folder: one safetensors file, or several with an index. Files are mapped, not read.

Every offset and size is checked against the bytes that are there before anything is made of it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aicf.errors import InvalidIR
from aicf.llm.sources.base import identity_of
from aicf.runtime.tensors import Array
from aicf.saving.tensor_bytes import view_tensors
from aicf.support.dataclass_json import parse_json

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def read_object(path: Path) -> Mapping[str, Any]:
    """The object that a JSON file holds. Raises InvalidIR if it is none, or cannot be read."""
    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise InvalidIR(f"the file cannot be read: {error.strerror}", location=str(path)) from error
    except ValueError as error:
        raise InvalidIR(f"the file is no JSON: {error}; fetch it again", location=str(path)) from error
    if not isinstance(found, dict):
        raise InvalidIR("the file holds no JSON object; fetch it again", location=str(path))
    return cast("Mapping[str, Any]", found)


@dataclass(frozen=True)
class StoredTensors:
    """Tensors in files.

    Args:
        tensors: By name, as views of the mapped files.
        identity: What tells the files from others, as JSON values; see `Source.identity`.
    """

    tensors: Mapping[str, Array]
    identity: list[object]


def stored_in(folder: Path) -> StoredTensors:
    """The tensors of a folder.

    Raises InvalidIR: there are none, or a file is missing, cut short or damaged.
    """
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    if not (folder / _SINGLE).is_file():
        raise InvalidIR(
            f"the folder has neither {_SINGLE} nor {_INDEX}; save the model with save_pretrained",
            location=str(folder),
        )
    return _mapped(folder / _SINGLE)


def _indexed(folder: Path) -> StoredTensors:
    index = folder / _INDEX
    stated: object = read_object(index).get("weight_map")
    by_name = cast("Mapping[str, Any]", stated) if isinstance(stated, dict) else None
    if by_name is None or not all(isinstance(name, str) for name in by_name.values()):
        raise InvalidIR("the file has no 'weight_map' of file names; fetch it again", location=str(index))
    files: dict[str, StoredTensors] = {}
    for name in sorted(set(by_name.values())):
        if Path(name).name != name:
            raise InvalidIR(f"'weight_map' names '{name}', which is not in the folder", location=str(index))
        files[name] = _mapped(folder / name)
    for tensor, name in by_name.items():
        if tensor not in files[name].tensors:
            raise InvalidIR(f"it has no tensor '{tensor}'; fetch it again", location=str(folder / name))
    text = json.dumps(by_name, sort_keys=True)
    identity: list[object] = [
        hashlib.sha256(text.encode()).hexdigest(),
        *(file.identity for file in files.values()),
    ]
    return StoredTensors({tensor: files[name].tensors[tensor] for tensor, name in by_name.items()}, identity)


def _mapped(path: Path) -> StoredTensors:
    try:
        with path.open("rb") as stream:
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
            written = os.fstat(stream.fileno()).st_mtime_ns
            return StoredTensors(view_tensors(data), [path.name, *identity_of(data, written)])
    except OSError as error:
        raise InvalidIR(f"the file cannot be read: {error.strerror}", location=str(path)) from error
    except ValueError as error:
        raise InvalidIR(f"the file is cut or damaged: {error}; fetch it again", location=str(path)) from error
