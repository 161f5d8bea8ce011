"""ONNX ops that move blocks of elements: between depth and space, out of columns, around a centre."""

from __future__ import annotations

from math import prod

import numpy as np

from aicf.dialects import logical
from aicf.passes.support.onnx_ops.base import Node, Result, row
from aicf.passes.support.onnx_ops.sliding import sliding
from aicf.passes.support.onnx_ops.tables import table


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
    """The middle of what is too large, and zeros around what is too small; an odd rest is behind."""
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
    along = [
        _places(*one)
        for one in zip(
            image, windows.sizes, windows.strides, windows.dilations, windows.low, windows.high, strict=True
        )
    ]
    if left or prod(places.shape[1] for places in along) != length:
        raise node.invalid(f"{columns}x{length} columns are no windows of {kernel} over an image of {image}")
    elements = prod(image)
    rows = _flat(along, image).reshape(-1)
    moved = node.transpose(
        node.reshape(node.operand(0), [batch, channels, prod(kernel) * length], "columns"), [2, 0, 1]
    )
    zeros = node.full(0, [elements, batch, channels], node.element(0))
    summed = node.add(logical.ScatterOp(zeros, table(node, rows), moved, "add"), "summed")
    return node.reshape(node.transpose(summed, [1, 2, 0]), [batch, channels, *image])


def _places(whole: int, size: int, stride: int, dilation: int, low: int, high: int) -> np.ndarray:
    """``[size, count]``: where each element of each window lies, beyond the image too."""
    count = (whole + low + high - (size - 1) * dilation - 1) // stride + 1
    return np.arange(size)[:, None] * dilation + np.arange(count) * stride - low


def _flat(along: list[np.ndarray], image: list[int]) -> np.ndarray:
    """Row-major places of all elements of windows, then of all windows; past the last for those beyond the image."""
    rank = len(image)
    total, inside = np.zeros([1] * (2 * rank), np.int64), np.ones([1] * (2 * rank), np.bool_)
    for dim, (places, size) in enumerate(zip(along, image, strict=True)):
        shape = [1] * (2 * rank)
        shape[dim], shape[rank + dim] = places.shape
        own = places.reshape(shape)
        total = total * size + own
        inside = inside & (own >= 0) & (own < size)
    return np.where(inside, total, prod(image))
