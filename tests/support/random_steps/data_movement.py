"""Steps that add data movement ops."""

import numpy as np

from aicf.dialects import logical
from aicf.dialects.types import tensor, tensor_info
from tests.support.random_steps.generator import SIZES, Generator


def _reshape(g: Generator) -> None:
    x = g.float_value()
    count = int(np.prod(tensor_info(x.type).shape))
    sizes: list[int] = []
    while count > 1 and len(sizes) < 3:
        size = int(g.choice([divisor for divisor in range(1, count + 1) if count % divisor == 0]))
        sizes.append(size)
        count //= size
    g.add(logical.ReshapeOp(x, [*sizes, count]))


def _transpose(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    g.add(logical.TransposeOp(x, g.random.permutation(tensor_info(x.type).rank).tolist()))


def _broadcast(g: Generator) -> None:
    x = g.float_value()
    sizes = [int(g.choice(SIZES)) if size == 1 else size for size in tensor_info(x.type).shape]
    dimensions = list(range(len(sizes)))
    if g.chance(0.5) and len(sizes) < 4:
        position = int(g.random.integers(len(sizes) + 1))
        sizes.insert(position, int(g.choice(SIZES)))
        dimensions = [axis if axis < position else axis + 1 for axis in dimensions]
    g.add(logical.BroadcastOp(x, dimensions, sizes))


def _slice(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    starts, sizes, strides = [], [], []
    for whole in tensor_info(x.type).shape:
        start, stride = int(g.random.integers(whole)), int(g.choice((1, 1, 2)))
        starts.append(start)
        strides.append(stride)
        sizes.append(int(g.random.integers(1, (whole - start - 1) // stride + 2)))
    g.add(logical.SliceOp(x, starts, sizes, strides))


def _window(g: Generator) -> None:
    """Windows over the last dimensions, and often their sums or largest elements, as pooling takes them."""
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    count = int(g.random.integers(1, min(len(shape), 2) + 1))
    if len(shape) + count > 5:
        return
    sizes = [int(g.random.integers(1, min(whole, 3) + 1)) for whole in shape[-count:]]
    dilations = [
        int(g.choice((1, 1, 2))) if 2 * (size - 1) < whole else 1
        for size, whole in zip(sizes, shape[-count:], strict=True)
    ]
    strides = [int(g.choice((1, 1, 2))) for _ in sizes]
    windows = g.require(logical.WindowOp(x, sizes, strides, dilations))
    if g.chance(0.6):
        reduce = logical.ReduceSumOp if g.chance(0.5) else logical.ReduceMaxOp
        g.add(reduce(windows, range(len(shape), len(shape) + count)))


def _concat(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    axis = int(g.random.integers(len(shape)))
    other = g.argument([int(g.choice(SIZES)) if i == axis else size for i, size in enumerate(shape)], "param")
    parts = [x, other, x] if g.chance(0.3) else [other, x]
    g.add(logical.ConcatOp(parts, axis))


def _constant(g: Generator) -> None:
    shape = g.shape(int(g.random.integers(0, 3)))
    value = g.random.integers(-8, 9, shape) / 4 if g.chance(0.5) else 0.25
    type_ = tensor(shape, g.float_type)
    g.add(logical.ConstantOp(value, type_))


def _detach(g: Generator) -> None:
    g.add(logical.DetachOp(g.float_value()))


STEPS = (_reshape, _transpose, _broadcast, _slice, _window, _concat, _constant, _detach)
