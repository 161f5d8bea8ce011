"""ONNX ops that compute each element from the elements at its place."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.support.onnx_ops.base import Node, Result, row


@row("Add", since=7)
def _add(node: Node) -> Result:
    """A + B, broadcast."""
    return node.elementwise(logical.AddOp, node.operand(0), node.operand(1))


@row("Relu", since=6)
def _relu(node: Node) -> Result:
    """max(x, 0)."""
    return node.apply(logical.ReluOp, node.operand(0))
