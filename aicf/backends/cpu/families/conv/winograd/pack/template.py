"""Code that transforms the weight of a 3 x 3 convolution for Winograd's products and packs it in panels:
``[element of the tile][ceil(outputs / nr)][channels][nr]``, zero padded.

Ahead of time alone, in ``@prepare``: numbers are transformed in f64 and rounded once.
"""

from __future__ import annotations

from itertools import product

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert
from aicf.backends.cpu.families.conv.winograd.matrices import TAPS, transforms
from aicf.backends.cpu.families.conv.winograd.transform import Transform
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements


def emit_winograd_pack(
    em: Emitter,
    dtype: str,
    lanes: int,
    sizes: tuple[int, int],
    tile: int,
    nr: int,
    source: Value,
    target: Value,
) -> None:
    """Transform and pack a contiguous weight ``[outputs][channels][3][3]`` of `dtype`.

    Args:
        lanes: Output channels that are transformed together; they divide `nr`.
        sizes: Outputs and channels.
        tile: Rows and columns of a tile of the result.
    """
    outputs, channels = sizes
    plane = packed_elements(channels, outputs, nr)
    window = TAPS * TAPS
    transform = Transform(em, "f64", lanes, transforms(tile).weight)

    def vector(panel: Value, channel: Value, first: int, count: int) -> None:
        """`count` output channels from `first` of a panel on."""
        output = em.b.add(em.scaled(panel, nr), em.index(first))
        start = em.moved(source, output, channels * window, dtype)
        start = em.moved(start, channel, window, dtype)
        grid = [
            [load(em.address(start, row * TAPS + at, dtype), count) for at in range(TAPS)]
            for row in range(TAPS)
        ]
        out = em.moved(target, panel, channels * nr, dtype)
        out = em.address(em.moved(out, channel, nr, dtype), first, dtype)
        found = transform.both(grid)
        for number, (row, at) in enumerate(product(range(len(found)), repeat=2)):
            value = convert(Scalars(em, lanes), found[row][at], "f64", dtype)
            em.store(value, em.address(out, number * plane, dtype), dtype, lanes)

    def load(address: Value, count: int) -> Value:
        addresses = [em.address(address, lane * channels * window, dtype) for lane in range(count)]
        value = em.load_apart(addresses, dtype, lanes)
        return convert(Scalars(em, lanes), value, dtype, "f64")

    def panel(number: Value, columns: int) -> None:
        @em.each(0, channels)
        def channel(index: Value) -> None:
            for first in range(0, nr, lanes):
                vector(number, index, first, max(0, min(lanes, columns - first)))

    panels, tail = divmod(outputs, nr)

    @em.each(0, panels)
    def full(number: Value) -> None:
        panel(number, nr)

    if tail:
        panel(em.index(panels), tail)
