"""DeformConv: a convolution whose kernel reads between the elements, at coordinates that are moved by an operand.

Dai and others, Deformable Convolutional Networks, 2017; with a mask: Zhu and others, 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.pointwise import narrow, widen
from aicf.passes.onnx.ops.sliding import Sliding, sliding
from aicf.passes.onnx.ops.taps import between
from aicf.semantics import composite_element


@row("DeformConv", since=19)
def _deform_conv(node: Node) -> Result:
    """What the kernel reads at its moved coordinates, times the mask, contracted with the weight; plus the bias."""
    batch, channels, *spatial = node.shape(0)
    outputs, _, *taps = node.shape(1)
    windows = sliding(node, spatial, taps)
    moved, groups = node.attributes.int("offset_group", 1), node.attributes.int("group", 1)
    out = list(node.shape(2)[2:])
    if node.shape(2) != (batch, moved * prod(taps) * len(taps), *out) or channels % moved:
        raise node.invalid(
            f"the offset has shape {list(node.shape(2))}; for a kernel of {taps} and {moved} groups of {channels} "
            f"channels it has {moved * prod(taps) * len(taps)} numbers for each place"
        )
    planes = node.reshape(node.operand(0), [batch * moved, channels // moved, prod(spatial)])
    read = between(node, planes, _coordinates(node, windows, moved, out), spatial)
    if node.has(4):
        factors = node.reshape(widen(node, node.operand(4)), [batch * moved, prod(taps) * prod(out)])
        shape = tensor_info(read.type).shape
        read = node.apply(logical.MulOp, read, node.broadcast(factors, [0, 2], shape, "mask"))
    inner = channels // groups * prod(taps)
    columns = node.reshape(read, [batch, groups, inner, prod(out)])
    weight = node.reshape(widen(node, node.operand(1)), [groups, outputs // groups, inner])
    weight = node.broadcast(weight, [1, 2, 3], [batch, groups, outputs // groups, inner], "weight")
    result = node.reshape(node.apply(logical.MatmulOp, weight, columns), [batch, outputs, *out])
    if node.has(3):
        bias = widen(node, node.operand(3))
        result = node.apply(logical.AddOp, result, node.broadcast_axis(bias, 1, [batch, outputs, *out]))
    return narrow(node, result)


def _coordinates(node: Node, windows: Sliding, moved: int, out: Sequence[int]) -> list[SSAValue]:
    """For each dimension of the operand where the kernel's elements are read, ``[B, kernel elements * places]``."""
    taps, batch = windows.sizes, node.shape(0)[0]
    rank = len(taps)
    offsets = node.reshape(widen(node, node.operand(2)), [batch * moved, prod(taps), rank, prod(out)])
    shape = [batch * moved, prod(taps), prod(out)]
    found: list[SSAValue] = []
    for dim in range(rank):
        part = node.slice(offsets, [0, 0, dim, 0], [batch * moved, prod(taps), 1, prod(out)])
        regular = _regular(node, windows, dim, out, composite_element(node.element(2)))
        coordinate = node.apply(
            logical.AddOp,
            node.reshape(part, shape),
            node.broadcast(node.reshape(regular, shape[1:]), [1, 2], shape, "regular"),
        )
        found.append(node.reshape(coordinate, [shape[0], shape[1] * shape[2]]))
    return found


def _regular(node: Node, windows: Sliding, dim: int, out: Sequence[int], element: ElementType) -> SSAValue:
    """Where a convolution would read along a dimension: ``[kernel..., places...]``."""
    taps = windows.sizes
    shape = [*taps, *out]
    tap, coordinate = (node.add(logical.IotaOp(axis, shape, element)) for axis in (dim, len(taps) + dim))
    inside = node.apply(logical.MulOp, tap, float(windows.dilations[dim]))
    start = node.apply(logical.MulOp, coordinate, float(windows.strides[dim]))
    return node.apply(logical.SubOp, node.apply(logical.AddOp, start, inside), float(windows.low[dim]))
