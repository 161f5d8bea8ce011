"""Steps that add ops which know places. Indices are inputs or made from iota, in range and out of it."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor, tensor_info
from tests.support.random_steps.generator import SIZES, Generator


def _indices(g: Generator, shape: list[int], axis: int) -> SSAValue:
    """Places that are given, or counted along an axis; some past the ends."""
    element = g.choice(("i32", "i64"))
    if g.chance(0.6) or not shape:
        return g.argument(shape, "input", element)
    position = g.require(logical.IotaOp(axis, shape, element))
    back = g.require(logical.ConstantOp(int(g.random.integers(-1, 3)), position.type))
    return g.require(logical.SubOp(position, back))


def _iota(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    g.add(
        logical.AddOp(x, g.require(logical.IotaOp(int(g.random.integers(len(shape))), shape, g.float_type)))
    )


def _pad(g: Generator) -> None:
    x = g.float_value()
    rank = tensor_info(x.type).rank
    low, high = (g.random.integers(0, 3, rank).tolist() for _ in range(2))
    value = g.require(logical.ConstantOp(g.choice((0.0, 0.5, -1.0)), tensor((), g.float_type)))
    g.add(logical.PadOp(x, value, low, high))


def _gather(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = [int(g.choice(SIZES)) for _ in range(int(g.random.integers(3)))]
    axis = int(g.random.integers(tensor_info(x.type).rank))
    g.add(logical.GatherOp(x, _indices(g, shape, 0), axis))


def _gather_elements(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    axis = int(g.random.integers(len(shape)))
    counts = [
        int(g.choice(SIZES)) if dim == axis else int(g.random.integers(1, size + 1))
        for dim, size in enumerate(shape)
    ]
    g.add(logical.GatherElementsOp(x, _indices(g, counts, axis), axis))


def _flip(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    axes = [axis for axis in range(tensor_info(x.type).rank) if g.chance(0.5)]
    g.add(logical.FlipOp(x, axes or [0]))


def _tile(g: Generator) -> None:
    x = g.float_value()
    g.add(logical.TileOp(x, g.random.integers(1, 3, tensor_info(x.type).rank).tolist()))


def _one_hot(g: Generator) -> None:
    on, off = (
        g.require(logical.ConstantOp(value, tensor((), g.float_type)))
        for value in (1.0, g.choice((0.0, -0.5)))
    )
    indices = _indices(g, [int(g.choice(SIZES))], 0)
    g.add(logical.OneHotOp(indices, on, off, int(g.random.integers(2)), int(g.choice((2, 3, 5)))))


def _scatter(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    count = int(g.choice(SIZES))
    rows, updates = _indices(g, [count], 0), g.argument([count, *shape[1:]], "param")
    mode = g.choice(logical.SCATTER_MODES)
    primitive = mode != "set" and g.chance(0.5)
    g.add((logical.ScatterCombineOp if primitive else logical.ScatterOp)(x, rows, updates, mode))


def _last_update(g: Generator) -> None:
    g.add(logical.LastUpdateOp(_indices(g, [int(g.choice(SIZES))], 0), int(g.choice(SIZES))))


def _write_row(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = list(tensor_info(x.type).shape)
    axis = int(g.random.integers(len(shape)))
    row = g.argument([*shape[:axis], 1, *shape[axis + 1 :]], "param")
    lead = shape[: int(g.random.integers(axis + 1))]
    g.add(logical.WriteRowOp(row, _indices(g, lead, 0), x, axis))


def _scatter_nd(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    depth, count = int(g.random.integers(1, len(shape) + 1)), int(g.choice(SIZES))
    indices, updates = _indices(g, [count, depth], 0), g.argument([count, *shape[depth:]], "param")
    g.add(logical.ScatterNdOp(x, indices, updates, g.choice(logical.SCATTER_MODES)))


def _scatter_elements(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    axis = int(g.random.integers(len(shape)))
    counts = [int(g.random.integers(1, size + 1)) for size in shape]
    updates = g.argument(counts, "param")
    g.add(logical.ScatterElementsOp(x, _indices(g, counts, axis), updates, axis, g.choice(("set", "add"))))


def _topk(g: Generator) -> None:
    """Of integers: a float that is rounded elsewhere may change places with its neighbour."""
    x = g.argument(g.shape(), "input", "i32")
    axis = int(g.random.integers(tensor_info(x.type).rank))
    k = int(g.random.integers(1, tensor_info(x.type).shape[axis] + 1))
    g.add(logical.TopkIndicesOp(x, axis, k, smallest=g.chance(0.5)))


STEPS = (
    _iota,
    _pad,
    _gather,
    _gather_elements,
    _flip,
    _tile,
    _one_hot,
    _scatter,
    _scatter_elements,
    _scatter_nd,
    _last_update,
    _topk,
    _write_row,
)
