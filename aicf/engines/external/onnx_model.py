"""An ONNX model as engines take it: its file or bytes as they are, its hash, and its inputs, outputs and dimensions.

Nothing is lowered. Dimensions have the names that AICF's own frontend gives them, so that `dims=` means the same on
every engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aicf.engines.interface import UNKNOWN, Interface
from aicf.engines.sizes import linear_sizes, symbols_of
from aicf.errors import AicfError, BackendUnavailable, InvalidIR, UnsupportedOp
from aicf.runtime.executable import TensorSpec
from aicf.support.arguments import path_from
from aicf.support.extras import install

if TYPE_CHECKING:
    import onnx

_CHUNK = 1 << 20
"""Bytes of a file that are hashed at once."""


@dataclass(frozen=True)
class OnnxModel:
    """A model that was read.

    Args:
        name: Of the file, else of the graph.
        path: Of the file; engines read it themselves, with the files of its weights. None for bytes.
        data: What a file of the model would hold; empty if there is one.
        digest: SHA-256 of that and of the files of its weights.
        inputs, outputs: In order; sizes have names of AICF.
        own_names: By name of AICF, the name that a dimension has in the file; one without a name there is missing.
    """

    name: str
    path: Path | None
    data: bytes
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    own_names: Mapping[str, str]

    @property
    def source(self) -> str | bytes:
        """What engines read: the path of the file, or what one would hold."""
        return self.data if self.path is None else str(self.path)

    def interface(self) -> Interface:
        """A new reader of calls."""
        dims = symbols_of(self.inputs)
        return Interface(self.inputs, self.outputs, dims, linear=linear_sizes(self.inputs))


def read_onnx_model(model: object, taker: str) -> OnnxModel:
    """Reads a path, bytes or a `ModelProto`; `taker` is who takes it, for messages.

    Raises:
        UnsupportedOp: it is another kind of model, or has inputs that AICF has no type for.
        InvalidIR: it cannot be read, or is no ONNX model.
        BackendUnavailable: package `onnx` is not installed.
    """
    path = _path_of(model, taker)
    try:
        from aicf.frontends.onnx.loading import load_model
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            f"ONNX models are read by package onnx, which is missing: {install('onnx')}"
        ) from error
    try:
        proto = load_model(cast(Any, model) if path is None else path)
        data = b"" if path is not None else model if isinstance(model, bytes) else proto.SerializeToString()
        digest = _digest_of(data, proto, path)
        return OnnxModel(
            path.stem if path else proto.graph.name or "model", path, data, digest, *_interface_of(proto)
        )
    except AicfError as error:
        if path is not None and error.location is None:
            error.locate(str(path))
        raise


def _path_of(model: object, taker: str) -> Path | None:
    """The path of a file; None for a model in memory. Raises UnsupportedOp if it is no ONNX model."""
    if isinstance(model, bytes) or type(model).__name__ == "ModelProto":
        return None
    if isinstance(model, str | Path) and not (isinstance(model, str) and ("\n" in model or "{" in model)):
        path = path_from(model, InvalidIR, "the model's path")
        if path.suffix == ".onnx":
            return path
        what = f"a {path.suffix or 'file without a suffix'}"
    else:
        what = f"a {type(model).__name__}"
    raise UnsupportedOp(
        f"{taker} takes ONNX models (an .onnx file, its bytes or a ModelProto), not {what}; "
        "export the model to ONNX, or use engine='aicf'"
    )


def _digest_of(data: bytes, proto: onnx.ModelProto, path: Path | None) -> str:
    """SHA-256 of the model and of the files of its weights, which lie beside it."""
    names = sorted(set(_external_files(proto)))
    if path is None:
        if names:
            raise InvalidIR(
                f"the weights are in a file, '{names[0]}', and the model is in memory; give the path of the model"
            )
        return hashlib.sha256(data).hexdigest()
    found = hashlib.sha256()
    for file in (path, *(path.parent / name for name in names)):
        try:
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    found.update(chunk)
        except OSError as error:
            raise InvalidIR(
                f"cannot read '{file.name}' of the model: {error.strerror}; check the path"
            ) from error
    return found.hexdigest()


def _external_files(proto: onnx.ModelProto) -> Iterator[str]:
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                yield entry.value


def _interface_of(
    proto: onnx.ModelProto,
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], dict[str, str]]:
    from aicf.frontends.onnx.interface import given_inputs
    from aicf.frontends.onnx.sizes import SizeNames
    from aicf.frontends.onnx.tensors import element_of_data_type

    graph = proto.graph
    entries = given_inputs(graph)
    names = SizeNames(entries)
    inputs: list[TensorSpec] = []
    for entry in entries:
        element = element_of_data_type(entry.type.tensor_type.elem_type, f"input '{entry.name}'")
        sizes = tuple(size if isinstance(size, int) else str(size) for size in names.sizes_of(entry))
        inputs.append(TensorSpec(entry.name, sizes, element.name))
    outputs: list[TensorSpec] = []
    for entry in graph.output:
        kind = entry.type.tensor_type.elem_type
        dtype = element_of_data_type(kind, f"output '{entry.name}'").name if kind else UNKNOWN
        outputs.append(TensorSpec(entry.name, names.texts_of(entry) or (UNKNOWN,), dtype))
    texts = {dim.dim_param for entry in entries for dim in entry.type.tensor_type.shape.dim if dim.dim_param}
    own = {str(names.named(text)): text for text in sorted(texts) if names.named(text) is not None}
    return tuple(inputs), tuple(outputs), own
