"""Steps of programs full of concatenations, of what is computed and what is not; not among those of all programs."""

from collections.abc import Callable

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps import STEPS as ALL
from tests.support.random_steps.generator import SIZES, Generator

_UNARY = (logical.TanhOp, logical.NegOp, logical.SigmoidOp, logical.AbsOp)


def _pointwise(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    return g.require(g.choice(_UNARY)(x))


def _argument(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    shape = list(tensor_info(x.type).shape)
    shape[axis] = int(g.choice(SIZES))
    return g.argument(shape, "param")


def _constant(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    return g.require(logical.ConstantOp(0.5, x.type))


def _itself(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    return x


def _slice(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    shape = tensor_info(x.type).shape
    source = _pointwise(g, x, axis) if g.chance(0.5) else x
    start = int(g.random.integers(shape[axis]))
    starts = [start if dim == axis else 0 for dim in range(len(shape))]
    sizes = [size - start if dim == axis else size for dim, size in enumerate(shape)]
    return g.require(logical.SliceOp(source, starts, sizes))


def _product(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    shape = tensor_info(x.type).shape
    if len(shape) < 2:
        return _pointwise(g, x, axis)
    columns = int(g.choice(SIZES)) if axis == len(shape) - 1 else shape[-1]
    weight = g.argument((shape[-1], columns), "param")
    product = g.require(logical.MatmulOp(x, weight))
    return _pointwise(g, product, axis) if g.chance(0.5) else product


def _transposed(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    order = [int(dim) for dim in g.random.permutation(len(tensor_info(x.type).shape))]
    inner = _pointwise(g, g.require(logical.TransposeOp(x, order)), axis)
    return g.require(logical.TransposeOp(inner, [order.index(dim) for dim in range(len(order))]))


def _softmax(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    return g.require(logical.SoftmaxOp(x, len(tensor_info(x.type).shape) - 1))


def _joined(g: Generator, x: SSAValue, axis: int) -> SSAValue:
    other = int(g.random.integers(len(tensor_info(x.type).shape)))
    halves = [_pointwise(g, x, axis), g.choice(_PARTS)(g, x, other)]
    both = g.require(logical.ConcatOp(halves, other))
    return both if other == axis else _slice_to(g, both, x)


def _slice_to(g: Generator, both: SSAValue, x: SSAValue) -> SSAValue:
    shape = tensor_info(x.type).shape
    return g.require(logical.SliceOp(both, [0] * len(shape), shape))


_PARTS: tuple[Callable[[Generator, SSAValue, int], SSAValue], ...] = (
    *(_pointwise, _pointwise, _product, _product, _slice, _transposed, _softmax),
    *(_argument, _constant, _itself, _joined),
)


def _concat(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    axis = int(g.random.integers(len(tensor_info(x.type).shape)))
    parts = [g.choice(_PARTS)(g, x, axis) for _ in range(int(g.random.integers(2, 5)))]
    both = g.require(logical.ConcatOp(parts, axis))
    if g.chance(0.2):
        g.add(logical.ConcatOp([both, both], int(g.random.integers(len(tensor_info(x.type).shape)))))
    if g.chance(0.3):
        g.add(g.choice(_UNARY)(g.choice(parts)))


STEPS = (*ALL, *(_concat for _ in ALL))
"""Every second one is a concatenation."""
