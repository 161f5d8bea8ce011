"""How many streams pay: predicted time of a program on a device that runs independent instructions side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

_NOTHING = 1e-9
"""Microseconds left over by rounding."""


@dataclass(frozen=True)
class Step:
    """One placed instruction.

    Args:
        us: Microseconds it takes alone.
        share: Part of the device that it keeps busy meanwhile, above 0 up to 1.
        stream: Its stream.
        after: Steps that end before it starts, all of them earlier in the program.
    """

    us: float
    share: float
    stream: int
    after: tuple[int, ...]


def predicted_us(steps: Sequence[Step], join_us: float) -> float:
    """Microseconds of the whole program.

    Instructions that run at the same time slow each other down once their shares add up to more than the device.
    `join_us` passes from the end of an instruction to the start of one that waits for it on another stream.
    """
    missing = [len(step.after) for step in steps]
    followers: list[list[int]] = [[] for _ in steps]
    for index, step in enumerate(steps):
        for source in step.after:
            followers[source].append(index)
    coming = [(0.0, index) for index, count in enumerate(missing) if not count]
    ended = [0.0] * len(steps)
    left: dict[int, float] = {}
    now = 0.0
    while coming or left:
        while coming and coming[0][0] <= now:
            index = heappop(coming)[1]
            left[index] = steps[index].us
        if not left:
            now = coming[0][0]
            continue
        slowness = max(1.0, sum(steps[index].share for index in left))
        span = min(left.values()) * slowness
        if coming:
            span = min(span, coming[0][0] - now)
        now += span
        for index in list(left):
            left[index] -= span / slowness
            if left[index] > _NOTHING:
                continue
            del left[index]
            ended[index] = now
            for follower in followers[index]:
                missing[follower] -= 1
                if not missing[follower]:
                    heappush(coming, (_start(steps, follower, ended, join_us), follower))
    return now


def _start(steps: Sequence[Step], index: int, ended: Sequence[float], join_us: float) -> float:
    stream = steps[index].stream
    return max(ended[source] + join_us * (steps[source].stream != stream) for source in steps[index].after)
