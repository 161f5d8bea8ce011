"""PyTorch's indices of several dimensions: tensors of numbers or truth values, and None."""

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
    """Whether an index is a mask: of truth values, or of u8 in old programs."""
    return is_bool(value.dtype) or value.dtype == "u8"


@dataclass(frozen=True)
class Indexed:
    """Some dimensions of a tensor with indices for them, which broadcast together.

    Args:
        axes: The dimensions that have indices, in rising order.
        others: The dimensions that have none.
        sizes: Of the dimensions that have indices.
        numbers: Row-major numbers of the positions in those dimensions; a negative one counts from the end.
        front: How many of the others come before the dimensions of the indices in what is read.
    """

    axes: Sequence[int]
    others: Sequence[int]
    sizes: Sequence[int]
    numbers: Value
    front: int

    @property
    def count(self) -> int:
        """The number of positions in the dimensions that have indices."""
        return math.prod(self.sizes)


def indexed(writer: Writer, x: Value, indices: Sequence[Value | None]) -> Indexed | None:
    """The indices of a tensor, which must be numbers; None if no dimension is indexed."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if not axes:
        return None
    shape = writer.sizes(x)
    sizes = [shape[axis] for axis in axes]
    numbers = [as_indices(writer, index) for index in indices if index is not None]
    # As in NumPy, the dimensions of the indices replace the indexed ones if those are adjacent; else they come first.
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    others = [axis for axis in range(x.rank) if axis not in axes]
    joint = numbers[0] if len(numbers) == 1 else _row_major(writer, numbers, sizes)
    return Indexed(axes, others, sizes, joint, axes[0] if is_together else 0)


def _row_major(writer: Writer, indices: Sequence[Value], sizes: Sequence[int]) -> Value:
    graph = writer.graph
    total: Value | None = None
    for index, size in zip(indices, sizes, strict=True):
        index = writer.cast(index, "i64")
        position = graph.select(graph.lt(index, 0), graph.add(index, size), index)
        total = position if total is None else graph.add(graph.mul(total, size), position)
    assert total is not None
    return total


def refuse_masks(writer: Writer, indices: Sequence[Value | None]) -> None:
    """Raises UnsupportedOp for indices that are truth values: how many elements they take is not known."""
    if any(index is not None and is_mask(index) for index in indices):
        writer.unsupported(
            "an index of truth values, which takes as many elements as hold",
            "use torch.where with the mask, or indices that are numbers",
        )
