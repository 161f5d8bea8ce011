"""ONNX ops that move blocks of elements: between depth and space, out of columns, around a centre."""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.elementwise import compare, select
from aicf.passes.onnx.ops.sliding import Sliding, sliding


def _blocks(node: Node) -> tuple[int, int, int, int, int]:
    """The sizes of ``[N, C, H, W]`` and the block size."""
    block = node.attributes.int("blocksize", None)
    if len(node.shape(0)) != 4 or block is None or block < 1:
        raise node.invalid("the operand is [N, C, H, W], and blocksize a number of at least 1")
    batch, channels, height, width = node.shape(0)
    return batch, channels, height, width, block


@row("DepthToSpace")
def _depth_to_space(node: Node) -> Result:
    """Channels to blocks: of each row of a block all channels (DCR), or of each channel a block (CRD)."""
    batch, channels, height, width, block = _blocks(node)
    depth, left = divmod(channels, block * block)
    if left:
        raise node.invalid(f"{channels} channels are no multiple of {block} * {block}")
    if node.attributes.string("mode", "DCR") == "DCR":
        sizes, order = [batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]
    else:
        sizes, order = [batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]
    apart = node.reshape(node.operand(0), sizes, "apart")
    return node.reshape(node.transpose(apart, order), [batch, depth, height * block, width * block])


@row("SpaceToDepth")
def _space_to_depth(node: Node) -> Result:
    """Blocks to channels: of each element of a block all channels (DCR), or of each channel a block (CRD)."""
    batch, channels, height, width, block = _blocks(node)
    if height % block or width % block:
        raise node.invalid(f"{height}x{width} elements are no blocks of {block}x{block}")
    rows, columns = height // block, width // block
    apart = node.reshape(node.operand(0), [batch, channels, rows, block, columns, block], "apart")
    is_depth_first = node.attributes.string("mode", "DCR") == "DCR"
    moved = node.transpose(apart, [0, 3, 5, 1, 2, 4] if is_depth_first else [0, 1, 3, 5, 2, 4])
    return node.reshape(moved, [batch, channels * block * block, rows, columns])


@row("CenterCropPad", since=18)
def _center_crop_pad(node: Node) -> Result:
    """The middle of what is too large, and zeros around what is too small; an odd rest is at the end."""
    shape, wanted = node.shape(0), node.ints(1, "shape")
    axes = node.attributes.ints("axes", list(range(len(shape))))
    if len(axes) != len(wanted):
        raise node.invalid(f"shape has {len(wanted)} values for {len(axes)} axes")
    starts, sizes = [0] * len(shape), list(shape)
    low, high = [0] * len(shape), [0] * len(shape)
    for axis, size in zip((node.axis(axis, len(shape)) for axis in axes), wanted, strict=True):
        if size < shape[axis]:
            starts[axis], sizes[axis] = (shape[axis] - size) // 2, size
        else:
            low[axis] = (size - shape[axis]) // 2
            high[axis] = size - shape[axis] - low[axis]
    cut = node.slice(node.operand(0), starts, sizes, suffix="cut")
    if not any(low) and not any(high):
        return cut
    return node.apply(logical.PadOp, cut, node.full(0, [], node.element(0)), low=low, high=high)


@row("Col2Im", since=18)
def _col_to_im(node: Node) -> Result:
    """Sums of the elements of windows that lie on each element of an image."""
    batch, columns, length = node.shape(0)
    image, kernel = node.ints(1, "image_shape"), node.ints(2, "block_shape")
    windows = sliding(node, image, kernel)
    channels, left = divmod(columns, prod(kernel))
    counts = [_count(windows, dim, size) for dim, size in enumerate(image)]
    if left or prod(counts) != length:
        raise node.invalid(f"{columns}x{length} columns are no windows of {kernel} over an image of {image}")
    elements = prod(image)
    if 0 in (batch, channels, length):
        return np.broadcast_to(np.zeros((), node.element(0).dtype), [batch, channels, *image])
    rows = node.reshape(_element_indices(node, windows, counts, image), [prod(kernel) * length])
    moved = node.transpose(
        node.reshape(node.operand(0), [batch, channels, prod(kernel) * length], "columns"), [2, 0, 1]
    )
    zeros = node.full(0, [elements, batch, channels], node.element(0))
    summed = node.add(logical.ScatterOp(zeros, rows, moved, "add"), "summed")
    return node.reshape(node.transpose(summed, [1, 2, 0]), [batch, channels, *image])


def _count(windows: Sliding, dim: int, size: int) -> int:
    """How many windows lie along a dimension of the image."""
    reach = (windows.sizes[dim] - 1) * windows.dilations[dim] + 1
    return max((size + windows.low[dim] + windows.high[dim] - reach) // windows.strides[dim] + 1, 0)


def _element_indices(node: Node, windows: Sliding, counts: list[int], image: list[int]) -> SSAValue:
    """``[*kernel, *counts]``: row-major indices of the elements of windows; past the last beyond the image.

    They are computed by the program, whose size then does not grow with the image.
    """
    rank, shape, whole = len(image), [*windows.sizes, *counts], element_named("i64")
    total, inside = node.full(0, shape, whole), node.full(1, shape, element_named("i1"))
    for dim, size in enumerate(image):
        tap, window = (node.add(logical.IotaOp(axis, shape, "i64")) for axis in (dim, rank + dim))
        start = node.apply(
            logical.SubOp, node.apply(logical.MulOp, window, windows.strides[dim]), windows.low[dim]
        )
        index = node.apply(logical.AddOp, node.apply(logical.MulOp, tap, windows.dilations[dim]), start)
        total = node.apply(logical.AddOp, node.apply(logical.MulOp, total, size), index)
        fits = node.apply(logical.AndOp, compare(node, "ge", index, 0), compare(node, "lt", index, size))
        inside = node.apply(logical.AndOp, inside, fits)
    return select(node, inside, total, node.splat(prod(image), total))
