"""A program on host memory: an arena, addresses of the boundary, and a call of its native entry."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic_ns, perf_counter_ns
from typing import Any

import numpy as np

from aicf.backends.native import CProfileEntry, LoadedCode, ProfileEntry
from aicf.errors import InputMismatch, quoted
from aicf.runtime.capture_plan import ARENA, CapturePlan
from aicf.runtime.consts import read_const
from aicf.runtime.deferred_weights import in_memory, joined
from aicf.runtime.graph_exec import GraphExec, Span, Timeline
from aicf.runtime.memory import allocate, requested
from aicf.runtime.on_host.metas import SLOT_BYTES, HostMetas, written_metas
from aicf.runtime.ports import Boundary, Port, as_array, reject_unknown
from aicf.runtime.state import State
from aicf.runtime.tensors import Array, address, byte_range
from aicf.runtime.threads import bind_entry, bind_launch
from aicf.runtime.timed_code import TimedEntry


class HostProgram(Boundary):
    """What all GraphExecs of one plan on the host share.

    Args:
        plan: The capture plan.
        threads: Threads that enter it.
        code: Gives the loaded code, loading it if need be.
        shared: Gives the arrays of read-only weights and of derived binds by name.
    """

    def __init__(
        self,
        plan: CapturePlan,
        threads: int,
        code: Callable[[], LoadedCode],
        shared: Callable[[], Mapping[str, Array]],
    ) -> None:
        super().__init__(plan)
        self.threads = threads
        self.code = code
        self.shared = shared
        self.consts = {bind.name: read_const(bind) for bind in plan.graph.with_role("const")}

    @property
    def const_bytes(self) -> int:
        """What its constants request."""
        return sum(requested(bind.nbytes) for bind in self.plan.graph.with_role("const") if bind.nbytes)

    @property
    def instance_bytes(self) -> int:
        """What a GraphExec and one call of it request: the arena, staging of small inputs and outputs, and the fresh
        arrays of large outputs."""
        small = [port.bind.nbytes for port in self.ports if port.is_small]
        fresh = [port.bind.nbytes for port in self.outputs if not port.is_small]
        metas = [SLOT_BYTES * len(offsets)] if (offsets := written_metas(self.plan)) else []
        buffers = sum(requested(nbytes) for nbytes in (*small, *fresh, *metas) if nbytes)
        return requested(self.plan.arena_bytes, self.plan.arena_align) + buffers

    def fixed_arrays(self, state: State | None) -> dict[int, Array]:
        """The arrays of all binds but inputs and outputs, by index in the pointer table."""
        arrays = joined(self.shared(), self.consts)
        mutable = {} if state is None else state.arrays
        return {
            index: mutable[bind.name] if bind.is_mutable else arrays[bind.name]
            for index, bind in enumerate(self.plan.graph.binds, ARENA + 1)
            if bind.role not in ("input", "output") and not bind.is_host_written
        }


class HostGraphExec(GraphExec):
    """See `GraphExec`.

    Args:
        program: What it shares with others.
        state: What the program updates, None if nothing.
    """

    def __init__(self, program: HostProgram, state: State | None = None) -> None:
        super().__init__(program, state)
        self._program = program

    # Taking and giving back resources

    def _acquire(self) -> Callable[[], None]:
        """Allocates the arena, fills the pointer table and binds the entry; what `replay` calls."""
        program, plan = self._program, self._program.plan
        self._code = code = program.code()
        functions = list(code.function_addresses())
        self._arena = allocate(plan.arena_bytes, plan.arena_align)
        self._table = (ctypes.c_void_p * (plan.table_size + len(functions)))()
        self._table[ARENA] = address(self._arena)
        self._table[plan.table_size :] = functions
        self._fixed = self._program.fixed_arrays(self._state)
        for index, array in self._fixed.items():
            self._table[index] = address(array)
        self._stages = {port.bind.name: port.new_buffer() for port in program.ports if port.is_small}
        self._feeds = tuple(
            (port.dtype, port.shape, self._stages.get(port.bind.name), port.index, port)
            for port in program.inputs
        )
        self._results = tuple(
            (self._stages.get(port.bind.name), port.index, port) for port in program.outputs
        )
        for port in program.ports:
            name = port.bind.name
            if (array := self._bound.get(name, self._stages.get(name))) is not None:
                self._table[port.index] = address(array)
        self._run = self._bind_entry()
        return self._run

    def _replay_on(self, stream: object, n: int) -> None:
        """See `GraphExec`."""
        raise InputMismatch(
            f"@{self.plan.name} runs on the processor, which has no queue {quoted(stream)}; "
            "Stream().submit(graph_exec) runs it beside the caller"
        )

    def _bind_entry(self) -> Callable[[], None]:
        """The call of the entry, with the metas that the executable writes around it."""
        entry = self._code.entry(self._program.plan.entry)
        run = bind_entry(entry, self._program.threads, ctypes.addressof(self._table))
        self._write_metas: Callable[[], None] | None = None
        if not (offsets := written_metas(self.plan)):
            return run
        assert self._state is not None
        metas = HostMetas(self.plan, self._state.arrays, is_copy=False)
        row = allocate(metas.nbytes)
        for index, offset in offsets.items():
            self._table[index] = address(row) + offset
        self._write_metas = partial(metas.write, row.data)
        return metas.counted(self._write_metas, run)

    def release(self) -> None:
        """See `GraphExec`."""
        with self._guard:
            self._ranges = None
            if self._run is None:
                return
            self._run = None
            del (
                self._write_metas,
                self._code,
                self._arena,
                self._table,
                self._fixed,
                self._stages,
                self._feeds,
                self._results,
            )

    def synchronize(self) -> None:
        """See `GraphExec`; a replay on the host is over when it returns."""

    # Zero-copy use

    def __getitem__(self, name: str) -> Array:
        """See `GraphExec`."""
        reject_unknown([name], list(self._program.by_name), "input or output")
        if name not in self._bound:
            self.bind({name: self._program.by_name[name].new_buffer()})
        return self._bound[name]

    def _rebound(
        self, run: Callable[[], None] | None, checked: Mapping[str, Array]
    ) -> Callable[[], None] | None:
        if run is not None:
            self._point_at(checked)
        return run

    def _point_at(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self._table[self._program.by_name[name].index] = address(array)

    def _ready(self) -> Callable[[], None]:
        run, self._run = self._run, None  # see `bind`
        fresh = self._bind_rest(Port.new_buffer)
        if run is None:
            return self._acquire()
        self._point_at(fresh)
        self._run = run
        return run

    def _in_place(self, port: Port, value: object) -> Array:
        array = port.check_in_place(value)
        if not port.is_aligned(array):
            bind = port.bind
            raise InputMismatch(
                f"{bind.role} '{bind.name}' starts at {address(array):#x}, the program wants a multiple of "
                f"{bind.align} bytes; take memory of the executable's own, or call the executable, which copies"
            )
        return array

    def _range(self, bound: Array) -> tuple[int, int]:
        return byte_range(bound)

    def _fixed_ranges(self) -> list[tuple[str, tuple[int, int]]]:
        binds = self._program.plan.graph.binds
        fixed = self._program.fixed_arrays(self._state).items()
        named = [(binds[index - ARENA - 1].name, array) for index, array in fixed]
        # Weights that only @prepare reads are in no table here, and must survive all the same.
        named += in_memory(self._program.shared()).items()
        return [(name, byte_range(array)) for name, array in named]

    # Calls

    def call(self, args: Sequence[Any]) -> list[Array]:
        """See `GraphExec`."""
        run = self._run or self._acquire()
        table = self._table
        keep = self._feed(args)
        fresh: list[Array] = []
        for stage, index, port in self._results:
            if stage is None:
                array = port.new_buffer()
                table[index] = address(array)
                fresh.append(array)
        run()
        if not fresh:
            return [stage.copy() for stage, _, _ in self._results]  # pyright: ignore[reportOptionalMemberAccess]
        del keep
        large = iter(fresh)
        return [next(large) if stage is None else stage.copy() for stage, _, _ in self._results]

    def _feed(self, args: Sequence[Any]) -> list[Array] | None:
        """Puts the inputs in place; gives arrays that must live until the run is over."""
        keep: list[Array] | None = None
        for array, (dtype, shape, stage, index, port) in zip(args, self._feeds):  # noqa: B905  # the caller counted
            if type(array) is not np.ndarray:
                array = as_array(array, port.bind)
            if array.dtype != dtype or array.shape != shape:
                raise port.mismatch(array)
            if stage is not None:
                stage[...] = array
                continue
            if not (port.fits_in_place(array) and port.is_aligned(array)):
                array, given = port.new_buffer(), array
                array[...] = given
            self._table[index] = address(array)
            keep = [] if keep is None else keep
            keep.append(array)
        return keep

    def call_into(self, args: Sequence[Any], out: Mapping[str, object]) -> dict[str, Array]:
        """See `GraphExec`."""
        given = {
            port.bind.name: port.check(value) for port, value in zip(self._program.inputs, args, strict=True)
        }
        mine = self.check_bindings(out, given)
        run = self._run or self._acquire()
        keep = self._feed(args)
        results: dict[str, Array] = {}
        try:
            for port in self._program.outputs:
                name = port.bind.name
                results[name] = mine[name] if name in mine else port.new_buffer()
                self._table[port.index] = address(results[name])
            run()
        finally:
            for stage, index, _ in self._results:
                if stage is not None:
                    self._table[index] = address(stage)
        del keep
        return results

    # Profiling

    def instruction_times(self, repeats: int) -> list[list[float]] | None:
        """See `GraphExec`."""
        with self._guard:
            self._ready()
            entry = self._code.profile_entry(self._program.plan.entry)
            if entry is None:
                return None
            if self._write_metas is not None:
                self._write_metas()
            table, threads = ctypes.addressof(self._table), self._program.threads
            launches = range(-1, len(self.plan.launches))
            runs = [bind_launch(entry, launch, threads, table) for launch in launches]
            return [[_microseconds(run) for run in runs] for _ in range(repeats)]

    def timeline(self, repeats: int) -> Timeline | None:
        """See `GraphExec`. The threads of a program enter an instruction together."""
        with self._guard:
            self._ready()
            entry = self._code.profile_entry(self._program.plan.entry)
            if entry is None:
                return None
            if self._write_metas is not None:
                self._write_metas()
            launches = range(len(self.plan.launches))
            timed = [self._timed_launch(entry, launch) for launch in launches]
            first = monotonic_ns()
            rows = [
                (launch, run()) for _ in range(repeats) for launch, run in zip(launches, timed, strict=True)
            ]
        spans = [
            Span(launch, f"thread {tid}", (start - first) / 1e3, (end - start) / 1e3)
            for launch, times in rows
            for tid, (start, end) in enumerate(times)
        ]
        return Timeline("the clock of each thread", tuple(spans))

    def _timed_launch(self, entry: ProfileEntry, launch: int) -> Callable[[], list[tuple[int, int]]]:
        """The call of an instruction: start and end in nanoseconds, of each thread if it is native."""
        table, threads = ctypes.addressof(self._table), self._program.threads
        if isinstance(entry, CProfileEntry):
            return TimedEntry(entry, threads, table).bind(launch)
        run = bind_launch(entry, launch, threads, table)

        def call() -> list[tuple[int, int]]:
            start = monotonic_ns()
            run()
            return [(start, monotonic_ns())]

        return call


def _microseconds(run: Callable[[], None]) -> float:
    start = perf_counter_ns()
    run()
    return (perf_counter_ns() - start) / 1e3
