"""What the nodes of an ONNX graph are called."""

from __future__ import annotations

from aicf.dialects.onnx import NodeOp


def node_name(op: NodeOp) -> str:
    """The name of a node; its op type if it has none."""
    return op.op_type.data if op.node_name is None else op.node_name.data


def node_id(op: NodeOp) -> str:
    """The id that a node is given: its name, without the sign that precedes a bucket in ids."""
    return node_name(op).replace("@", "_")
