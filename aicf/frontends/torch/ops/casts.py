"""ATen ops that change the element type or the device of a tensor."""

from __future__ import annotations

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


@row(
    *("_to_copy.default", "to.dtype", "to.device", "to.dtype_layout", "to.other", "to.prim_Device"),
    *("to.prim_dtype", "to.prim_other", "type_as.default", "prims.convert_element_type.default"),
)
def _in_type_of_result(writer: Writer, x: Value, *_: object, **named: object) -> Value:
    """The operand in the element type of the result."""
    return writer.result(x)
