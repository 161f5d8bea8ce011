"""From a path or bytes to a ModelProto, or the reason why not. What the model says is not looked at here."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from aicf.errors import InvalidIR, quoted

MAX_PROTO_BYTES = (1 << 31) - 1
"""What a protobuf message can take."""


def load_model(model: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """The model, its external data not read.

    Raises:
        InvalidIR: there is no such file, or it is no ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
    else:
        proto = _parse(model if isinstance(model, bytes) else _bytes_of(Path(model)))
    _check_texts(proto)
    if not proto.HasField("graph") or not proto.ir_version or not proto.opset_import:
        raise InvalidIR("no ONNX model: it has no graph, no IR version or no opset; export the model again")
    return proto


def _check_texts(message: Message) -> None:
    """Refuses names that are no text: protobuf hands these over as bytes.

    Raises:
        InvalidIR: a string of the message, or of one inside of it, is not UTF-8.
    """
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in [value] if isinstance(value, Message) else value:
                _check_texts(inner)
        elif field.type == FieldDescriptor.TYPE_STRING:
            for text in [value] if isinstance(value, str | bytes) else value:
                if not isinstance(text, str):
                    raise InvalidIR(
                        f"the model is damaged: {field.name} {quoted(text)} is no UTF-8 text; export it again"
                    )


def _bytes_of(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_PROTO_BYTES:
            raise InvalidIR(
                f"the file has {size} bytes, a protobuf message at most {MAX_PROTO_BYTES} (2 GB); save the model with "
                "external data: onnx.save_model(..., save_as_external_data=True)"
            )
        return path.read_bytes()
    except OSError as error:
        raise InvalidIR(f"cannot read the model: {error.strerror}; check the path") from error


def _parse(data: bytes) -> onnx.ModelProto:
    if len(data) > MAX_PROTO_BYTES:
        raise InvalidIR(
            "the model has more than 2 GB, which no protobuf message can; give the path of its file"
        )
    if not data:
        raise InvalidIR("no ONNX model: the file is empty; export the model again")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise InvalidIR(
            f"no ONNX model, or a truncated one: {error}; export or download the model again"
        ) from None
    return proto
