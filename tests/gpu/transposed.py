"""Transposed convolutions with operands that are computed, in either order of memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from random import Random

from aicf.frontends.builder import Graph, Value

TYPES = ("bf16", "f16")


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution along one to three dimensions: sizes of the operand, windows, and what is cut off."""

    dtype: str
    batch: int
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[int, ...]
    extra: tuple[int, ...]
    is_last: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Sizes of the result."""
        lists = zip(self.sizes, self.strides, self.taps, self.low, self.extra, strict=True)
        return tuple((size - 1) * stride + tap - 2 * low + extra for size, stride, tap, low, extra in lists)

    def graph(self) -> Graph:
        """With operands that are computed, in row-major or channels-last memory."""
        g = Graph("transposed")
        x = self._input(g, "x", (self.batch, self.channels, *self.sizes))
        weight = self._input(g, "weight", (self.channels, self.outputs, *self.taps))
        y = g.conv_transpose(x, weight, strides=self.strides, low=self.low, extra=self.extra, name="up")
        g.output(g.transpose(y, inner(y.rank)) if self.is_last else y, "y")
        return g

    def _input(self, g: Graph, name: str, shape: tuple[int, ...]) -> Value:
        if not self.is_last:
            return g.neg(g.input(name, shape, self.dtype))
        order = inner(len(shape))
        value = g.neg(g.input(name, [shape[dim] for dim in order], self.dtype))
        return g.transpose(value, [order.index(dim) for dim in range(len(shape))])


def inner(rank: int) -> list[int]:
    """The order of dimensions that puts channels last."""
    return [0, *range(2, rank), 1]


def drawn(seed: int, *, bulk: bool) -> Transposed:
    """Any windows; with `bulk` channels-last, of whole vectors of channels, and with phases of one size."""
    random = Random(seed)
    rank = (2, 1, 2, 3)[seed % 4]
    while True:
        sizes = tuple(random.choice((2, 3, 5) if rank < 3 else (1, 2)) for _ in range(rank))
        strides = tuple(random.choice((1, 2, 2, 3)) for _ in range(rank))
        taps = tuple(stride + random.choice((0, 1, 1, 2)) for stride in strides)
        low = tuple(random.randrange(tap) for tap in taps)
        extra = tuple(random.randrange(stride + 1) for stride in strides)
        batch, channels, outputs = (
            random.choice((1, 2)),
            random.choice((8, 24, 72)),
            random.choice((8, 24, 72)),
        )
        if not bulk:
            channels -= random.choice((0, 1))
        is_last = bulk or random.random() < 0.5
        dtype = random.choice(TYPES)
        found = Transposed(dtype, batch, channels, outputs, sizes, taps, strides, low, extra, is_last)
        if max(strides) == 1 or min(found.counts) < 1 or prod(strides) > 16:
            continue
        pairs = zip(found.counts, strides, strict=True)
        if not bulk or all(count % stride == 0 for count, stride in pairs):
            return found
