"""Random convolutions: any sizes, strides, padding, dilations and groups, operands and results in any order in memory.

What lies channels-last is given so, and seen through a transposition: kernels read and write it where it lies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from aicf.frontends.builder import Graph, Value


@dataclass(frozen=True)
class Convolution:
    """One convolution and what follows it.

    Args:
        batch, channels, outputs, groups: Images, channels of operand and result, and their groups.
        sizes, taps, strides, dilations, low, high: Along each dimension.
        operand_last, weight_last, result_last: Whether these lie channels-last.
        weight_across: Whether the weight lies the other way round: outputs innermost, channels outermost.
        is_param: Whether the weight is a parameter, which may be packed ahead; else it is given at every run.
        after: What follows: a name of `AFTER`.
    """

    batch: int
    channels: int
    outputs: int
    groups: int
    sizes: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    operand_last: bool = False
    weight_last: bool = False
    result_last: bool = False
    is_param: bool = True
    after: str = "nothing"
    weight_across: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """Of the result, along each dimension."""
        each = zip(self.rooms, self.strides, strict=True)
        return tuple(room // step + 1 for room, step in each)

    @property
    def rooms(self) -> tuple[int, ...]:
        """Elements by which a window may move."""
        padded = (n + a + b for n, a, b in zip(self.sizes, self.low, self.high, strict=True))
        reaches = ((k - 1) * apart + 1 for k, apart in zip(self.taps, self.dilations, strict=True))
        return tuple(n - reach for n, reach in zip(padded, reaches, strict=True))

    @property
    def products(self) -> int:
        """Multiplications."""
        return (
            self.batch * self.outputs * prod(self.counts) * (self.channels // self.groups) * prod(self.taps)
        )


def _bias(g: Graph, y: Value, name: str, last: bool) -> Value:
    ones = [1] * (len(y.shape) - 2)
    return g.add(y, g.reshape(g.param(f"b_{name}", (y.shape[1],), y.dtype), (y.shape[1], *ones)))


def _residual(g: Graph, y: Value, name: str, last: bool) -> Value:
    return g.relu(g.add(_bias(g, y, name, last), given(g, f"r_{name}", y.shape, y.dtype, last)))


AFTER: dict[str, Callable[[Graph, Value, str, bool], Value]] = {
    "nothing": lambda g, y, name, last: y,
    "bias": _bias,
    "relu": lambda g, y, name, last: g.relu(_bias(g, y, name, last)),
    "gelu": lambda g, y, name, last: g.gelu(_bias(g, y, name, last)),
    "silu": lambda g, y, name, last: g.silu(y),
    "residual": _residual,
    "wider": lambda g, y, name, last: g.cast(_bias(g, y, name, last), "f32"),
}
"""What follows a convolution, by name: the last argument is whether results lie channels-last."""


def given(g: Graph, name: str, shape: Sequence[int], dtype: str, last: bool, is_param: bool = False) -> Value:
    """An operand of this shape, that lies channels-last or row-major."""
    make = g.param if is_param else g.input
    if not last:
        return make(name, tuple(shape), dtype)
    rank = len(shape) - 2
    turned = make(name, (shape[0], *shape[2:], shape[1]), dtype)
    return g.transpose(turned, (0, rank + 1, *range(1, rank + 1)))


def given_across(
    g: Graph, name: str, shape: Sequence[int], dtype: str, last: bool, is_param: bool = False
) -> Value:
    """A weight of this shape whose outputs are innermost, after channels and windows; or windows are outermost, then
    channels."""
    make = g.param if is_param else g.input
    outputs, channels, *taps = shape
    rank = len(taps)
    if last:
        turned = make(name, (*taps, channels, outputs), dtype)
        return g.transpose(turned, (rank + 1, rank, *range(rank)))
    turned = make(name, (channels, *taps, outputs), dtype)
    return g.transpose(turned, (rank + 1, 0, *range(1, rank + 1)))


def drawn(source: random.Random, most_products: int) -> Convolution:
    """A random one, of no more than so many multiplications."""
    while True:
        found = _drawn(source)
        if min(found.rooms) >= 0 and found.products <= most_products:
            return found


def _drawn(source: random.Random) -> Convolution:
    rank = source.choice((1, 2, 2, 2, 2, 3))
    most = {1: 90, 2: 20, 3: 8}[rank]

    def each(*values: int) -> tuple[int, ...]:
        return tuple(source.choice(values) for _ in range(rank))

    groups = source.choice((1, 1, 1, 1, 2, 3, 8))
    channels = source.choice((1, 2, 3, 4, 5, 8, 12, 16, 33, 64) if groups == 1 else (2, 2, 4, 8, 13))
    outputs = source.choice((1, 3, 8, 16, 24, 37, 64, 72, 136) if groups == 1 else (1, 2, 4, 8, 20))
    return Convolution(
        source.choice((1, 1, 2, 3)),
        groups * channels,
        groups * outputs,
        groups,
        tuple(source.randint(1, most) for _ in range(rank)),
        each(1, 1, 2, 3, 3, 4, 5, 7),
        each(1, 1, 2, 3),
        each(1, 1, 1, 2, 3),
        each(0, 0, 1, 1, 2, 4),
        each(0, 0, 1, 1, 2, 4),
        *(source.random() < 0.5 for _ in range(3)),
        is_param=source.random() < 0.7,
        after=source.choice(tuple(AFTER)),
    )


def drawn_channels_last(source: random.Random) -> Convolution:
    """A random one of channels-last operand and result whose channels are whole 16 bytes of halves, small enough for a
    reference in float64."""
    rank = source.choice((1, 2, 2, 2, 2, 3))
    most = {1: 90, 2: 17, 3: 7}[rank]
    while True:
        taps = tuple(source.choice((1, 1, 2, 3, 3, 4, 5)) for _ in range(rank))
        sizes = tuple(source.randint(1, most) for _ in range(rank))
        strides = tuple(source.choice((1, 1, 2, 3)) for _ in range(rank))
        dilations = tuple(source.choice((1, 1, 1, 2, 3)) for _ in range(rank))
        low, high = (tuple(source.choice((0, 0, 1, 1, 2, 4)) for _ in range(rank)) for _ in range(2))
        found = Convolution(
            1, 8, 8, 1, sizes, taps, strides, dilations, low, high, operand_last=True, result_last=True
        )
        if min(found.rooms) >= 0:
            break
    channels = 8 * source.choice((1, 2, 3, 5, 8, 9, 16))
    outputs = source.choice((8, 16, 24, 64, 72, 128, 200, 37))
    batch = source.choice((1, 1, 2, 3))
    after = source.choice(("nothing", "bias", "relu", "gelu", "silu", "residual"))
    return replace(found, batch=batch, channels=channels, outputs=outputs, after=after)


def drawn_depthwise(source: random.Random, most_products: int) -> Convolution:
    """A random one with one input channel a group, of no more than so many multiplications."""
    while True:
        base = _drawn(source)
        channels = source.choice((1, 2, 3, 5, 8, 12, 16, 24, 40, 64))
        found = replace(
            base,
            channels=channels,
            groups=channels,
            outputs=channels * source.choice((1, 1, 1, 1, 2, 3, 4)),
            taps=tuple(source.choice((1, 2, 3, 3, 3, 5, 7, 11)) for _ in base.taps),
        )
        if min(found.rooms) >= 0 and found.products <= most_products:
            return found


def depthwise_layer(
    batch: int,
    channels: int,
    size: int,
    taps: int = 3,
    stride: int = 1,
    *,
    rank: int = 2,
    last: bool = True,
    multiplier: int = 1,
    after: str = "relu",
) -> Convolution:
    """A layer of a network of depthwise convolutions, all row-major or all channels-last but its weight."""
    low = (taps // 2,) * rank
    sizes, each, steps, ones = ((value,) * rank for value in (size, taps, stride, 1))
    return Convolution(
        batch,
        channels,
        channels * multiplier,
        channels,
        sizes,
        each,
        steps,
        ones,
        low,
        low,
        operand_last=last,
        result_last=last,
        after=after,
    )


def image_layer(
    batch: int,
    channels: int,
    outputs: int,
    size: int,
    taps: int = 3,
    stride: int = 1,
    *,
    last: bool = True,
    after: str = "residual",
) -> Convolution:
    """A layer of a residual network over square images, all row-major or all channels-last but its weight."""
    low = (taps // 2,) * 2
    return Convolution(
        batch,
        channels,
        outputs,
        1,
        (size,) * 2,
        (taps,) * 2,
        (stride,) * 2,
        (1, 1),
        low,
        low,
        operand_last=last,
        result_last=last,
        after=after,
    )


def add(g: Graph, made: Convolution, name: str, dtype: str) -> None:
    """Adds a convolution and what follows it to a program, with operands of its own."""
    x = given(g, f"x_{name}", (made.batch, made.channels, *made.sizes), dtype, made.operand_last)
    shape = (made.outputs, made.channels // made.groups, *made.taps)
    weight = given_across if made.weight_across else given
    w = weight(g, f"w_{name}", shape, dtype, made.weight_last, made.is_param)
    y = g.conv(
        x,
        w,
        strides=made.strides,
        dilations=made.dilations,
        low=made.low,
        high=made.high,
        groups=made.groups,
        name=f"conv_{name}",
    )
    y = AFTER[made.after](g, y, name, made.result_last)
    rank = len(made.sizes)
    g.output(g.transpose(y, (0, *range(2, 2 + rank), 1)) if made.result_last else y, f"y_{name}")


def convolutions(dtype: str, made: Sequence[Convolution]) -> Graph:
    """A program of convolutions."""
    g = Graph("convolutions")
    for number, each in enumerate(made):
        add(g, each, f"c{number}", dtype)
    return g


def random_convolutions(dtype: str, seed: int, count: int, most_products: int = 1 << 24) -> Graph:
    """A program of random convolutions."""
    source = random.Random(seed)
    return convolutions(dtype, [drawn(source, most_products) for _ in range(count)])


def flattened(dtype: str, groups: int = 1) -> Graph:
    """A window as large as the image: what follows is of two dimensions. The operand lies channels-last."""
    g = Graph("flattened")
    x = given(g, "x", (3, 16, 4, 4), dtype, True)
    y = g.conv(x, g.param("w", (24, 16 // groups, 4, 4), dtype), groups=groups, name="conv")
    g.output(g.relu(g.reshape(y, (3, 24)) + g.param("b", (24,), dtype)), "y")
    return g


def channels_last_convolutions(dtype: str, seed: int, count: int) -> Graph:
    """A program of random convolutions of channels-last memory."""
    source = random.Random(seed)
    return convolutions(dtype, [drawn_channels_last(source) for _ in range(count)])


def depthwise_convolutions(dtype: str, seed: int, count: int, most_products: int = 1 << 22) -> Graph:
    """A program of random depthwise convolutions."""
    source = random.Random(seed)
    return convolutions(dtype, [drawn_depthwise(source, most_products) for _ in range(count)])
