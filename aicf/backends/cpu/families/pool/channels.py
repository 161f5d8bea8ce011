"""Code for poolings in vectors of channels, where those of a position lie side by side.

What windows find beyond the operand is memory of its own that changes nothing: addresses are chosen, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.panels import PanelShare
from aicf.backends.cpu.families.conv.windows import Stretch, stretches
from aicf.backends.cpu.families.pool.schedule import PoolSpec
from aicf.backends.cpu.families.pool.windows import PoolCode, PoolPointers

_UNROLLED = 32
"""Most elements of a window that are combined one after the other; longer windows have loops."""


@dataclass(frozen=True)
class _Windows:
    """Some positions of the result's first dimensions.

    Args:
        x: Where the windows start, which may be outside the operand.
        y: Where the results go.
        coordinates: Along each of those dimensions.
        inside: Whether the windows there all lie in the operand, dimension by dimension.
    """

    x: Value
    y: Value
    coordinates: tuple[Value, ...] = ()
    inside: tuple[bool, ...] = ()


class PoolChannels(PoolCode):
    """Images, positions of the result, panels of channels, elements of a window.

    All channels of a position come before the next one, so that memory is read and written in order.
    """

    def __init__(self, em: Emitter, spec: PoolSpec, pointers: PoolPointers) -> None:
        super().__init__(em, spec, pointers)
        self.is_unrolled = prod(axis.size for axis in self.p.axes) <= _UNROLLED
        all_inside = all(axis.is_inside for axis in self.p.axes)
        self.nothing = None if all_inside else self.nothing_of(spec.panel, self.dtype)
        threads = (pointers.tid, pointers.nthreads) if spec.threads > 1 else None
        self.share = PanelShare(em, self.p.channels, spec.panel, threads)

    def run(self) -> None:
        em, p = self.em, self.p
        corner = -sum(axis.low * step for axis, step in zip(p.axes, p.x_strides[2:], strict=True))

        @em.each(0, p.batch)
        def image(n: Value) -> None:
            x = em.address(em.moved(self.pointers.x, n, p.x_strides[0], self.dtype), corner, self.dtype)
            self.along(0, _Windows(x, em.moved(self.pointers.y, n, p.y_strides[0], self.dtype)))

    def stretches(self, dim: int) -> list[Stretch]:
        """The results along a dimension."""
        axis = self.p.axes[dim]
        reach = (axis.size - 1) * axis.dilation + 1
        return stretches(count=axis.count, stride=axis.stride, low=axis.low, reach=reach, whole=axis.whole)

    def along(self, dim: int, windows: _Windows) -> None:
        """Loops over the dimensions from `dim` on."""
        em, p = self.em, self.p
        if dim == len(p.axes):
            self.share.each(lambda index, channels: self.window(windows, index, channels))
            return
        for stretch in self.stretches(dim):

            @em.each(stretch.start, stretch.stop)
            def body(coordinate: Value, is_inside: bool = stretch.is_inside) -> None:
                own = replace(
                    windows,
                    x=em.moved(windows.x, coordinate, p.axes[dim].stride * p.x_strides[2 + dim], self.dtype),
                    y=em.moved(windows.y, coordinate, p.y_strides[2 + dim], self.dtype),
                    coordinates=(*windows.coordinates, coordinate),
                    inside=(*windows.inside, is_inside),
                )
                self.along(dim + 1, own)

    def window(self, windows: _Windows, index: Value, channels: int) -> None:
        """The results of a panel of channels at one place."""
        em, lanes = self.em, self.spec.lanes
        first = em.scaled(index, self.spec.panel)
        active = tuple(min(lanes, channels - at) for at in range(0, channels, lanes))
        start = [self.scalars.identity(self.p.how, self.held)] * len(active)
        found = self.taps(0, windows, em.address(windows.x, first, self.dtype), None, (start, active))
        if self.counts:
            count = self.count_at(self.counts, windows.coordinates)
            found = [em.b.fdiv(value, count) for value in found]
        y = em.address(windows.y, first, self.dtype)
        for number, (value, exist) in enumerate(zip(found, active, strict=True)):
            em.store(value, em.address(y, number * lanes, self.dtype), self.dtype, lanes, exist)

    def taps(
        self,
        dim: int,
        windows: _Windows,
        x: Value,
        inside: Value | None,
        sums: tuple[list[Value], tuple[int, ...]],
    ) -> list[Value]:
        """The elements of a window along the dimensions from `dim` on, in order, combined into vectors.

        `inside` is whether those before it lie in the operand, None where they do; `sums` are the vectors, and the
        lanes of each that exist.
        """
        em, p, (acc, active) = self.em, self.p, sums
        if dim == len(p.axes):
            return self.combined(x, inside, acc, active)
        axis = p.axes[dim]

        def tap(number: Value, acc: list[Value]) -> list[Value]:
            here, both = em.moved(x, number, axis.dilation * p.x_strides[2 + dim], self.dtype), inside
            if not windows.inside[dim]:
                first = em.b.sub(em.scaled(windows.coordinates[dim], axis.stride), em.index(axis.low))
                at = em.b.add(first, em.scaled(number, axis.dilation))
                below = em.b.icmp_unsigned("<", at, em.index(axis.whole))  # negative numbers are large
                both = below if inside is None else em.b.and_(inside, below)
            return self.taps(dim + 1, windows, here, both, (acc, active))

        return self.each(axis.size, acc, tap)

    def each(
        self, size: int, acc: list[Value], tap: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """`tap` for each number below `size`, one after the other."""
        if not self.is_unrolled:
            return self.em.loop(0, size, 1, acc, tap)
        for number in range(size):
            acc = tap(self.em.index(number), acc)
        return acc

    def combined(
        self, x: Value, inside: Value | None, acc: list[Value], active: tuple[int, ...]
    ) -> list[Value]:
        """One element of a window more."""
        em, lanes = self.em, self.spec.lanes
        known = x if inside is None else em.b.select(inside, x, self.nothing)
        found: list[Value] = []
        for number, (before, exist) in enumerate(zip(acc, active, strict=True)):
            value = em.load(em.address(known, number * lanes, self.dtype), self.dtype, lanes, exist)
            found.append(self.scalars.combine(self.p.how, self.held, before, value))
        return found
