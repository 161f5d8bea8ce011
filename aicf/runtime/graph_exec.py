"""Replaying one captured program: an arena, the addresses of its boundary, and a call.

The path never changes, only the inputs do: nothing here looks at an instruction. Which program runs for which
input is decided by `executable`; what a program does is in its native code.
"""

from __future__ import annotations

import ctypes
import difflib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from aicf.backends.native import LoadedCode, ProfileEntry
from aicf.errors import ArtifactError, CaptureError, InputMismatch
from aicf.runtime.capture_plan import ARENA, CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.memory import allocate, allocate_tensor, copy_of
from aicf.runtime.tensors import (
    Array,
    address,
    byte_range,
    dense_strides,
    describe,
    describe_array,
    numpy_dtype,
)
from aicf.runtime.threads import team_of

COPY_BYTES = 16384
"""Inputs and outputs up to this size are copied through memory of ours: NumPy takes 0.1-0.4 us to copy them,
but over 1 us to say where an array lies."""


class SupportsDLPack(Protocol):
    """An array of another library."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...


@dataclass(frozen=True)
class Port:
    """An input or output as callers must give it.

    Args:
        bind: Its place at the boundary.
        index: Its entry in the pointer table.
        dtype, shape: As NumPy has them.
        strides: Bytes between neighbours.
        is_dense: Row-major without gaps.
    """

    bind: Bind
    index: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_dense: bool

    @staticmethod
    def of(bind: Bind, index: int) -> Port:
        """The port of a bind."""
        dtype = numpy_dtype(bind.dtype)
        strides = tuple(step * dtype.itemsize for step in bind.strides)
        return Port(bind, index, dtype, bind.shape, strides, bind.strides == dense_strides(bind.shape))

    @property
    def is_small(self) -> bool:
        """Whether calls copy it instead of asking for its address."""
        return self.bind.nbytes <= COPY_BYTES

    def new_buffer(self) -> Array:
        """Zeroed memory of ours for it."""
        return allocate_tensor(self.shape, self.bind.strides, self.bind.dtype, self.bind.nbytes)

    def fits_in_place(self, array: Array) -> bool:
        """Whether the program can use the memory of `array` as it is."""
        flags = array.flags
        return bool(flags.aligned) and (
            array.strides == self.strides or (self.is_dense and bool(flags.c_contiguous))
        )

    def check(self, array: object, what: str = "") -> Array:
        """`array` as a NumPy array of the right shape and dtype, without a copy.

        Raises:
            InputMismatch: names the tensor, what was expected and what came.
        """
        array = as_array(array, self.bind)
        if array.dtype != self.dtype or array.shape != self.shape:
            raise self.mismatch(array, what)
        return array

    def mismatch(self, array: Array, what: str = "") -> InputMismatch:
        """The error for an array of the wrong shape or dtype."""
        wanted = describe(self.shape, self.bind.dtype)
        return InputMismatch(
            f"{what or self.bind.role} '{self.bind.name}': expected {wanted}, got {describe_array(array)}"
            f"; {self._way_out(array)}"
        )

    def _way_out(self, array: Array) -> str:
        if len(array.shape) != len(self.shape):
            return f"rank must be {len(self.shape)}, is {len(array.shape)}"
        if array.shape != self.shape:
            return "the shape was fixed when the program was compiled"
        return f"convert it, as in array.astype('{self.dtype}')"


def as_array(value: object, bind: Bind) -> Array:
    """A NumPy array on the memory of `value`: an array, or anything with DLPack or an array interface.

    Raises InputMismatch for anything else (lists have no dtype).
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InputMismatch(f"{bind.role} '{bind.name}' is a masked array; fill it with array.filled(value)")
    if isinstance(value, np.ndarray):
        return cast(Array, value)
    try:
        if hasattr(value, "__dlpack__"):
            return cast(Array, np.from_dlpack(cast(Any, value)))
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputMismatch(
            f"{bind.role} '{bind.name}': {type(value).__name__} gives no host array: {error}"
        ) from error
    wanted = describe(bind.shape, bind.dtype)
    raise InputMismatch(
        f"{bind.role} '{bind.name}': expected an array {wanted}, got {type(value).__name__}; use np.asarray"
    )


