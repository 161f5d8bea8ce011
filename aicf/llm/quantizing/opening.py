"""Opens the model that is quantised: a GGUF file, or a Hugging Face folder."""

from __future__ import annotations

from math import prod
from pathlib import Path

from aicf.frontends.gguf.reader import GgufFile
from aicf.llm.loading import PREFILL, checked_parameters, open_model
from aicf.llm.quantizing.folder import folder_as_file
from aicf.llm.quantizing.original import REPLACED, Original, OriginalModel
from aicf.llm.sources.gguf import GgufSource


def open_original(path: Path) -> OriginalModel:
    """Opens a file or a folder, and checks its tensors against the program of its architecture.

    Raises:
        BackendUnavailable: the package tokenizers is missing.
        InvalidIR, UnsupportedOp: as `aicf.llm.load`, and as `folder_as_file`.
    """
    opened = open_model(path)
    family, source = opened.family, opened.family.source
    used = checked_parameters(source, family.decoder("checked", min(family.context, PREFILL)))
    if not isinstance(source, GgufSource):
        return folder_as_file(opened, used)
    file = source.file
    fields = [file.stored_field(name) for name in file.fields if name not in REPLACED]
    return OriginalModel(fields, [_of_file(file, name) for name in file.tensors])


def _of_file(file: GgufFile, name: str) -> Original:
    tensor = file.tensor(name)
    return Original(
        name,
        tensor.shape,
        tensor.scheme,
        lambda: file.blocks(name).reshape(prod(tensor.shape[:-1]), -1),
    )
