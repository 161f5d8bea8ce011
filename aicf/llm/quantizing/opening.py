"""Opens the model that is quantised: a GGUF file, or a Hugging Face folder."""

from __future__ import annotations

from math import prod
from pathlib import Path

from aicf.frontends.gguf.reader import GgufFile, read_gguf
from aicf.llm.quantizing.folder import open_folder
from aicf.llm.quantizing.original import REPLACED, Original, OriginalModel


def open_original(path: Path) -> OriginalModel:
    """Opens a file or a folder. Raises: as `aicf.llm.load`."""
    if path.is_dir():
        return open_folder(path)
    file = read_gguf(path)
    fields = [file.stored_field(name) for name in file.fields if name not in REPLACED]
    return OriginalModel(fields, [_of_file(file, name) for name in file.tensors])


def _of_file(file: GgufFile, name: str) -> Original:
    tensor = file.tensor(name)
    rows = file.blocks(name).reshape(prod(tensor.shape[:-1]), -1)
    return Original(
        name,
        tensor.shape,
        tensor.scheme,
        lambda start, end: tensor.scheme.rows(rows[start:end]),
        lambda: file.blocks(name),
    )
