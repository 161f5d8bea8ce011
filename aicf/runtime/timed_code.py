"""When each thread of a team enters and leaves an instruction, noted by machine code: Python would let one thread of
the process into an instruction after the other."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from aicf.backends.machine_code import MachineCode, assemble
from aicf.backends.native import CProfileEntry
from aicf.runtime.tensors import Array, address
from aicf.runtime.threads import bind_launch

_CODE = """
; Calls an instruction between two readings of the clock: the record has the function, its table, clock_gettime, and
; four numbers for each thread, the seconds and nanoseconds at its start and at its end.
define void @timed(i64 %launch, i64 %tid, i64 %members, ptr %record) {
  %function = load ptr, ptr %record
  %table.at = getelementptr ptr, ptr %record, i64 1
  %table = load ptr, ptr %table.at
  %clock.at = getelementptr ptr, ptr %record, i64 2
  %clock = load ptr, ptr %clock.at
  %first = getelementptr ptr, ptr %record, i64 3
  %number = mul i64 %tid, 4
  %start = getelementptr i64, ptr %first, i64 %number
  %end = getelementptr i64, ptr %start, i64 2
  call i32 %clock(i32 CLOCK, ptr %start)
  call void %function(i64 %launch, i64 %tid, i64 %members, ptr %table)
  call i32 %clock(i32 CLOCK, ptr %end)
  ret void
}
"""

_HEAD = 3
"""Numbers of a record before those of its threads."""


@cache
def _code() -> MachineCode:
    return assemble(_CODE.replace("CLOCK", str(time.CLOCK_MONOTONIC)))


@cache
def _clock() -> int:
    found = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
    assert found is not None
    return found


class TimedEntry:
    """An entry whose instructions note when each thread enters and leaves them.

    Args:
        entry: Runs single instructions.
        threads: Of the program.
        table: Its pointer table.
    """

    def __init__(self, entry: CProfileEntry, threads: int, table: int) -> None:
        self._code, self._threads = _code(), threads
        self._record: Array = np.zeros(_HEAD + 4 * threads, np.int64)
        self._record[:_HEAD] = entry.address, table, _clock()
        self._timed = CProfileEntry(self._code.address("timed"))

    def bind(self, launch: int) -> Callable[[], list[tuple[int, int]]]:
        """The call of one instruction: start and end of each thread, in nanoseconds of `time.monotonic_ns`."""
        run = bind_launch(self._timed, launch, self._threads, address(self._record))

        def call() -> list[tuple[int, int]]:
            run()
            rows: Any = self._record[_HEAD:].reshape(self._threads, 4).tolist()
            return [(10**9 * row[0] + row[1], 10**9 * row[2] + row[3]) for row in rows]

        return call
