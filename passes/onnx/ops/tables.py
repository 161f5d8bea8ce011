"""Tables that rows compute while a graph is lowered, as tensors of the program."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.passes.onnx.ops.base import Array, Node

MAX_TABLE = 1 << 20
"""Most elements of a table; compile time grows with them, some 25 s for so many."""


def table(node: Node, array: Array) -> SSAValue:
    """A vector of the program; a long one is constants side by side.

    Raises:
        UnsupportedOp: it has more elements than `MAX_TABLE`.
    """
    if len(array) > MAX_TABLE:
        raise node.unsupported(
            f"it reads a table of {len(array)} elements; at most {MAX_TABLE} stand in a program"
        )
    parts = [
        node.constant(array[start : start + MAX_CONSTANT_ELEMENTS])
        for start in range(0, len(array), MAX_CONSTANT_ELEMENTS)
    ]
    return node.concat(parts, 0, "table")
