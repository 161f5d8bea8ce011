"""ATen ops that multiply matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Empty, Number, Writer, empty_row, row

# Products


@row("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default", "vdot.default")
@row("linalg_matmul.default")
def _product(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """lhs @ rhs, as `torch.matmul` broadcasts them."""
    return writer.graph.matmul(lhs, rhs)


@row("mm.dtype", "bmm.dtype")
def _wide_product(writer: Writer, lhs: Value, rhs: Value, dtype: str) -> Value:
    """lhs @ rhs, whose sums are not rounded to the type of the operands."""
    return writer.graph.matmul(writer.cast(lhs, dtype), writer.cast(rhs, dtype))


@row("outer.default", "ger.default")
def _outer(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """The product of each element of one vector with each of the other."""
    return _crossed(writer, lhs, rhs)


def _crossed(writer: Writer, lhs: Value, rhs: Value) -> Value:
    lhs, rhs = writer.cast(lhs, writer.dtype), writer.cast(rhs, writer.dtype)
    return _times(writer, writer.insert(lhs, 1), writer.insert(rhs, 0))


@row("inner.default")
def _inner(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """The sums of products along the last dimension of both."""
    if not lhs.rank or not rhs.rank:
        return _times(writer, lhs, rhs)
    product = writer.graph.matmul(_as_rows(writer, lhs), _as_rows(writer, rhs), transpose_b=True)
    return writer.reshape(product, writer.shape)


def _rows(writer: Writer, value: Value) -> int:
    """How many vectors there are along the last dimension."""
    return math.prod(writer.sizes(value)[:-1])


@row("chain_matmul.default", "linalg_multi_dot.default")
def _chain(writer: Writer, matrices: Sequence[Value]) -> Value:
    """The product of several matrices, in the order that costs least."""
    shapes = [(1, *writer.sizes(matrices[0])) if matrices[0].rank == 1 else writer.sizes(matrices[0])]
    shapes += [(*writer.sizes(one), 1) if one.rank == 1 else writer.sizes(one) for one in matrices[1:]]
    values = [writer.reshape(one, shape) for one, shape in zip(matrices, shapes, strict=True)]
    sizes = [shapes[0][0], *(shape[1] for shape in shapes)]
    while len(values) > 1:
        # The largest inner size goes first: it is in no product after that.
        at = max(range(1, len(values)), key=lambda number: sizes[number])
        values[at - 1 : at + 1] = [writer.graph.matmul(values[at - 1], values[at])]
        del sizes[at]
    return writer.reshape(values[0], writer.shape)


@row("linalg_matrix_power.default", "matrix_power.default")
def _matrix_power(writer: Writer, x: Value, exponent: int) -> Value:
    """The product of so many of a matrix, by squares."""
    if exponent < 0:
        writer.unsupported(f"the power {exponent} of a matrix", "give an exponent of 0 or more")
    graph = writer.graph
    power: Value | None = None
    while exponent:
        if exponent & 1:
            power = x if power is None else graph.matmul(power, x)
        exponent >>= 1
        if exponent:
            x = graph.matmul(x, x)
    if power is not None:
        return power
    is_diagonal = graph.eq(*(graph.iota(writer.shape, axis) for axis in (x.rank - 2, x.rank - 1)))
    return writer.cast(is_diagonal, writer.dtype)


@row("linalg_vecdot.default")
def _vecdot(writer: Writer, lhs: Value, rhs: Value, *, dim: int = -1) -> Value:
    """The sum of products along a dimension."""
    lhs, rhs = writer.widened(lhs), writer.widened(rhs)
    product = _times(writer, lhs, rhs)
    axes = [writer.axis(dim, product.rank)]
    return writer.result(writer.graph.reduce_sum(product, axes))


def _times(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """lhs * rhs; of truth values, whether both hold."""
    return writer.graph.and_(lhs, rhs) if lhs.dtype == "i1" else writer.graph.mul(lhs, rhs)


@row("kron.default")
def _kron(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """Each element of the left times the whole right, side by side."""
    lhs, rhs = writer.cast(lhs, writer.dtype), writer.cast(rhs, writer.dtype)
    rank = max(lhs.rank, rhs.rank)
    left, right = ([*[1] * (rank - value.rank), *writer.sizes(value)] for value in (lhs, rhs))
    lhs = writer.reshape(lhs, [size for own in left for size in (own, 1)])
    rhs = writer.reshape(rhs, [size for own in right for size in (1, own)])
    return writer.reshape(_times(writer, lhs, rhs), writer.shape)


# Products and a summand


@row("addmm.default", "baddbmm.default", "addmv.default")
def _addmm(
    writer: Writer, bias: Value, lhs: Value, rhs: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias + alpha * (lhs @ rhs)."""
    return _weighted(writer, bias, writer.graph.matmul(lhs, rhs), beta, alpha)


