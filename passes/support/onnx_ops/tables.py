"""Tables that rows compute while a graph is lowered, as tensors of the program."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.passes.support.onnx_ops.base import Array, Node


def table(node: Node, array: Array) -> SSAValue:
    """A vector of the program; a long one is constants side by side.

    Raises:
        UnsupportedOp: it has more elements than rows may work out.
    """
    node.bounded(len(array), "a table that it reads")
    parts = [
        node.constant(array[start : start + MAX_CONSTANT_ELEMENTS])
        for start in range(0, len(array), MAX_CONSTANT_ELEMENTS)
    ]
    return node.concat(parts, 0, "table")
