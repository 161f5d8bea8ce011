"""A Hugging Face folder as the fields and tensors of a GGUF file, under the names and in the forms of llama.cpp.

What the file says is read back before anything is written: a setting that it cannot express is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np

from aicf.dialects.block_schemes import SCHEMES, Array
from aicf.frontends.gguf.reader import GgufFile, GgufTensor
from aicf.frontends.gguf.writer import field
from aicf.llm.chat_template import folder_template
from aicf.llm.families import family_of_architecture, family_of_model_type, rope
from aicf.llm.families.decoder import Decoder
from aicf.llm.quantizing.folder_settings import Stated, rope_tensors, settings_of, values_of
from aicf.llm.quantizing.folder_vocabulary import vocabulary_fields
from aicf.llm.quantizing.original import Original, OriginalModel
from aicf.llm.sources.folder import FolderSource, model_type
from aicf.llm.sources.gguf import GgufSource

_TURNED = ("attn_q", "attn_k")
_NOT_SETTINGS = ("source", "is_tied")


def open_folder(path: Path) -> OriginalModel:
    """Opens a folder.

    Raises:
        InvalidIR: a file is missing or damaged, or a setting does not fit.
        UnsupportedOp: an architecture, a setting or a tokenizer that is read, and that no GGUF file can express.
    """
    family = family_of_model_type(model_type(path), str(path))
    source = FolderSource(path, family.NAMES)
    model = family(source)
    architecture = family.ARCHITECTURES[0]
    more = rope_tensors(source, model.head_width)
    stated = settings_of(model, architecture)
    names = [name for name in source.names() if name != "output.weight" or not model.is_tied]
    described = _described(path, stated, {name: source.shape(name) for name in names}, more)
    _check(model, family_of_architecture(architecture, str(path))(GgufSource(described)))
    stated |= vocabulary_fields(path, model.vocabulary)
    if (template := folder_template(path)) is not None:
        stated["tokenizer.chat_template"] = "s", template.text
    fields = [field(name, code, value) for name, (code, value) in stated.items()]
    turns = GgufSource(described).rotates_neighbours
    tensors = [_tensor(model, name, turns) for name in names]
    return OriginalModel(fields, [*tensors, *(_given(name, array) for name, array in more.items())])


def _described(
    path: Path, stated: Stated, shapes: Mapping[str, tuple[int, ...]], more: Mapping[str, Array]
) -> GgufFile:
    """The file as far as settings are concerned: of its tensors it has the shapes, and the numbers of `more`."""
    scheme = SCHEMES["F32"]
    tensors = {name: GgufTensor(name, shape, scheme, 0, 4 * prod(shape)) for name, shape in shapes.items()}
    start = 0
    for name, array in more.items():
        tensors[name] = GgufTensor(name, array.shape, scheme, start, array.nbytes)
        start += array.nbytes
    data = np.frombuffer(b"".join(array.tobytes() for array in more.values()), np.uint8)
    return GgufFile(path, data, 0, values_of(stated), tensors, {})


def _check(model: Decoder, read_back: Decoder) -> None:
    """Raises UnsupportedOp for what the file says otherwise than the folder: of settings, and of rotary positions."""
    for name, value in vars(model).items():
        other = vars(read_back)[name]
        is_same = np.allclose(value, other, rtol=1e-6) if isinstance(value, float) else value == other
        if name not in _NOT_SETTINGS and not is_same:
            raise model.source.unsupported(
                f"a GGUF file of {read_back.source.architecture} means {other} by its settings, and the folder says "
                f"{value} ({name}); use the folder as it is"
            )
    for is_local in (False, True):
        for capacity in (1, model.context):
            (ours, magnitude), (theirs, other) = (
                rope.frequencies(each.source, each.head_width, capacity, local=is_local)
                for each in (model, read_back)
            )
            if ours.shape != theirs.shape or not np.allclose([*ours, magnitude], [*theirs, other], rtol=1e-5):
                raise model.source.unsupported(
                    "a GGUF file cannot express how the folder scales rotary positions; use the folder as it is"
                )


def _tensor(model: Decoder, name: str, turns: bool) -> Original:
    """A tensor of the folder, whose rows are read when they are asked for.

    Args:
        model: It.
        name: Of the tensor.
        turns: Whether the file has the rows of queries and keys in the order of `_neighbours`.
    """
    source, shape = model.source, model.source.shape(name)
    part = name.split(".")[-2]
    heads = model.heads if part == "attn_q" else model.kv_heads

    def read(start: int, end: int) -> Array:
        array = source.array(name)
        if turns and part in _TURNED:
            array = _neighbours(array, heads)
        return array.reshape(-1, shape[-1])[start:end]

    return Original(name, shape, SCHEMES["F32"], read)


def _neighbours(array: Array, heads: int) -> Array:
    """Rows of a head in the order 0, half, 1, half + 1, ...: the pairs that rotate are neighbours."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _given(name: str, array: Array) -> Original:
    return Original(name, array.shape, SCHEMES["F32"], lambda start, end: array.reshape(1, -1)[start:end])
