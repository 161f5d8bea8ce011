"""A backend that runs programs as `reference` does, with kernels that are right and others that have a fault each.

A right one is predicted to be fastest, so that only a policy chooses another.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
from xdsl.ir import Attribute, Operation

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.workload import Workload
from aicf.backends.native import NativeCode
from aicf.backends.reference.backend import BodyKernel, ReferenceBackend
from aicf.backends.reference.interpreter import Buffers, run_instructions
from aicf.backends.reference.loader import MODE, ReferenceCode, ReferenceEntry, _buffers, load_native
from aicf.dialects.emit import ProgramOp, ResolvedOp
from aicf.dialects.emit_types import TargetAttr

Fault = Callable[[int, np.ndarray], None]
"""What happens to a result once it is written: the number of the run of its instruction, from 1, and the result."""

SLOW_S = 0.01
"""What the slow kernel wastes: several times what a small program takes."""
RACING_RUN = 7
"""The first run in which the racing kernel gives other bits."""


def _scaled(run: int, result: np.ndarray) -> None:
    result *= 1.01


def _late(run: int, result: np.ndarray) -> None:
    time.sleep(SLOW_S)


def _racing(run: int, result: np.ndarray) -> None:
    if run % RACING_RUN == 0:
        result.flat[-1] = np.nextafter(result.flat[-1], np.float32(np.inf))


def _by_process(run: int, result: np.ndarray) -> None:
    result.flat[0] += os.getpid()


def _deadly(run: int, result: np.ndarray) -> None:
    if run == RACING_RUN:
        os.kill(os.getpid(), signal.SIGKILL)


def _none(run: int, result: np.ndarray) -> None:
    pass


FAULTS: Mapping[str, Fault] = {
    "faulty.right": _none,
    "faulty.also_right": _none,
    "faulty.wrong": _scaled,
    "faulty.slow": _late,
    "faulty.racing": _racing,
    "faulty.by_process": _by_process,
    "faulty.deadly": _deadly,
}


@dataclass(frozen=True)
class FaultyKernel(BodyKernel):
    """A kernel with a fault, which says that it has none."""

    id: str = "faulty.right"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """The right kernel takes least."""
        return 1.0 if self.id == "faulty.right" else 2.0

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        """None of its results takes the bytes of an operand, to which the fault would happen."""
        return {}


class FaultyBackend(ReferenceBackend):
    """See `aicf.backends.base.Backend`."""

    name = "faulty"

    def kernels(self) -> Sequence[AnyKernel]:
        """One for each fault."""
        return tuple(FaultyKernel(name) for name in FAULTS)

    def load(self, native: NativeCode) -> FaultyCode:
        """The code of the reference backend, run with faults."""
        return FaultyCode(load_native(native))


class FaultyCode:
    """See `aicf.backends.native.LoadedCode`."""

    def __init__(self, code: ReferenceCode) -> None:
        self._code = code
        self._runs: dict[str, count[int]] = {}

    def entry(self, symbol: str) -> FaultyEntry:
        """See `LoadedCode`."""
        entry = self._code.entry(symbol)
        return FaultyEntry(entry.program, entry.symbols, self._runs.setdefault(symbol, count(1)))

    def profile_entry(self, symbol: str) -> None:
        """There is none."""

    def function_addresses(self) -> Sequence[int]:
        """None."""
        return ()


@dataclass(frozen=True)
class FaultyEntry(ReferenceEntry):
    """See `aicf.backends.native.Entry`; thread 0 runs everything."""

    runs: count[int]

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """See `Entry`."""
        instructions = self.program.instructions if tid == 0 else ()
        return partial(_run, self.program, instructions, self.symbols, self.runs, table)


def _run(
    program: ProgramOp,
    instructions: Sequence[ResolvedOp],
    bodies: Mapping[str, Operation],
    runs: count[int],
    table: int,
) -> None:
    if not instructions:
        return
    run, buffers = next(runs), _buffers(program, table)
    for instruction in instructions:
        run_instructions([instruction], bodies, buffers, MODE)
        _spoil(instruction, buffers, run)


def _spoil(instruction: ResolvedOp, buffers: Buffers, run: int) -> None:
    assert instruction.kernel is not None
    for out in instruction.outs:
        FAULTS[instruction.kernel.kernel.data](run, buffers.view(out))
