"""ONNX ops that write at indices.

An index counts from the end if it is negative; out of range it writes nothing. Of two updates of one element the later
one stays, where ONNX leaves that open.
"""

from __future__ import annotations

from collections.abc import Mapping

from aicf.dialects import logical
from aicf.dialects.logical import ScatterMode
from aicf.dialects.types import element_of
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.gathering import as_indices

_MODES: Mapping[str, ScatterMode] = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _mode(node: Node) -> ScatterMode:
    """How an update is combined with what it finds."""
    name = node.attributes.string("reduction", "none")
    if name not in _MODES:
        raise node.invalid(f"reduction is '{name}'; use one of {', '.join(_MODES)}")
    return _MODES[name]


@row("Scatter", since=9, until=10)
@row("ScatterElements", since=11)
def _scatter_elements(node: Node) -> Result:
    """The data with each update combined into the element that its index names along ``axis``."""
    if 0 in node.shape(1):
        return node.raw(0)
    axis = node.axis(node.attributes.int("axis", 0), len(node.shape(0)))
    operands = (node.operand(0), as_indices(node, node.operand(1)), node.operand(2))
    return node.apply(logical.ScatterElementsOp, *operands, axis=axis, mode=_mode(node))


@row("ScatterND", since=11)
def _scatter_nd(node: Node) -> Result:
    """The data with slices combined into it at indices of several dimensions."""
    if 0 in node.shape(1):
        return node.raw(0)
    operands = (node.operand(0), as_indices(node, node.operand(1)), node.operand(2))
    return node.apply(logical.ScatterNdOp, *operands, mode=_mode(node))


@row("TensorScatter", since=24)
def _tensor_scatter(node: Node) -> Result:
    """The cache with the update written along ``axis`` from the index of its batch entry on."""
    cache, update = node.shape(0), node.shape(1)
    axis = node.axis(node.attributes.int("axis", -2), len(cache))
    if axis == 0:
        raise node.invalid("axis is 0, the batch; it is the dimension of the sequence")
    mode = node.attributes.string("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.invalid(f"mode is '{mode}'; use one of linear, circular")
    if 0 in update:
        return node.raw(0)
    position = node.add(logical.IotaOp(axis, update, "i64"))
    if node.has(2):
        first = node.broadcast_axis(as_indices(node, node.operand(2)), 0, update)
        position = node.apply(logical.AddOp, position, node.cast(first, element_of(position.type), "first"))
    if mode == "circular":
        position = node.apply(logical.ModOp, position, cache[axis])
    return node.apply(logical.ScatterElementsOp, node.operand(0), position, node.operand(1), axis=axis)
