"""Panels of channels that lie side by side: loops over all of them, or over the share of one thread."""

from __future__ import annotations

from collections.abc import Callable

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.loops.template import share_of


class PanelShare:
    """The panels of a thread, known before the loops that pass over them again and again.

    Args:
        em: Where the code before those loops goes.
        channels: How many there are.
        width: Channels of a panel; the last may be narrower.
        threads: This thread's number and how many there are; None for all panels.
    """

    def __init__(self, em: Emitter, channels: int, width: int, threads: tuple[Value, Value] | None) -> None:
        self.em = em
        self.full, self.tail = divmod(channels, width)
        self.width = width
        self.bounds: tuple[Value | int, Value | int] = (0, self.full)
        self.owns_tail: Value | None = None
        if threads is None:
            return
        low, high = share_of(em, self.full + (self.tail > 0), *threads)
        limit = em.index(self.full)
        is_last = em.b.icmp_signed(">", high, limit)
        self.bounds = (low, em.b.select(is_last, limit, high))
        self.owns_tail = em.b.and_(is_last, em.b.icmp_signed("<=", low, limit))

    def each(self, panel: Callable[[Value, int], None]) -> None:
        """`panel` of the number and the channels of each."""
        em = self.em

        @em.each(*self.bounds)
        def body(index: Value) -> None:
            panel(index, self.width)

        if not self.tail:
            return
        if self.owns_tail is None:
            panel(em.index(self.full), self.tail)
        else:
            em.when(self.owns_tail, lambda: panel(em.index(self.full), self.tail))
