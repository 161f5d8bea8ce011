"""Einstein sums: products of several tensors, summed over the dimensions that are not in the result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


@dataclass(frozen=True)
class _Named:
    """A tensor with a name for each dimension, no two alike."""

    value: Value
    names: tuple[str, ...]


@row("einsum.default")
def _einsum(writer: Writer, equation: str, operands: Sequence[Value], **path: object) -> Value:
    """The sum that the equation says, as products of two tensors each, from the left."""
    inputs, output = _parsed(equation.replace(" ", ""), [operand.rank for operand in operands])
    named = [_plain(writer, value, names) for value, names in zip(operands, inputs, strict=True)]
    joined = named[0]
    for number, other in enumerate(named[1:], 1):
        needed = {*output, *(name for later in named[number + 1 :] for name in later.names)}
        joined = _product(writer, _summed(writer, joined, needed | set(other.names)), other, needed)
    joined = _summed(writer, joined, set(output))
    missing = [name for name in output if name not in joined.names]
    value = writer.reshape(joined.value, [*writer.sizes(joined.value), *[1] * len(missing)])
    names = [*joined.names, *missing]
    return writer.expand(writer.permute(value, [names.index(name) for name in output]), writer.shape)


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The names of the dimensions of all operands and of the result; dots are `.0`, `.1`, from the right."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    inputs = [_names(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    dots = max((sum(len(name) > 1 for name in names) for names in inputs), default=0)
    dotted = tuple(f".{number}" for number in range(dots - 1, -1, -1))
    if arrow:
        before, dot, after = right.partition("...")
        return inputs, (*before, *(dotted if dot else ()), *after)
    counts = Counter(name for names in inputs for name in names if len(name) == 1)
    once = sorted(name for name, count in counts.items() if count == 1)
    return inputs, (*dotted, *once)


def _names(term: str, rank: int) -> tuple[str, ...]:
    before, dot, after = term.partition("...")
    more = rank - len(before) - len(after) if dot else 0
    return (*before, *(f".{number}" for number in range(more - 1, -1, -1)), *after)


def _plain(writer: Writer, value: Value, names: Sequence[str]) -> _Named:
    """The diagonal of dimensions with one name."""
    kept = list(names)
    while repeated := [name for name, count in Counter(kept).items() if count > 1]:
        first = kept.index(repeated[0])
        second = kept.index(repeated[0], first + 1)
        value = _diagonal(writer, value, first, second)
        del kept[second], kept[first]
        kept.append(repeated[0])
    return _Named(value, tuple(kept))


def _diagonal(writer: Writer, value: Value, first: int, second: int) -> Value:
    """The elements with one index in two dimensions of one size, along a new last dimension."""
    rest = [axis for axis in range(value.rank) if axis not in (first, second)]
    turned = writer.permute(value, [*rest, first, second])
    *sizes, count, _ = writer.sizes(turned)
    flat = writer.reshape(turned, [*sizes, count * count])
    return writer.part(flat, len(sizes), 0, count * count, count + 1)


def _summed(writer: Writer, named: _Named, needed: set[str]) -> _Named:
    """Without the dimensions that nothing else names."""
    axes = [axis for axis, name in enumerate(named.names) if name not in needed]
    if not axes:
        return named
    total = writer.graph.reduce_sum(writer.widened(named.value), axes)
    names = tuple(name for name in named.names if name in needed)
    return _Named(writer.cast(total, named.value.dtype), names)


def _product(writer: Writer, lhs: _Named, rhs: _Named, needed: set[str]) -> _Named:
    """One matrix product: dimensions of both are its batch if they are needed, else they are summed."""
    rhs = _summed(writer, rhs, needed | set(lhs.names))
    lhs, rhs = _without_ones(writer, lhs, rhs), _without_ones(writer, rhs, lhs)
    lhs, rhs = _summed(writer, lhs, needed | set(rhs.names)), _summed(writer, rhs, needed | set(lhs.names))
    both = [name for name in lhs.names if name in rhs.names]
    batch = [name for name in both if name in needed]
    inner = [name for name in both if name not in needed]
    rows = [name for name in lhs.names if name not in both]
    columns = [name for name in rhs.names if name not in both]
    left, right = _arranged(writer, lhs, batch, rows, inner), _arranged(writer, rhs, batch, inner, columns)
    product = writer.graph.matmul(left, right)
    sizes = dict(
        zip((*lhs.names, *rhs.names), (*writer.sizes(lhs.value), *writer.sizes(rhs.value)), strict=True)
    )
    names = (*batch, *rows, *columns)
    return _Named(writer.reshape(product, [sizes[name] for name in names]), names)


def _without_ones(writer: Writer, named: _Named, other: _Named) -> _Named:
    """Without dimensions of size 1 that the other has too: they stand for any size."""
    sizes = writer.sizes(named.value)
    kept = [axis for axis, name in enumerate(named.names) if sizes[axis] != 1 or name not in other.names]
    value = writer.reshape(named.value, [sizes[axis] for axis in kept])
    return _Named(value, tuple(named.names[axis] for axis in kept))


def _arranged(writer: Writer, named: _Named, *groups: Sequence[str]) -> Value:
    """The dimensions in groups: the batch as it is, then two groups as one dimension each."""
    order = [named.names.index(name) for group in groups for name in group]
    turned = writer.permute(named.value, order)
    batch, *matrix = groups
    sizes = dict(zip(named.names, writer.sizes(named.value), strict=True))
    joined = [math.prod(sizes[name] for name in group) for group in matrix]
    return writer.reshape(turned, [*(sizes[name] for name in batch), *joined])
