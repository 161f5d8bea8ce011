"""Holds what an ONNX node gives against what the model declares of it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects.onnx import NodeOp
from aicf.dialects.onnx_types import Claim
from aicf.dialects.types import TensorInfo, element_of_dtype, tensor_info
from aicf.errors import InvalidIR
from aicf.passes.support.identity import position_of
from aicf.passes.support.onnx_ops import Counted, Header, Items, Known, Value


def check_declared(op: NodeOp, header: Header, results: Sequence[Value]) -> None:
    """Compares element types, ranks and sizes.

    Raises:
        InvalidIR: a result is none of the type that its value has.
    """
    for index, (declared, value) in enumerate(zip(op.outs, results, strict=False)):
        claim = declared.type.claim
        if claim is None or value is None:
            continue
        if isinstance(value, Items):
            shown = "a sequence"
        else:
            found = _true_of(value)
            if found.joined(claim) is not None:
                continue
            shown = str(found)
        name = "" if declared.name_hint is None else f" ('{declared.name_hint}')"
        raise InvalidIR(
            f"{header}: contradictory shapes: output {index}{name} is {shown}, the model declares {claim}; correct the "
            "declaration, or take it out of the model",
            location=position_of(op),
        )


def _true_of(value: SSAValue | Known | Counted) -> Claim:
    """What is known of a value; not how many of its slices are there, where that follows from the data."""
    if isinstance(value, Known):
        return Claim.of(TensorInfo(value.array.shape, element_of_dtype(value.array.dtype)))
    if isinstance(value, SSAValue):
        return Claim.of(tensor_info(value.type))
    info = tensor_info(value.value.type)
    sizes = [None if axis == value.axis else size for axis, size in enumerate(info.shape)]
    return Claim(info.element, tuple(sizes))
