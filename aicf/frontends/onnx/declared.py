"""What a graph declares of its values in `value_info` and of its outputs: element types, ranks, sizes that are numbers.

`lower-onnx` holds it against what nodes give. Names of sizes are left out: exporters write them down early and keep
them when a later step changes the graph. So are types that AICF does not have, of which nothing can be computed.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from aicf.dialects.onnx_types import Claim
from aicf.errors import AicfError, InvalidIR
from aicf.frontends.onnx.tensors import element_of_data_type


def declared_in(graph: onnx.GraphProto) -> Mapping[str, Claim]:
    """What is declared, by name of the value.

    Raises:
        InvalidIR: one value is declared twice, as two types.
    """
    initialized = {tensor.name for tensor in graph.initializer}
    overridable = [entry for entry in graph.input if entry.name in initialized]
    found: dict[str, Claim] = {}
    for entry in (*graph.value_info, *overridable, *graph.output):
        if (claim := _claim_of(entry)) is not None:
            known = found.get(entry.name, claim)
            found[entry.name] = joined(entry.name, known, claim, "the model declares it twice, also as")
    return found


def joined(name: str, given: Claim, claim: Claim, source: str) -> Claim:
    """Both claims on a value together.

    Raises:
        InvalidIR: they contradict each other; `source` says where the second is from.
    """
    both = given.joined(claim)
    if both is None:
        raise InvalidIR(
            f"contradictory shapes: value '{name}' is {given}, {source} {claim}; correct the declaration, or take it "
            "out of the model"
        )
    return both


def _claim_of(entry: onnx.ValueInfoProto) -> Claim | None:
    type_ = entry.type.tensor_type
    if entry.type.WhichOneof("value") != "tensor_type":
        return None
    try:
        element = element_of_data_type(type_.elem_type, f"value '{entry.name}'")
    except AicfError:
        return None
    if not type_.HasField("shape"):
        return Claim(element, None)
    # Sizes that are not known are also written as 0 or -1.
    return Claim(element, tuple(dim.dim_value if dim.dim_value > 0 else None for dim in type_.shape.dim))
