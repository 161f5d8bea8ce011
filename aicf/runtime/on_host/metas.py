"""Metas that the executable sets before each run: it computes their values from what it keeps of the previous run.

Where they lie, and how they come there, is known to those who run the program: `on_host` and `on_device`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from aicf.runtime.capture_plan import ARENA, CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.on_host.formulas import FORMULAS, ROUND, Number
from aicf.runtime.tensors import Array

SLOT_BYTES = 8
"""Bytes between metas: those of the widest."""

_FORMATS: Mapping[str, str] = {"i64": "q", "f32": "f4x", "f64": "d"}
"""The bytes of a slot, by element type."""


def written_metas(plan: CapturePlan) -> dict[int, int]:
    """The metas that the executable writes: index in the pointer table to byte offset in a row of them."""
    indices = [index for index, bind in enumerate(plan.graph.binds, ARENA + 1) if bind.is_host_written]
    return {index: number * SLOT_BYTES for number, index in enumerate(indices)}


class HostMetas:
    """The metas of one program that follow from those in `state`.

    Formulas are computed one after the other into a list of numbers, and written at once: this runs for each replay.

    Args:
        plan: The program.
        state: Its state on the host by name; what is kept for the next run is put there.
        is_copy: Whether the program updates another copy of it. Then what it may hold back is taken as if it did not.
    """

    def __init__(self, plan: CapturePlan, state: Mapping[str, Array], *, is_copy: bool) -> None:
        binds = [bind for bind in plan.graph.binds if _is_number(bind)]
        self._values: list[Number] = [0] * len(binds)
        at = {bind.name: index for index, bind in enumerate(binds)}
        self._read = [(at[bind.name], state[bind.name]) for bind in binds if not bind.is_computed]
        self._steps = [(at[bind.name], *self._step(bind, at)) for bind in binds if bind.is_computed]
        self._kept = [
            (state[bind.name], at[bind.host.next])
            for bind in binds
            if bind.host is not None and bind.host.next is not None and (is_copy or not bind.updated)
        ]
        written = [bind for bind in binds if bind.is_host_written]
        self._written = [at[bind.name] for bind in written]
        self._row = struct.Struct("=" + "".join(_FORMATS[bind.dtype] for bind in written))
        self.nbytes = SLOT_BYTES * len(written)

    def _step(self, bind: Bind, at: Mapping[str, int]) -> tuple[Callable[..., Number], tuple[int, ...]]:
        """The function that computes a meta, and the indices of its operands; numbers are stored after the metas."""
        host = bind.host
        assert host is not None and host.formula is not None
        operands: list[int] = []
        for operand in host.of:
            if isinstance(operand, str):
                operands.append(at[operand])
            else:
                operands.append(len(self._values))
                self._values.append(operand)
        return _rounded(FORMULAS[host.formula].compute, host.numbers, ROUND[bind.dtype]), tuple(operands)

    def write(self, row: memoryview, start: int = 0) -> None:
        """Computes the values for the next run and writes them into a row, which begins at byte `start`."""
        values = self._values
        for slot, array in self._read:
            values[slot] = array.item()
        for slot, compute, operands in self._steps:
            values[slot] = compute(*[values[operand] for operand in operands])
        self._row.pack_into(row, start, *[values[slot] for slot in self._written])

    def advance(self) -> None:
        """Keeps what the next run starts from: the run with the values last written has begun, or is over."""
        for array, next_ in self._kept:
            array[...] = self._values[next_]

    def counted(self, prepare: Callable[[], None], run: Callable[[], None]) -> Callable[[], None]:
        """A function that calls `prepare`, which writes the values, and `run`, then `advance`.

        An interrupt reaches Python when the call that it came in has returned: by then the run has begun, or is over.
        """

        def run_once() -> None:
            prepare()
            try:
                run()
            except KeyboardInterrupt:
                self.advance()
                raise
            self.advance()

        return run_once


def _rounded(
    compute: Callable[..., Number], numbers: Mapping[str, Any], rounded: Callable[[Any], Number]
) -> Callable[..., Number]:
    """A formula with its numbers, whose value is as its type holds it."""

    def value(*operands: Number) -> Number:
        return rounded(compute(*operands, **numbers))

    return value


def _is_number(bind: Bind) -> bool:
    """Whether a bind is a meta of one number, which formulas may read."""
    return bind.role == "meta" and not bind.shape and bind.dtype in ROUND