@row("addbmm.default")
def _addbmm(
    writer: Writer, bias: Value, lhs: Value, rhs: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias + alpha * (the sum of all lhs[i] @ rhs[i]), which is one product of longer rows."""
    batch, rows, inner = writer.sizes(lhs)
    columns = writer.sizes(rhs)[2]
    side_by_side = writer.reshape(writer.permute(lhs, [1, 0, 2]), [rows, batch * inner])
    product = writer.graph.matmul(side_by_side, writer.reshape(rhs, [batch * inner, columns]))
    return _weighted(writer, bias, product, beta, alpha)


@row("addr.default")
def _addr(
    writer: Writer, bias: Value, lhs: Value, rhs: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias + alpha * the products of each element of lhs with each of rhs."""
    return _weighted(writer, writer.cast(bias, writer.dtype), _crossed(writer, lhs, rhs), beta, alpha)


def _weighted(writer: Writer, bias: Value, product: Value, beta: Number, alpha: Number) -> Value:
    """beta * bias + alpha * product; with a beta of 0 the bias is not read, so that no NaN of it counts."""
    if product.dtype == "i1":
        return _either(writer, bias, product, beta, alpha)
    scaled = _scaled(writer, product, alpha)
    if beta == 0:
        return scaled
    return writer.graph.add(scaled, _scaled(writer, bias, beta))


def _either(writer: Writer, bias: Value, product: Value, beta: Number, alpha: Number) -> Value:
    """The same of truth values: a sum is whether one of them holds."""
    nothing = writer.full(writer.shape, 0, "i1")
    product = product if alpha else nothing
    return writer.graph.or_(product, bias) if beta else product


def _scaled(writer: Writer, value: Value, factor: Number) -> Value:
    return value if factor == 1 else writer.graph.mul(value, writer.full((), factor, value.dtype))


@empty_row(
    *("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default", "vdot.default"),
    *("inner.default", "linalg_matmul.default", "chain_matmul.default", "linalg_multi_dot.default"),
    *("tensordot.default", "einsum.default", "linalg_vecdot.default"),
)
def _empty_product(writer: Writer, *operands: object, **options: object) -> Value:
    """A sum of no products is 0."""
    return writer.full(writer.shape, 0, writer.dtype)


@empty_row("addmm.default", "baddbmm.default", "addmv.default", "addbmm.default")
def _empty_sum(
    writer: Writer, bias: Value | Empty, *operands: object, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias: there are no products."""
    del alpha
    if beta == 0 or isinstance(bias, Empty):
        return writer.full(writer.shape, 0, writer.dtype)
    return writer.expand(_scaled(writer, bias, beta), writer.shape)


# Layers


@row("linear.default")
def _linear(writer: Writer, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x @ weight.T + bias."""
    if weight.rank == 2 and (bias is None or writer.sizes(bias) == writer.sizes(weight)[:1]):
        return writer.graph.linear(x, weight, bias)
    product = writer.graph.linear(x, weight) if weight.rank == 2 else writer.graph.matmul(x, weight)
    return product if bias is None else writer.graph.add(product, bias)


@empty_row("linear.default")
def _empty_linear(writer: Writer, x: object, weight: object, bias: Value | Empty | None = None) -> Value:
    """The bias: there are no products."""
    if not isinstance(bias, Value):
        return writer.full(writer.shape, 0, writer.dtype)
    return writer.expand(bias, writer.shape)


@row("linear_backward.default")
def _linear_backward(
    writer: Writer, x: Value, grad: Value, weight: Value, mask: Sequence[bool]
) -> list[Value | None]:
    """The gradients of a linear layer at operand, weight and bias."""
    graph = writer.graph
    rows = [_as_rows(writer, value) for value in (grad, x)]
    return [
        graph.matmul(grad, weight) if mask[0] else None,
        graph.matmul(rows[0], rows[1], transpose_a=True) if mask[1] else None,
        graph.reduce_sum(rows[0], [0]) if mask[2] else None,
    ]


@row("bilinear.default")
def _bilinear(writer: Writer, lhs: Value, rhs: Value, weight: Value, bias: Value | None = None) -> Value:
    """lhs @ weight[o] @ rhs for each output o, and a bias."""
    product = writer.reshape(
        _bilinear_rows(writer, _as_rows(writer, lhs), _as_rows(writer, rhs), weight), writer.shape
    )
    return product if bias is None else writer.graph.add(product, bias)


def _as_rows(writer: Writer, value: Value) -> Value:
    return writer.reshape(value, [_rows(writer, value), writer.sizes(value)[-1]])


def _bilinear_rows(writer: Writer, lhs: Value, rhs: Value, weight: Value) -> Value:
    """[rows, outputs]: one product with the weight, then sums along the right operand."""
    outputs, left, right = writer.sizes(weight)
    rows = writer.sizes(lhs)[0]
    beside = writer.reshape(writer.permute(weight, [1, 0, 2]), [left, outputs * right])
    product = writer.reshape(writer.graph.matmul(lhs, beside), [rows, outputs, right])
    return writer.reshape(writer.graph.matmul(product, writer.insert(rhs, 2)), [rows, outputs])


@row("_trilinear.default")
def _trilinear(
    writer: Writer,
    first: Value,
    second: Value,
    third: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    axes: Sequence[int],
    unroll: int = 1,
) -> Value:
    """The sum along some axes of a product of three, each with new dimensions of size 1 at given axes."""
    del unroll
    if (list(expand1), list(expand2), list(expand3), sorted(axes)) == ([1, 3], [0], [1, 2], [2, 3]):
        return _bilinear_rows(writer, first, third, second)
    spread = [
        _with_ones(writer, writer.widened(value), axes)
        for value, axes in ((first, expand1), (second, expand2), (third, expand3))
    ]
    product = spread[0] * spread[1] * spread[2]
    summed = writer.graph.reduce_sum(product, writer.axes(axes, product.rank)) if axes else product
    return writer.result(summed)


def _with_ones(writer: Writer, value: Value, axes: Sequence[int]) -> Value:
    for axis in axes:
        value = writer.insert(value, axis)
    return value


# Sums over named dimensions


@row("tensordot.default")
def _tensordot(
    writer: Writer, lhs: Value, rhs: Value, lhs_axes: Sequence[int], rhs_axes: Sequence[int]
) -> Value:
    """The sums of products along pairs of dimensions."""
    left = [writer.axis(axis, lhs.rank) for axis in lhs_axes]
    right = [writer.axis(axis, rhs.rank) for axis in rhs_axes]
    for one, other in zip(left, right, strict=True):
        lhs, rhs = (
            _summed_for_one(writer, lhs, one, rhs, other),
            _summed_for_one(writer, rhs, other, lhs, one),
        )
    lhs = _matrix(writer, lhs, [axis for axis in range(lhs.rank) if axis not in left], left)
    rhs = _matrix(writer, rhs, right, [axis for axis in range(rhs.rank) if axis not in right])
    return writer.reshape(writer.graph.matmul(lhs, rhs), writer.shape)


def _summed_for_one(writer: Writer, value: Value, axis: int, other: Value, its_axis: int) -> Value:
    """The sum along an axis that meets a size of 1, which stands for all of it."""
    if writer.sizes(other)[its_axis] != 1 or writer.sizes(value)[axis] == 1:
        return value
    summed = writer.graph.reduce_sum(writer.widened(value), [axis], keepdims=True)
    return writer.cast(summed, value.dtype)


def _matrix(writer: Writer, value: Value, rows: Sequence[int], columns: Sequence[int]) -> Value:
    """A matrix of the dimensions that are its rows by those that are its columns."""
    sizes = writer.sizes(value)
    counts = [math.prod(sizes[axis] for axis in axes) for axes in (rows, columns)]
    return writer.reshape(writer.permute(value, [*rows, *columns]), counts)
