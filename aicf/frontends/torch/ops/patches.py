"""ATen ops that split images into patches, and combine patches to images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


@row("im2col.default")
def _im2col(
    writer: Writer,
    x: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """The patches under a sliding window, each a column."""
    lead = [0] * (x.rank - 2)
    if any(padding):
        x = writer.graph.pad(x, [*lead, *padding], [*lead, *padding])
    patches = writer.graph.window(x, kernel, stride, dilation)
    at = len(lead)
    order = [*range(at), at + 2, at + 3, at, at + 1]
    return writer.reshape(writer.permute(patches, order), writer.shape)


@row("col2im.default")
def _col2im(
    writer: Writer,
    x: Value,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Patches, added up where they overlap."""
    graph = writer.graph
    whole = [own + 2 * pad for own, pad in zip(size, padding, strict=True)]
    counts = [
        (own - dilated * (window - 1) - 1) // step + 1
        for own, window, dilated, step in zip(whole, kernel, dilation, stride, strict=True)
    ]
    *lead, columns, _ = writer.sizes(x)
    planes = math.prod(lead) * columns // math.prod(kernel)
    # [planes, KH, KW, OH, OW]: rows of what is added at one target.
    apart = writer.reshape(x, [planes, math.prod(kernel) * math.prod(counts)])
    updates = writer.widened(writer.permute(apart, [1, 0]))
    shape = [*kernel, *counts]
    target: Value | None = None
    for axis, (dilated, step, own) in enumerate(zip(dilation, stride, whole, strict=True)):
        tap = graph.mul(graph.iota(shape, axis, "i64"), dilated)
        along = graph.add(tap, graph.mul(graph.iota(shape, axis + 2, "i64"), step))
        target = along if target is None else graph.add(graph.mul(target, own), along)
    assert target is not None
    zeros = writer.full([math.prod(whole), planes], 0, updates.dtype)
    added = graph.scatter(zeros, writer.reshape(target, [math.prod(shape)]), updates, "add")
    image = writer.reshape(writer.permute(added, [1, 0]), [planes, *whole])
    for axis, (pad, own) in enumerate(zip(padding, size, strict=True), 1):
        image = writer.part(image, axis, pad, pad + own)
    return writer.result(writer.reshape(image, writer.shape))
