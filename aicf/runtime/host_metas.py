"""Metas that the executable sets in front of each run: their values, from what is kept of the run before.

Where they lie, and how they come there, is known to those who run the program: `host_exec` and `device_exec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicf.runtime.capture_plan import ARENA, CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.host_formulas import FORMULAS, PACK, ROUND, Number
from aicf.runtime.tensors import Array

SLOT_BYTES = 8
"""Bytes between metas: those of the widest."""


def written_metas(plan: CapturePlan) -> dict[int, int]:
    """The metas that the executable writes: index in the pointer table to byte offset in a row of them."""
    indices = [index for index, bind in enumerate(plan.graph.binds, ARENA + 1) if bind.is_host_written]
    return {index: place * SLOT_BYTES for place, index in enumerate(indices)}


@dataclass(frozen=True)
class _Step:
    """One formula, ready to be computed: operands are names, or numbers."""

    name: str
    compute: Callable[..., Number]
    of: tuple[str | int | float, ...]
    numbers: Mapping[str, Any]
    rounded: Callable[[Any], Number]

    def value(self, known: Mapping[str, Number]) -> Number:
        operands = [known[operand] if isinstance(operand, str) else operand for operand in self.of]
        return self.rounded(self.compute(*operands, **self.numbers))


class HostMetas:
    """The metas of one program that follow from those in `state`.

    Args:
        plan: The program.
        state: Its state on the host by name; what is kept for the next run is put there.
        is_copy: Whether the program updates another copy of it. Then what it may hold back is taken as if it did not.
    """

    def __init__(self, plan: CapturePlan, state: Mapping[str, Array], *, is_copy: bool) -> None:
        binds = plan.graph.binds
        self._steps = [_step(bind) for bind in binds if bind.is_computed]
        self._state = {bind.name: state[bind.name] for bind in _scalars(binds)}
        self._kept = [
            (bind.name, bind.host.next)
            for bind in binds
            if bind.host is not None and bind.host.next is not None and (is_copy or not bind.updated)
        ]
        places = written_metas(plan)
        self._writes = [
            (binds[index - ARENA - 1].name, PACK[binds[index - ARENA - 1].dtype], offset)
            for index, offset in places.items()
        ]
        self.nbytes = SLOT_BYTES * len(places)
        self._values: dict[str, Number] = {}

    def write(self, row: memoryview, start: int = 0) -> None:
        """Computes the values for the next run and writes them into a row, which begins at byte `start`."""
        values: dict[str, Number] = {name: array.item() for name, array in self._state.items()}
        for step in self._steps:
            values[step.name] = step.value(values)
        for name, pack, offset in self._writes:
            pack.pack_into(row, start + offset, values[name])
        self._values = values

    def advance(self) -> None:
        """Keeps what the next run starts from: the run with the values last written has begun, or is over."""
        for name, next_ in self._kept:
            self._state[name][...] = self._values[next_]


def _step(bind: Bind) -> _Step:
    host = bind.host
    assert host is not None and host.formula is not None
    return _Step(bind.name, FORMULAS[host.formula].compute, host.of, host.numbers, ROUND[bind.dtype])


def _scalars(binds: tuple[Bind, ...]) -> Iterator[Bind]:
    """The metas of one number that have a value of their own."""
    for bind in binds:
        if bind.role == "meta" and not bind.is_computed and not bind.shape and bind.dtype in ROUND:
            yield bind
