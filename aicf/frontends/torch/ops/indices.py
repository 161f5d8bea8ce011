"""Indices as PyTorch takes them for several dimensions at once: tensors of numbers or truth values, and gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, is_bool


def as_indices(writer: Writer, value: Value) -> Value:
    """Whole numbers as i64, unless they are of a type that indices may have."""
    return value if value.dtype in ("i32", "i64") else writer.cast(value, "i64")


def is_mask(value: Value) -> bool:
    """Whether an index says of each element if it is taken; u8 is what such masks were once made of."""
    return is_bool(value.dtype) or value.dtype == "u8"


@dataclass(frozen=True)
class Indexed:
    """Some dimensions of a tensor with indices for them, which broadcast together.

    Args:
        axes: The dimensions that have indices, in rising order.
        others: The dimensions that have none.
        sizes: Of the dimensions that have indices.
        numbers: Row-major numbers of the places in those dimensions; a negative one counts from the end.
        front: How many of the others come before the dimensions of the indices in what is read.
    """

    axes: Sequence[int]
    others: Sequence[int]
    sizes: Sequence[int]
    numbers: Value
    front: int

    @property
    def count(self) -> int:
        """The number of places in the dimensions that have indices."""
        return math.prod(self.sizes)


def indexed(writer: Writer, x: Value, indices: Sequence[Value | None]) -> Indexed | None:
    """The indices of a tensor, which are numbers; none if there are only gaps."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if not axes:
        return None
    shape = writer.sizes(x)
    sizes = [shape[axis] for axis in axes]
    given = [as_indices(writer, index) for index in indices if index is not None]
    # As in NumPy the dimensions of the indices stand where the indexed ones were, if those are neighbours, else first.
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    others = [axis for axis in range(x.rank) if axis not in axes]
    numbers = given[0] if len(given) == 1 else _numbers(writer, given, sizes)
    return Indexed(axes, others, sizes, numbers, axes[0] if is_together else 0)


def _numbers(writer: Writer, given: Sequence[Value], sizes: Sequence[int]) -> Value:
    graph = writer.graph
    total: Value | None = None
    for index, size in zip(given, sizes, strict=True):
        index = writer.cast(index, "i64")
        place = graph.select(graph.lt(index, 0), graph.add(index, size), index)
        total = place if total is None else graph.add(graph.mul(total, size), place)
    assert total is not None
    return total


def refuse_masks(writer: Writer, indices: Sequence[Value | None]) -> None:
    """Raises UnsupportedOp for indices that are truth values: how many elements they take is not known."""
    if any(index is not None and is_mask(index) for index in indices):
        writer.unsupported(
            "an index of truth values, which takes as many elements as hold",
            "use torch.where with the mask, or indices that are numbers",
        )
