"""A Hugging Face folder as the fields and tensors of a GGUF file, under the names and in the forms of llama.cpp.

What the file says is read back before anything is written: a setting that it cannot express is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

import numpy as np

from aicf.dialects.block_schemes import SCHEMES, Array
from aicf.frontends.gguf.reader import GgufFile, GgufTensor
from aicf.frontends.gguf.writer import field
from aicf.llm.families import family_of_architecture, rope
from aicf.llm.families.decoder import Decoder
from aicf.llm.loading import OpenedModel
from aicf.llm.quantizing.folder_settings import Stated, rope_tensors, settings_of, values_of
from aicf.llm.quantizing.folder_vocabulary import vocabulary_fields
from aicf.llm.quantizing.original import Original, OriginalModel
from aicf.llm.sources.gguf import GgufSource

_TURNED = ("attn_q", "attn_k")
_NOT_SETTINGS = ("source",)


def folder_as_file(opened: OpenedModel, used: Iterable[str]) -> OriginalModel:
    """A folder as the file that is written of it.

    Args:
        opened: The model of the folder.
        used: Names of the parameters of its program, which the file gets. A folder may have more: a head that is tied,
            or biases of zeros where layers have none.

    Raises:
        InvalidIR: a setting does not fit.
        UnsupportedOp: a setting or a tokenizer that is read, and that no GGUF file can express.
    """
    model, source = opened.family, opened.family.source
    path, architecture = source.path, model.ARCHITECTURES[0]
    stated, more = settings_of(model, architecture), rope_tensors(model)
    described = _described(path, stated, {name: source.shape(name) for name in used}, more)
    read_back = GgufSource(described)
    _check(model, family_of_architecture(architecture, str(path))(read_back))
    stated |= vocabulary_fields(path, opened.tokenizer, model.vocabulary)
    if opened.template is not None:
        stated["tokenizer.chat_template"] = "s", opened.template.text
    fields = [field(name, code, value) for name, (code, value) in stated.items()]
    tensors = [_tensor(model, name, read_back.rotates_neighbours) for name in used]
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

    def read() -> Array:
        array = source.array(name)
        if turns and part in _TURNED:
            array = _neighbours(array, heads)
        return _rows(array)

    return Original(name, shape, SCHEMES["F32"], read)


def _neighbours(array: Array, heads: int) -> Array:
    """Rows of a head in the order 0, half, 1, half + 1, ...: the pairs that rotate are neighbours."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _given(name: str, array: Array) -> Original:
    return Original(name, array.shape, SCHEMES["F32"], lambda: _rows(array))


def _rows(array: Array) -> Array:
    """The bytes of f32[..., columns]: u8[rows, bytes of a row]."""
    return np.ascontiguousarray(array).reshape(-1, array.shape[-1]).view(np.uint8)
