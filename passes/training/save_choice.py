"""Which saved values are kept and which computed again: what a policy says, what is free, what a limit asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import byte_count
from aicf.passes.bodies.outlining import is_rematerializable
from aicf.passes.bodies.views import is_view
from aicf.passes.logical.saved_values import (
    SavedMemory,
    computing,
    is_always_in_memory,
    root_of,
    saved_memory,
    saves_in,
)
from aicf.passes.training.live_bytes import LiveBytes

Price = Callable[[Sequence[Operation]], float]
"""What computing ops again takes, as one kernel if there is one: predicted microseconds, or scalar operations where no
target is known."""

PINNED = "the policy says so"


@dataclass(frozen=True)
class Pin:
    """What somebody has said of a save.

    Args:
        keep: Whether it is to be kept.
        because: Who says so, or why, as a ledger reason.
    """

    keep: bool
    because: str = PINNED


ARITHMETIC = 1.25
"""A chain of pointwise ops is as good as one of them up to this part of its price: what it adds is not memory."""


@dataclass(frozen=True)
class Choice:
    """Which saved values of one function are kept for its backward part, and which are recomputed.

    Args:
        memory: All that is saved.
        held: The roots that are kept.
        because: Why the others, and those that a policy pins, are what they are.
        before, after: Bytes alive at most, as estimated, if all that may be is kept, and by this choice.
    """

    memory: Sequence[SavedMemory]
    held: frozenset[SSAValue]
    because: Mapping[SSAValue, str]
    before: int
    after: int


def choose(
    block: Block,
    pins: Mapping[logical.SaveOp, Pin],
    less: int,
    price: Price,
    *,
    share: float = 1.0,
    kept: float = 1.0,
) -> Choice:
    """Keeps what is saved, except what is pinned, what is free to compute, and what is over a limit.

    Args:
        pins: Of saves that something is said of. What several share is kept if one of them is.
        less: Bytes that memory at the peak is to shrink by.
        price: Of ops, together.
        share: Of the bytes that would be kept; memory at the peak is to shrink by the rest of them too.
        kept: Of the same bytes, how many may be kept, wherever the peak is.
    """
    memory = [each for each in saved_memory(saves_in(block)) if not is_always_in_memory(each.root)]
    live = LiveBytes(block)
    held = {each.root for each in memory}
    because: dict[SSAValue, str] = {}
    for each in memory:
        requests = [pins[save] for save in each.saves if save in pins]
        if requests:
            decisive = next((pin for pin in requests if pin.keep), requests[0])
            because[each.root] = decisive.because
            if not decisive.keep:
                held.discard(each.root)
    for root in [each.root for each in memory if each.root not in because]:
        if (reason := _free(root, held - {root}, live, price)) is not None:
            held.discard(root)
            because[root] = reason
    before = live.peak(held).bytes
    free = [each.root for each in memory if each.root in held and each.root not in because]
    less += round((1 - share) * sum(byte_count(root.type) for root in free))
    if less:
        dropped = _dropped(free, held, before - less, live, price)
        held -= set(dropped)
        because |= dict.fromkeys(dropped, f"memory is to shrink by {less} bytes")
    if kept < 1:
        free = [root for root in free if root in held]
        dropped = _dropped_to(kept, free, held, price)
        held -= set(dropped)
        because |= dict.fromkeys(dropped, f"{kept:.0%} of what could be kept may be")
    return Choice(memory, frozenset(held), because, before, live.peak(held).bytes)


def _free(root: SSAValue, held: Collection[SSAValue], live: LiveBytes, price: Price) -> str | None:
    """Why computing a value again costs nothing: it reads no more than reading the value would, and saves a write."""
    ops = [op for op in computing(root, held) if not (is_view(op) or is_rematerializable(op))]
    if not all(op.has_trait(logical.Elementwise) for op in ops):
        return None
    size, least = byte_count(root.type), _bytes_read(ops)
    if least > size or (least == size and not live.reads_in_registers(root)):
        return None
    if ops and price(ops) > ARITHMETIC * min(price([op]) for op in ops):
        return None
    return "computing it reads no more than reading it would, and it is not written"


def _bytes_read(ops: Sequence[Operation]) -> int:
    """Bytes that ops read of what they do not compute: of a value that they see slices of, those alone."""
    computed = {result for op in ops for result in op.results}
    seen: dict[SSAValue, set[SSAValue]] = {}
    for operand in (operand for op in ops for operand in op.operands):
        source = root_of(operand)
        is_made = isinstance(source, OpResult) and is_rematerializable(source.op)
        if source not in computed and not is_made:
            seen.setdefault(source, set()).add(operand)
    return sum(
        min(byte_count(source.type), sum(map(_bytes_seen, operands))) for source, operands in seen.items()
    )


def _bytes_seen(value: SSAValue) -> int:
    """Bytes of what a value is a view of that it shows: a slice fewer, a broadcast no more."""
    least = byte_count(value.type)
    while isinstance(value, OpResult) and (is_view(value.op) or isinstance(value.op, logical.SaveOp)):
        value = value.op.operands[0]
        least = min(least, byte_count(value.type))
    return least


def _dropped(
    free: Sequence[SSAValue], held: Collection[SSAValue], limit: int, live: LiveBytes, price: Price
) -> list[SSAValue]:
    """Which of the `free` ones not to keep, so that at most `limit` bytes are alive, or as few as are found.

    At the moment of the peak the value goes whose bytes cost least to compute again, and so on; then what turned out
    not to be needed for it comes back, the most expensive first.
    """
    kept, candidates = set(held), list(free)
    dropped: list[SSAValue] = []
    peak = live.peak(kept)
    while peak.bytes > limit:
        best = _best([root for root in candidates if root in peak.waiting], kept, price)
        if best is None:
            break
        candidates.remove(best)
        without = live.peak(kept - {best})
        if without.bytes <= peak.bytes:
            kept.discard(best)
            dropped.append(best)
            peak = without
    reached = max(limit, peak.bytes)
    for root in sorted(dropped, key=lambda root: -_price_of(root, kept, price)):
        if live.peak(kept | {root}).bytes <= reached:
            kept.add(root)
    return [root for root in dropped if root not in kept]


def _dropped_to(
    share: float, free: Sequence[SSAValue], held: Collection[SSAValue], price: Price
) -> list[SSAValue]:
    """Which of the `free` ones not to keep, so that of their bytes at most a share is."""
    kept, left = set(held), list(free)
    count = sum(byte_count(root.type) for root in free)
    limit = share * count
    while left and count > limit:
        best = _best(left, kept, price)
        assert best is not None
        left.remove(best)
        kept.discard(best)
        count -= byte_count(best.type)
    return [root for root in free if root not in kept]


def _best(roots: Sequence[SSAValue], held: Collection[SSAValue], price: Price) -> SSAValue | None:
    """The value that frees the most bytes for its price; the first of equals."""

    def bytes_for_price(root: SSAValue) -> float:
        return byte_count(root.type) / _price_of(root, held, price)

    return max(roots, key=bytes_for_price, default=None)


def _price_of(root: SSAValue, held: Collection[SSAValue], price: Price) -> float:
    """What computing a value again takes if all other kept values stay; never 0."""
    others = {other for other in held if other is not root}
    ops = [op for op in computing(root, others) if not is_view(op)]
    return sum(price([op]) for op in ops) or 1.0
