"""Tables that rows compute while a graph is lowered, as tensors of the program."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.passes.support.onnx_ops.base import Array, Node


def table(node: Node, array: Array) -> SSAValue:
    """A vector of any length; a long one is constants side by side."""
    parts = [
        node.constant(array[start : start + MAX_CONSTANT_ELEMENTS])
        for start in range(0, len(array), MAX_CONSTANT_ELEMENTS)
    ]
    return node.concat(parts, 0, "table")
