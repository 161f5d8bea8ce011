"""The sizes of a model's inputs as symbolic sizes: names of ONNX, which may be any text, as names of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx

from aicf.dialects import dims
from aicf.dialects.dims import NAME_PATTERN, Poly, Size
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.frontends.onnx.interface import unused

_NOT_KNOWN, _NO_NAME = -1, "?"
"""How Paddle writes a size that it does not know."""


class SizeNames:
    """Gives every name of a size in the inputs of a graph a name of ours, and every size without a name one."""

    def __init__(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        texts = [
            dim.dim_param for entry in inputs for dim in entry.type.tensor_type.shape.dim if dim.dim_param
        ]
        self._alone = {text for text in texts if NAME_PATTERN.fullmatch(text)}
        self._names: dict[str, Size] = {}
        self._used = set(self._alone)
        for text in dict.fromkeys(texts):
            self._names[text] = self._size_of(text)

    def sizes_of(self, entry: onnx.ValueInfoProto) -> list[Size]:
        """The sizes of an input.

        Raises:
            InvalidIR: a size is negative.
            UnsupportedOp: its rank is not known.
        """
        shape = entry.type.tensor_type
        if not shape.HasField("shape"):
            raise UnsupportedOp(
                f"input '{entry.name}' has no shape, its rank is dynamic; give it one: "
                "onnx.helper.make_tensor_value_info"
            )
        return [self._size(entry.name, axis, dim) for axis, dim in enumerate(shape.shape.dim)]

    def texts_of(self, entry: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
        """What the model declares of the sizes of a result: numbers, the sizes of inputs, and `?` for others.

        None if it declares nothing. Nothing is checked: a program says what its results are.
        """
        shape = entry.type.tensor_type
        if not shape.HasField("shape"):
            return None
        return tuple(
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else self._text(dim.dim_param)
            for dim in shape.shape.dim
        )

    def named(self, name: str) -> Size | None:
        """The size that a name of the file stands for; None for a name that no input has."""
        return self._names.get(name)

    def _text(self, name: str) -> str:
        return str(self._names.get(name, _NO_NAME))

    def _size(self, name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> Size:
        if dim.HasField("dim_value") and dim.dim_value != _NOT_KNOWN:
            if dim.dim_value < 0:
                raise InvalidIR(
                    f"input '{name}': dimension {axis} has size {dim.dim_value}; a size that is not known has a name"
                )
            return dim.dim_value
        if _is_named(dim):
            return self._names[dim.dim_param]
        return dims.symbol(self._fresh(f"{name}_{axis}"))

    def _size_of(self, text: str) -> Size:
        """The text as arithmetic on names that inputs have as sizes; else as one name."""
        try:
            size = dims.parse_size(text)
        except ValueError:
            size = 0
        if isinstance(size, Poly) and size.names <= self._alone:
            return size
        return dims.symbol(self._fresh(text))

    def _fresh(self, text: str) -> str:
        stem = re.sub(r"\W", "_", text, flags=re.ASCII)
        stem = stem if NAME_PATTERN.fullmatch(stem) else f"_{stem}"
        name = unused(stem, self._used)
        self._used.add(name)
        return name


def _is_named(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return dim.dim_param not in ("", _NO_NAME)
