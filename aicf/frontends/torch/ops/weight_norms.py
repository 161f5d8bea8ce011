"""The gradient of ATen's weight norm, whose slices along one dimension have their own norms.

Salimans and Kingma, Weight Normalization, 2016. The forward part is taken apart by PyTorch's formula.
"""

from __future__ import annotations

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


@row("_weight_norm_interface_backward.default")
def _weight_norm_backward(
    writer: Writer, grad: Value, v: Value, g: Value, norms: Value, dim: int
) -> tuple[Value, Value]:
    """To the direction `v` and to the length `g` of the weight g * v / |v|."""
    graph = writer.graph
    grad, v, g, norms = (writer.widened(each) for each in (grad, v, g, norms))
    others = [axis for axis in range(v.rank) if axis != writer.axis(dim, v.rank)]
    along = graph.reduce_sum(graph.mul(grad, v), others, keepdims=True)
    slope = graph.sub(grad, graph.mul(v, graph.div(along, graph.mul(norms, norms))))
    passed = graph.mul(graph.div(g, norms), slope)
    length = graph.div(along, norms)
    return writer.result(passed), writer.result(length, 1)
