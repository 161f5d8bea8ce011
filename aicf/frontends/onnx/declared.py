"""What a graph declares of its values in `value_info` and of its outputs: element types, ranks, sizes.

These are hints: types follow from the inputs. They stand in the IR as the types of what nodes give, and `lower-onnx`
compares them with what the nodes do give; what is known already, such as an initializer, is compared here. A size is a
number or a name that inputs have too. Other names are left out, for they say nothing, and so are types that AICF does
not have, of which nothing can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx

from aicf.dialects.dims import Size
from aicf.dialects.onnx_types import Claim
from aicf.errors import AicfError
from aicf.frontends.onnx.tensors import element_of_data_type

NamedSize = Callable[[str], Size | None]
"""The symbolic size that a name of the file stands for; None for a name that no input has."""


def entries_of(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """What a graph declares of values; the outputs come last."""
    initialized = {tensor.name for tensor in graph.initializer}
    overridable = [entry for entry in graph.input if entry.name in initialized]
    return [*graph.value_info, *overridable, *graph.output]


def claims_of(
    entries: Iterable[onnx.ValueInfoProto], named: NamedSize
) -> tuple[Mapping[str, Claim], Sequence[str]]:
    """What is declared, by name of the value, and in words what contradicts itself: of that the last one holds."""
    found: dict[str, Claim] = {}
    wrong: list[str] = []
    for entry in entries:
        if (claim := _claim_of(entry, named)) is None:
            continue
        known = found.get(entry.name, claim)
        if (both := known.joined(claim)) is None:
            wrong.append(declared_twice(entry.name, known, claim))
        found[entry.name] = both or claim
    return found, wrong


def declared_twice(name: str, first: Claim, second: Claim) -> str:
    """In words, that two declarations of one value contradict each other."""
    return f"value '{name}' is declared twice, as {first} and as {second}"


def _claim_of(entry: onnx.ValueInfoProto, named: NamedSize) -> Claim | None:
    type_ = entry.type.tensor_type
    if entry.type.WhichOneof("value") != "tensor_type":
        return None
    try:
        element = element_of_data_type(type_.elem_type, f"value '{entry.name}'")
    except AicfError:
        return None
    if not type_.HasField("shape"):
        return Claim(element, None)
    return Claim(element, tuple(_size_of(dim, named) for dim in type_.shape.dim))


def _size_of(dim: onnx.TensorShapeProto.Dimension, named: NamedSize) -> Size | None:
    """Sizes that are not known are also written as 0 or -1."""
    if dim.dim_param:
        return named(dim.dim_param)
    return dim.dim_value if dim.dim_value > 0 else None