def reject_unknown(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raises InputMismatch for the first name that is not known, with the closest or all legal ones."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(known) or 'none'}"
            raise InputMismatch(f"there is no {what} '{name}'; {hint}")


class State:
    """Copies of the parameters and states that programs update; owned by one executable or one GraphExec.

    Args:
        initial: Start values by name, copied.
    """

    def __init__(self, initial: Mapping[str, Array]) -> None:
        self.arrays = {name: copy_of(array) for name, array in initial.items()}
        self.lock = threading.RLock()

    def snapshot(self) -> dict[str, Array]:
        """Copies of all values."""
        with self.lock:
            return {name: array.copy() for name, array in self.arrays.items()}

    def assign(self, values: Mapping[str, object]) -> None:
        """Replaces values. Raises InputMismatch, and changes nothing, if a name, shape or dtype is wrong."""
        reject_unknown(values, list(self.arrays), "state")
        checked: dict[str, Array] = {}
        for name, value in values.items():
            checked[name] = array = np.asarray(value)
            ours = self.arrays[name]
            if array.shape != ours.shape or array.dtype != ours.dtype:
                raise InputMismatch(
                    f"state '{name}': expected {describe_array(ours)}, got {describe_array(array)}"
                )
        with self.lock:
            for name, array in checked.items():
                self.arrays[name][...] = array


class Program:
    """What all GraphExecs of one plan share.

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
        self.plan = plan
        self.threads = threads
        self.code = code
        self.shared = shared
        self.ports = tuple(
            Port.of(bind, index)
            for index, bind in enumerate(plan.graph.binds, ARENA + 1)
            if bind.role in ("input", "output")
        )
        self.inputs = tuple(port for port in self.ports if port.bind.role == "input")
        self.outputs = tuple(port for port in self.ports if port.bind.role == "output")
        self.by_name = {port.bind.name: port for port in self.ports}
        self.weight_roles = {bind.name: bind.role for bind in plan.graph.weights}
        self.consts = {bind.name: read_const(bind) for bind in plan.graph.with_role("const")}

    def fixed_arrays(self, state: State | None) -> dict[int, Array]:
        """The arrays of all binds but inputs and outputs, by index in the pointer table."""
        arrays = {**self.shared(), **self.consts}
        mutable = {} if state is None else state.arrays
        return {
            index: mutable[bind.name] if bind.is_mutable else arrays[bind.name]
            for index, bind in enumerate(self.plan.graph.binds, ARENA + 1)
            if bind.role not in ("input", "output")
        }


class GraphExec:
    """One instance of a program: its own arena and pointer table. For one thread at a time.

    Feeds replace inputs only; parameters and state cannot be bound. Addresses are bound, not copied: a bound
    array is read or written by each `replay`.
    """

    def __init__(self, program: Program, state: State | None = None) -> None:
        self._program = program
        self._state = state
        self._bound: dict[str, Array] = {}
        self._guard = threading.Lock() if state is None else state.lock
        self._run: Callable[[], None] | None = None
        self._ranges: list[tuple[str, tuple[int, int]]] | None = None

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

    def _bind_entry(self) -> Callable[[], None]:
        entry = self._code.entry(self._program.plan.entry)
        table, threads = ctypes.addressof(self._table), self._program.threads
        if threads == 1:
            return entry.bind(0, 1, table)
        calls = [entry.bind(tid, threads, table) for tid in range(threads)]
        return lambda: team_of(threads).run(calls)

    def release(self) -> None:
        """Waits for a replay in flight, then gives arena and code back; bound arrays stay bound."""
        with self._guard:
            self._ranges = None
            if self._run is None:
                return
            self._run = None
            del self._code, self._arena, self._table, self._fixed, self._stages, self._feeds, self._results

    # Zero-copy use

    @property
    def plan(self) -> CapturePlan:
        """The captured plan."""
        return self._program.plan

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the parameters and states that the program updates."""
        return {} if self._state is None else self._state.snapshot()

    def bind(self, arrays: Mapping[str, object]) -> None:
        """Binds inputs and outputs to memory of the caller, without a copy.

        Args:
            arrays: NumPy arrays or DLPack objects by name.

        Raises:
            InputMismatch: unknown name, wrong shape, dtype or strides, a read-only output, or memory of an
                output that overlaps any other binding. Nothing is bound then.
        """
        checked = self.check_bindings(arrays, self._bound)
        with self._guard:
            self._bound.update(checked)
            if self._run is not None:
                for name, array in checked.items():
                    self._table[self._program.by_name[name].index] = address(array)

    def __getitem__(self, name: str) -> Array:
        """The memory of input or output `name`: what was bound, else memory of ours, made now."""
        reject_unknown([name], list(self._program.by_name), "input or output")
        if name not in self._bound:
            self.bind({name: self._program.by_name[name].new_buffer()})
        return self._bound[name]

    def replay(self, n: int = 1) -> None:
        """Runs the program `n` times on what is bound; outputs that nobody bound get memory of ours.

        Raises:
            InputMismatch: an input is not bound.
            CaptureError: another thread is replaying this GraphExec.
        """
        guard = self._guard
        if not guard.acquire(self._state is not None):
            raise CaptureError(
                "this GraphExec is replaying in another thread; make one per thread with instantiate()"
            )
        try:
            run = self._run
            if run is None or len(self._bound) != len(self._program.ports):
                run = self._ready()
            for _ in range(n):
                run()
        finally:
            guard.release()

    def _ready(self) -> Callable[[], None]:
        missing = [port for port in self._program.ports if port.bind.name not in self._bound]
        for port in missing:
            if port.bind.role == "input":
                name = port.bind.name
                raise InputMismatch(f"input '{name}' is not bound; bind() it, or fill graph_exec['{name}']")
        run = self._run or self._acquire()
        for port in missing:
            buffer = self._bound[port.bind.name] = port.new_buffer()
            self._table[port.index] = address(buffer)
        return run

    def check_bindings(self, arrays: Mapping[str, object], others: Mapping[str, Array]) -> dict[str, Array]:
        """`arrays` as NumPy arrays usable in place, beside `others`. Raises InputMismatch (see `bind`)."""
        self._reject_weights(arrays)
        reject_unknown(arrays, list(self._program.by_name), "input or output")
        checked = {
            name: self._check_in_place(self._program.by_name[name], value) for name, value in arrays.items()
        }
        self._reject_overlaps({**others, **checked})
        return checked

    def _check_in_place(self, port: Port, value: object) -> Array:
        array = port.check(value)
        role, name = port.bind.role, port.bind.name
        if not port.fits_in_place(array):
            raise InputMismatch(
                f"{role} '{name}' has strides {array.strides} bytes, zero-copy needs aligned {port.strides}; "
                "use np.ascontiguousarray, or call the executable, which copies"
            )
        if role == "output" and not array.flags.writeable:
            raise InputMismatch(f"output '{name}' is a read-only array; give writable memory")
        return array

    def _reject_weights(self, names: Iterable[str]) -> None:
        weights = self._program.weight_roles
        for name in names:
            if name in weights:
                raise InputMismatch(
                    f"'{name}' is a {weights[name]}, not an input: weights come with the executable"
                )

    def _reject_overlaps(self, arrays: Mapping[str, Array]) -> None:
        """Raises InputMismatch if the memory of an output in `arrays` meets that of any other binding."""
        outputs = [port.bind.name for port in self._program.outputs if port.bind.name in arrays]
        ranges = {name: byte_range(array) for name, array in arrays.items()}
        for name in outputs:
            low, high = ranges[name]
            for other, (start, end) in (*ranges.items(), *self._fixed_ranges()):
                if low < end and start < high and other != name:
                    raise InputMismatch(
                        f"output '{name}' overlaps '{other}' in memory; give it memory of its own"
                    )

    def _fixed_ranges(self) -> list[tuple[str, tuple[int, int]]]:
        """Name and byte range of everything that no caller binds; worked out once."""
        if self._ranges is None:
            binds = self._program.plan.graph.binds
            fixed = self._program.fixed_arrays(self._state).items()
            self._ranges = [(binds[index - ARENA - 1].name, byte_range(array)) for index, array in fixed]
        return self._ranges

    # Calls: used by an executable, which gives every call a GraphExec of its own

    def call(self, args: Sequence[Any]) -> list[Array]:
        """One run on `args` in positional order; fresh arrays of the outputs, in order."""
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
            if not port.fits_in_place(array):
                array, given = port.new_buffer(), array
                array[...] = given
            self._table[index] = address(array)
            keep = [] if keep is None else keep
            keep.append(array)
        return keep

    def call_into(self, args: Sequence[Any], out: Mapping[str, object]) -> dict[str, Array]:
        """As `call`, with the outputs in `out` written in place. Gives all outputs by name."""
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

    def profile_calls(self) -> list[list[Callable[[], None]]] | None:
        """For the empty call and then for each launch: the calls of all threads; None if the code has no such
        entry.

        Inputs must be bound, see `replay`.
        """
        with self._guard:
            self._ready()
            entry = self._code.profile_entry(self._program.plan.entry)
            if entry is None:
                return None
            return [self._profile_call(entry, launch) for launch in range(-1, len(self.plan.launches))]

    def _profile_call(self, entry: ProfileEntry, launch: int) -> list[Callable[[], None]]:
        table, threads = ctypes.addressof(self._table), self._program.threads
        return [entry.bind(launch, tid, threads, table) for tid in range(threads)]


def read_const(bind: Bind) -> Array:
    """The value of a const bind in memory of ours. Raises ArtifactError if it has another size."""
    dtype = numpy_dtype(bind.dtype)
    try:
        values = np.frombuffer(bytes.fromhex(bind.value or ""), dtype)
        dense = values.reshape(bind.shape)
    except ValueError as error:
        raise ArtifactError(
            f"const '{bind.name}' does not hold {describe(bind.shape, bind.dtype)}: {error}"
        ) from error
    array = allocate_tensor(bind.shape, bind.strides, bind.dtype, bind.nbytes)
    array[...] = dense
    return array
