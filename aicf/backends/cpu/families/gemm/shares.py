"""Code that goes over panels or tiles: all of them, or one thread's share."""

from __future__ import annotations

from collections.abc import Callable

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value


def emit_share(
    em: Emitter,
    total: int,
    full: int,
    threads: tuple[Value, Value],
    body: Callable[[Value], None],
    emit_tail: Callable[[], None],
) -> None:
    """Give this thread (number, count) its contiguous share of `total` items, of which those past `full` are a tail."""
    tid, nthreads = threads
    count = em.index(total)
    low = em.b.sdiv(em.b.mul(tid, count), nthreads)
    following = em.b.add(tid, em.index(1))
    high = em.b.sdiv(em.b.mul(following, count), nthreads)
    limit = em.index(full)
    stop = em.b.select(em.b.icmp_signed("<", high, limit), high, limit)
    em.each(low, stop)(body)
    if total > full:
        own_tail = em.b.and_(em.b.icmp_signed(">", high, limit), em.b.icmp_signed("<=", low, limit))
        em.when(own_tail, emit_tail)


def emit_panels(
    em: Emitter,
    count: int,
    width: int,
    threads: tuple[Value, Value] | None,
    panel: Callable[[Value, int], None],
) -> None:
    """`panel` of the number and the width of each panel of `count` columns, or of this thread's share of them."""
    if threads is None:
        em.panels(count, width)(panel)
        return
    full, rest = divmod(count, width)
    emit_share(
        em,
        full + (rest > 0),
        full,
        threads,
        lambda number: panel(number, width),
        lambda: panel(em.index(full), rest),
    )
