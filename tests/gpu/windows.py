"""Random convolutions of channels-last memory, a dozen in a program, and a few of fixed sizes.

Operands are given channels-last and seen through a transposition, so that kernels read them where they lie; so are
results. Channels are whole 16 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from aicf.frontends.builder import Graph, Value

EACH = 12
"""Convolutions in a program."""


@dataclass(frozen=True)
class Windows:
    """One convolution.

    Args:
        batch, channels, outputs: Images, and channels of operand and result.
        sizes, taps, strides, dilations, low, high: Along each dimension.
        after: What follows it: a name of `AFTER`.
    """

    batch: int
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    after: str


def _plain(g: Graph, y: Value, name: str) -> Value:
    return y


def _bias(g: Graph, y: Value, name: str) -> Value:
    rank = len(y.shape) - 2
    return g.add(y, g.reshape(g.param(f"b_{name}", (y.shape[1],), y.dtype), (y.shape[1], *[1] * rank)))


def _residual(g: Graph, y: Value, name: str) -> Value:
    """As the end of a block of a residual network; the other operand is channels-last too."""
    return g.relu(g.add(_bias(g, y, name), _channels_last(g, f"r_{name}", y.shape, y.dtype)))


AFTER: dict[str, Callable[[Graph, Value, str], Value]] = {
    "nothing": _plain,
    "bias": _bias,
    "relu": lambda g, y, name: g.relu(_bias(g, y, name)),
    "gelu": lambda g, y, name: g.gelu(_bias(g, y, name)),
    "silu": lambda g, y, name: g.silu(y),
    "residual": _residual,
}
"""What follows a convolution, by name."""


def drawn(source: random.Random) -> Windows:
    """A random one, small enough for a reference in float64."""
    rank = source.choice((1, 2, 2, 2, 2, 3))
    most = {1: 90, 2: 17, 3: 7}[rank]
    while True:
        taps = tuple(source.choice((1, 1, 2, 3, 3, 4, 5)) for _ in range(rank))
        sizes = tuple(source.randint(1, most) for _ in range(rank))
        strides = tuple(source.choice((1, 1, 2, 3)) for _ in range(rank))
        dilations = tuple(source.choice((1, 1, 1, 2, 3)) for _ in range(rank))
        low, high = (tuple(source.choice((0, 0, 1, 1, 2, 4)) for _ in range(rank)) for _ in range(2))
        reach = [(k - 1) * apart + 1 for k, apart in zip(taps, dilations, strict=True)]
        rooms = [n + a + b - r for n, a, b, r in zip(sizes, low, high, reach, strict=True)]
        if min(rooms) >= 0:
            break
    channels = 8 * source.choice((1, 2, 3, 5, 8, 9, 16))
    outputs = source.choice((8, 16, 24, 64, 72, 128, 200, 37))
    batch, after = source.choice((1, 1, 2, 3)), source.choice(tuple(AFTER))
    return Windows(batch, channels, outputs, sizes, taps, strides, dilations, low, high, after)


def random_windows(dtype: str, seed: int) -> Graph:
    """A program of random convolutions."""
    source, g = random.Random(seed), Graph("windows")
    for number in range(EACH):
        add(g, drawn(source), f"c{number}", dtype)
    return g


def fixed_windows(dtype: str, windows: Windows) -> Graph:
    """A program of one convolution."""
    g = Graph("windows")
    add(g, windows, "c0", dtype)
    return g


def layer(
    batch: int,
    channels: int,
    outputs: int,
    size: int,
    taps: int = 3,
    stride: int = 1,
    after: str = "residual",
) -> Windows:
    """A layer of a network over square images, padded so that the windows are centred."""
    low = (taps // 2,) * 2
    return Windows(batch, channels, outputs, (size,) * 2, (taps,) * 2, (stride,) * 2, (1, 1), low, low, after)


def add(g: Graph, windows: Windows, name: str, dtype: str) -> None:
    """Adds a convolution and what follows it to a program, with operands of its own."""
    x = _channels_last(g, f"x_{name}", (windows.batch, windows.channels, *windows.sizes), dtype)
    w = g.param(f"w_{name}", (windows.outputs, windows.channels, *windows.taps), dtype)
    y = g.conv(
        x,
        w,
        strides=windows.strides,
        dilations=windows.dilations,
        low=windows.low,
        high=windows.high,
        name=f"conv_{name}",
    )
    rank = len(windows.sizes)
    g.output(g.transpose(AFTER[windows.after](g, y, name), (0, *range(2, 2 + rank), 1)), f"y_{name}")


def _channels_last(g: Graph, name: str, shape: tuple[int, ...], dtype: str) -> Value:
    """An input of this shape that lies channels-last."""
    batch, channels, *sizes = shape
    rank = len(sizes)
    return g.transpose(g.input(name, (batch, *sizes, channels), dtype), (0, rank + 1, *range(1, rank + 1)))
