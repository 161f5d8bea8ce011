"""ONNX ops that combine windows, regions or whole planes to one element, and the way back of a maximum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.sliding import explicit_padding, sliding


def _spatial(node: Node) -> tuple[int, ...]:
    """The sizes after batch and channels of operand 0."""
    shape = node.shape(0)
    if len(shape) < 3:
        raise node.invalid(
            f"operand 0 has rank {len(shape)}; it is [N, C, S1..Sk] with one spatial dimension or more"
        )
    return shape[2:]


def _pool(
    node: Node, op_class: Callable[..., logical.PoolOp], *operands: SSAValue, **more: int | bool
) -> SSAValue:
    """A pooling with the windows of the node."""
    windows = sliding(node, _spatial(node))
    return node.apply(
        partial(op_class, **more),
        *operands,
        sizes=windows.sizes,
        **windows.steps,
        ceil_mode=node.attributes.flag("ceil_mode"),
    )


# Windows


@row("MaxPool")
def _max_pool(node: Node) -> Result:
    """The largest of each window, and where it lies."""
    x = node.operand(0)
    largest = _pool(node, logical.MaxPoolOp, x)
    return [largest, _indices(node, x) if node.wants(1) else None]


def _indices(node: Node, x: SSAValue) -> SSAValue:
    """Indices in the whole tensor, in row-major order, or with the spatial dimensions in column-major order."""
    spatial = _spatial(node)
    indices = _pool(node, logical.MaxPoolIndicesOp, x)
    info, plane = tensor_info(indices.type), prod(spatial)
    if node.attributes.int("storage_order", 0):
        indices = _column_major(node, indices, spatial)
    batch, channel = (
        node.add(logical.IotaOp(axis, info.shape, info.element), name) for axis, name in ((0, "n"), (1, "c"))
    )
    planes = node.apply(
        logical.AddOp, node.apply(logical.MulOp, batch, node.shape(0)[1]), channel, name="plane"
    )
    return node.apply(logical.AddOp, indices, node.apply(logical.MulOp, planes, plane), name="places")


def _column_major(node: Node, indices: SSAValue, spatial: tuple[int, ...]) -> SSAValue:
    """A row-major index counted with the first dimension innermost."""
    total: SSAValue | None = None
    for axis, size in enumerate(spatial):
        along = node.apply(logical.FloorDivOp, indices, prod(spatial[axis + 1 :]))
        inside = node.apply(logical.ModOp, along, size)
        step = node.apply(logical.MulOp, inside, prod(spatial[:axis]))
        total = step if total is None else node.apply(logical.AddOp, total, step)
    assert total is not None
    return total


@row("AveragePool")
def _average_pool(node: Node) -> Result:
    """The mean of each window."""
    included = node.attributes.flag("count_include_pad")
    return _pool(node, logical.AvgPoolOp, node.operand(0), count_include_pad=included)


@row("LpPool", since=2)
def _lp_pool(node: Node) -> Result:
    """The p-norm of each window."""
    return _pool(node, logical.LpPoolOp, node.operand(0), p=node.attributes.int("p", 2))


# Planes


@row("GlobalMaxPool")
def _global_max_pool(node: Node) -> Result:
    """The largest of each plane."""
    return node.apply(logical.ReduceMaxOp, node.operand(0), axes=_plane(node), keepdims=True)


@row("GlobalAveragePool")
def _global_average_pool(node: Node) -> Result:
    """The mean of each plane."""
    return node.apply(logical.ReduceMeanOp, node.operand(0), axes=_plane(node), keepdims=True)


@row("GlobalLpPool", since=2)
def _global_lp_pool(node: Node) -> Result:
    """The p-norm of each plane: one window."""
    windows = list(_spatial(node))
    return node.apply(
        logical.LpPoolOp, node.operand(0), p=node.attributes.int("p", 2), sizes=windows, strides=windows
    )


def _plane(node: Node) -> range:
    return range(2, 2 + len(_spatial(node)))


# The way back


@row("MaxUnpool", since=9)
def _max_unpool(node: Node) -> Result:
    """Each element at its index in zeros; if the result is larger than what the windows cover, in its first corner."""
    shape = node.shape(0)
    kernel = node.attributes.ints("kernel_shape", None)
    spatial = _spatial(node)
    if kernel is None or len(kernel) != len(spatial):
        raise node.invalid(f"attribute kernel_shape is no list of {len(spatial)} integers")
    strides = node.attributes.ints("strides", [1] * len(spatial))
    low, high = explicit_padding(node, len(spatial))
    covered = [
        (size - 1) * stride + extent - before - after
        for size, stride, extent, before, after in zip(spatial, strides, kernel, low, high, strict=True)
    ]
    sizes = [*shape[:2], *covered]
    zeros = node.full(0, [prod(sizes)], node.element(0))
    indices, values = (node.reshape(node.operand(index), [prod(shape)], "flat") for index in (1, 0))
    flat = node.add(logical.ScatterOp(zeros, indices, values, "set"), "placed")
    placed = node.reshape(flat, sizes)
    wanted = node.ints(2, "output_shape") if node.has(2) else sizes
    after = [size - own for size, own in zip(wanted, sizes, strict=True)]
    if not any(after):
        return placed
    if min(after) < 0:
        raise node.invalid(f"output_shape {wanted} is smaller than what the windows cover, {sizes}")
    zero = node.full(0, [], node.element(0))
    return node.apply(logical.PadOp, placed, zero, low=[0] * len(sizes), high=after)
