"""Sets of bytes that strides describe: whether two of them meet, and how one falls apart into rows.

Parts of one buffer that are written side by side, such as the columns of two products, have ranges that interleave and
no byte in common. Both questions are answered by looking at addresses modulo a stride: the row length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_Dims = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StridedBytes:
    """Runs of neighbouring bytes.

    Args:
        start: The lowest byte.
        dims: How the runs repeat: how often and how many bytes apart, the widest step first.
        run: Bytes of each.
    """

    start: int
    dims: _Dims
    run: int
    _rows: dict[int, Rows | None] = field(
        default_factory=dict[int, "Rows | None"], init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, lowest: int, shape: Sequence[int], strides: Sequence[int], width: int) -> StridedBytes:
        """Elements of `width` bytes from `lowest` on; strides count elements, of either sign."""
        if 0 in shape:
            return cls(lowest, (), 0)
        steps = ((size, abs(step) * width) for size, step in zip(shape, strides, strict=True))
        repeated = [(size, step) for size, step in steps if size != 1 and step]
        return cls(lowest, *_joined(repeated, width))

    @property
    def end(self) -> int:
        """Past the highest byte."""
        return self.start + sum((size - 1) * step for size, step in self.dims) + self.run

    def holds(self, other: StridedBytes) -> bool:
        """Whether this is one run, and all of the other lies in it."""
        return not self.dims and self.start <= other.start and other.end <= self.end

    def meets(self, other: StridedBytes) -> bool:
        """Whether the two may have a byte in common; no means they have none."""
        if not self.run or not other.run or self.end <= other.start or other.end <= self.start:
            return False
        return not any(self._is_beside(other, step) for _, step in (*self.dims, *other.dims))

    def _is_beside(self, other: StridedBytes, length: int) -> bool:
        mine, its = self.rows(length), other.rows(length)
        if mine is None or its is None:
            return False
        return mine.columns.end <= its.columns.start or its.columns.end <= mine.columns.start

    def rows(self, length: int) -> Rows | None:
        """The same as columns of rows of `length` bytes; None if they go on past the end of a row."""
        if length not in self._rows:
            self._rows[length] = self._split(length)
        return self._rows[length]

    def _split(self, length: int) -> Rows | None:
        first, column = divmod(self.start, length)
        if not self.dims and not column and self.run % length == 0:
            count = self.run // length
            return Rows(first, ((count, 1),) if count > 1 else (), StridedBytes(0, (), length))
        inner = StridedBytes(column, tuple(dim for dim in self.dims if dim[1] % length), self.run)
        if inner.end > length:
            return None
        outer = [(size, step // length) for size, step in self.dims if not step % length]
        dims, count = _joined(outer, 1)
        return Rows(first, (*dims, (count, 1)) if count > 1 else dims, inner)


@dataclass(frozen=True)
class Rows:
    """Columns of rows that are all alike: the first row, how rows repeat (counted in rows), and the bytes of one."""

    first: int
    dims: _Dims
    columns: StridedBytes

    def is_alike(self, other: Rows) -> bool:
        """Whether both are columns of the same rows."""
        return (self.first, self.dims) == (other.first, other.dims)


def _joined(dims: Sequence[tuple[int, int]], run: int) -> tuple[_Dims, int]:
    """The dims without those that only make the run longer, and that; dims that follow each other evenly are one."""
    kept: list[tuple[int, int]] = []
    for size, step in sorted(dims, key=lambda dim: dim[1]):
        if not kept and step == run:
            run *= size
        elif kept and step == kept[-1][0] * kept[-1][1]:
            kept[-1] = (size * kept[-1][0], kept[-1][1])
        else:
            kept.append((size, step))
    return tuple(reversed(kept)), run
