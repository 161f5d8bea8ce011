"""ATen ops that create tensors from sizes and numbers. Uninitialized memory is filled with zeros."""

from __future__ import annotations

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Number, Operand, Writer, empty_row, is_float, row

# One number everywhere

_ZEROS = (
    *(
        "zeros.default",
        "zeros_like.default",
        "new_zeros.default",
        "zero.default",
        "_efficientzerotensor.default",
    ),
    *("empty.memory_format", "empty_like.default", "empty_strided.default", "empty_permuted.default"),
    *("new_empty.default", "new_empty_strided.default"),
)
_ONES = ("ones.default", "ones_like.default", "new_ones.default")


@row(*_ZEROS)
@empty_row("new_zeros.default", "new_empty.default", "new_empty_strided.default")
def _zeros(writer: Writer, *_: object, **named: object) -> Value:
    """Zeros."""
    return writer.full(writer.shape, 0, writer.dtype)


@row(*_ONES)
@empty_row("new_ones.default")
def _ones(writer: Writer, *_: object, **named: object) -> Value:
    """Ones."""
    return writer.full(writer.shape, 1, writer.dtype)


@row("full.default", "full_like.default", "fill.Scalar")
def _full(writer: Writer, like: object, value: Number, **named: object) -> Value:
    """A number everywhere."""
    return writer.full(writer.shape, value, writer.dtype)


@row("new_full.default")
@empty_row("new_full.default")
def _new_full(writer: Writer, like: object, size: object, value: Number, **named: object) -> Value:
    """A number everywhere."""
    return writer.full(writer.shape, value, writer.dtype)


@row("scalar_tensor.default")
def _scalar_tensor(writer: Writer, value: Number, **named: object) -> Value:
    """A number as a tensor."""
    return writer.full((), value, writer.dtype)


@row("fill.Tensor", "copy.default")
def _filled(writer: Writer, x: Value, source: Value, *_: object) -> Value:
    """Another tensor in the shape and the element type of this one."""
    return writer.expand(writer.result(source), writer.shape)


# Sequences

_EXACT = {"f16": 2**11, "bf16": 2**8, "f32": 2**24}
"""Up to here a float type has all whole numbers."""


@row("arange.default")
def _arange(writer: Writer, end: Number, **named: object) -> Value:
    """The whole numbers below the end."""
    return _arange_from(writer, 0, end)


@row("arange.start", "arange.start_step")
def _arange_from(writer: Writer, start: Number, end: Number, step: Number = 1, **named: object) -> Value:
    """start + step * i for each index i."""
    if is_float(writer.dtype):
        dtype = _sequence_type(writer, start, end, step)
        return writer.result(_line(writer.graph, writer.shape[0], start, step, dtype))
    return writer.result(_line(writer.graph, writer.shape[0], int(start), int(step), "i64"))


@row("prims.iota.default")
def _iota(writer: Writer, length: int, *, start: int, step: int, **named: object) -> Value:
    """start + step * i for each index i."""
    return writer.result(_line(writer.graph, length, start, step, "i64"))


def _sequence_type(writer: Writer, start: Number, end: Number, step: Number) -> str:
    """The result's type, or a wider one if that would round intermediate values."""
    whole = all(float(number).is_integer() for number in (start, step))
    bound = _EXACT.get(writer.dtype, 0)
    return writer.dtype if whole and max(abs(start), abs(end)) + abs(step) <= bound else "f64"


def _line(graph: Graph, count: int, start: Number, step: Number, dtype: str) -> Value:
    numbers = graph.iota([count], 0, dtype)
    if step != 1:
        numbers = graph.mul(numbers, step)
    return numbers if start == 0 else graph.add(numbers, start)


@row("linspace.default", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def _linspace(writer: Writer, start: Operand, end: Operand, steps: int, **named: object) -> Value:
    """Numbers from start to end, all as far apart; of whole numbers what is left without decimals."""
    return writer.result(_spaced(writer, start, end, steps))


@row("logspace.default", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def _logspace(
    writer: Writer, start: Operand, end: Operand, steps: int, base: float = 10.0, **_: object
) -> Value:
    """Powers of a base, their exponents from start to end and all as far apart."""
    return writer.result(writer.graph.pow(base, _spaced(writer, start, end, steps)))


def _spaced(writer: Writer, start: Operand, end: Operand, steps: int) -> Value:
    """In f64, from that end which is nearer, as PyTorch counts."""
    graph = writer.graph
    # Of whole numbers the bounds are whole too.
    bounds = (writer.tensor(bound, "f64" if is_float(writer.dtype) else "i64") for bound in (start, end))
    first, last = (writer.cast(bound, "f64") for bound in bounds)
    index = graph.iota([steps], 0, "f64")
    if steps == 1:
        return writer.expand(first, [1])
    step = graph.div(graph.sub(last, first), float(steps - 1))
    rising = graph.add(graph.mul(index, step), first)
    falling = graph.sub(last, graph.mul(graph.sub(float(steps - 1), index), step))
    return graph.select(graph.lt(index, float(steps // 2)), rising, falling)


# Matrices


@row("eye.default", "eye.m")
def _eye(writer: Writer, *_: object, **named: object) -> Value:
    """Ones on the diagonal, zeros beside it."""
    graph, shape = writer.graph, list(writer.shape)
    return writer.result(graph.eq(graph.iota(shape, 0, "i32"), graph.iota(shape, 1, "i32")))


@row("tril_indices.default")
def _tril_indices(writer: Writer, rows: int, columns: int, offset: int = 0, **named: object) -> Value:
    """Row and column of each element on and below a diagonal."""
    graph = writer.graph
    number = graph.iota([rows], 0, "i64")
    lengths = _between(graph, graph.add(number, offset + 1), columns)
    return _indices(writer, lengths, graph.mul(number, 0))


@row("triu_indices.default")
def _triu_indices(writer: Writer, rows: int, columns: int, offset: int = 0, **named: object) -> Value:
    """Row and column of each element on and above a diagonal."""
    graph = writer.graph
    firsts = _between(graph, graph.add(graph.iota([rows], 0, "i64"), offset), columns)
    return _indices(writer, graph.sub(columns, firsts), firsts)


def _between(graph: Graph, x: Value, most: int) -> Value:
    return graph.min(graph.max(x, 0), most)


def _indices(writer: Writer, lengths: Value, firsts: Value) -> Value:
    """Where the elements lie of rows that begin at certain columns and have certain lengths."""
    graph, count = writer.graph, writer.shape[1]
    ends = graph.cumsum(lengths, 0)
    number = graph.iota([count], 0, "i64")
    passed = graph.ge(writer.reshape(number, [count, 1]), ends)
    row_of = graph.reduce_sum(graph.cast(passed, "i64"), [1])
    moved = graph.add(graph.sub(lengths, ends), firsts)
    column_of = graph.add(number, graph.gather(moved, row_of, 0))
    return writer.result(graph.concat([writer.insert(row_of, 0), writer.insert(column_of, 0)], 0))
