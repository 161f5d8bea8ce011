"""Replaying one captured program on memory that its caller bound: what is the same wherever programs run.

The path never changes, only the inputs do: nothing here looks at an instruction. Which program runs for which input is
decided by `executable`; where arena, weights and state lie is in `on_host` and `on_device`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from aicf.errors import CaptureError, InputMismatch, quoted
from aicf.runtime import ranges
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.on_device.array import DeviceArray
from aicf.runtime.ports import Boundary, Port, reject_unknown
from aicf.runtime.state import State, StatePart
from aicf.runtime.tensors import Array
from aicf.support.arguments import mapping_from
from aicf.support.whole_numbers import is_whole

Bound: TypeAlias = Any
"""What an input or output is bound to: an array, or memory of a device."""


def check_runs(n: object) -> None:
    """Raises InputMismatch for what is no number of runs: a whole number of at least 1."""
    if (type(n) is not int or n < 1) and not is_whole(
        n, least=1
    ):  # an `int` is the common case, and told sooner
        raise InputMismatch(f"{quoted(n)} is no number of runs; give a whole one, 1 or more")


@dataclass(frozen=True)
class Span:
    """One piece of work: an instruction by its number in launch order, on a thread or queue by name.

    Times are microseconds from the start of the recording. `symbol` is the device's name of the kernel, empty where an
    instruction is not recorded kernel by kernel.
    """

    launch: int
    track: str
    start_us: float
    duration_us: float
    symbol: str = ""


@dataclass(frozen=True)
class Timeline:
    """Spans in order of their start, and how they were recorded, in words."""

    method: str
    spans: tuple[Span, ...]


class GraphExec(ABC):
    """One instance of a program: its own arena and pointer table. For one thread at a time.

    Feeds replace inputs only; parameters and state cannot be bound. Addresses are bound, not copied: a bound array is
    read or written by each `replay`.

    Args:
        boundary: Inputs and outputs of the program.
        state: What the program updates, None if nothing.
    """

    def __init__(self, boundary: Boundary, state: State | None) -> None:
        self._boundary = boundary
        self._state = state
        self._bound: dict[str, Bound] = {}
        own = threading.Lock()
        self._guard = own if state is None else state.lock
        self._is_busy = own.locked  # never with a state, on which replays take turns
        self._run: Callable[[], None] | None = None
        self._ranges: list[tuple[str, tuple[int, int]]] | None = None

    @property
    def plan(self) -> CapturePlan:
        """The captured plan."""
        return self._boundary.plan

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the parameters and states that the program updates."""
        return {} if self._state is None else self._state.snapshot()

    def take_state(self, other: GraphExec, parts: Sequence[StatePart]) -> None:
        """Takes parts of the state of another GraphExec, on a device without the host: as a cache that grows.

        Raises InputMismatch, and changes nothing, if one of the two has no state, or a part does not fit.
        """
        if self._state is None or other._state is None:
            program = self if self._state is None else other
            raise InputMismatch(f"@{program.plan.name} updates nothing, so it has no state to copy")
        self._state.take(other._state, parts)

    # Binding

    def bind(self, arrays: Mapping[str, object]) -> None:
        """Binds inputs and outputs to memory of the caller, without a copy.

        Args:
            arrays: Arrays by name: NumPy arrays or anything with DLPack, and on a device also anything with
                `__cuda_array_interface__`. Host arrays bound to a program on a device are copied at each replay.

        Raises:
            InputMismatch: unknown name, wrong shape, dtype or strides, a read-only output, or memory of an
                output that overlaps any other binding. Nothing is bound then.
        """
        arrays = mapping_from(arrays, InputMismatch, "what is bound")
        checked = self.check_bindings(arrays, self._bound)
        with self._guard:
            # Without a run until all is in place: an interruption in between has the next replay take everything anew.
            run, self._run = self._run, None
            self._bound.update(checked)
            self._run = self._rebound(run, checked)

    @abstractmethod
    def __getitem__(self, name: str) -> Bound:
        """The memory of input or output `name`: what was bound, else memory of ours."""

    def fill(self, arrays: Mapping[str, object]) -> None:
        """Copies values into the memory of inputs, by name. Raises InputMismatch if one does not fit."""
        for name, value in mapping_from(arrays, InputMismatch, "what is filled in").items():
            memory = self[name]
            if isinstance(memory, DeviceArray):
                memory.assign(value)
            elif isinstance(memory, np.ndarray):
                memory[...] = self._boundary.by_name[name].check(value)
            else:
                raise InputMismatch(f"input '{name}' is bound to memory of another library; fill it there")

    @abstractmethod
    def _rebound(
        self, run: Callable[[], None] | None, checked: Mapping[str, Bound]
    ) -> Callable[[], None] | None:
        """Lets the program use what was just bound: its run after that; None if it has to be made anew."""

    # Running

    def replay(self, n: int = 1, *, stream: object = None) -> None:
        """Runs the program `n` times on what is bound; outputs that nobody bound get memory of ours.

        On a device it returns as soon as the runs are queued, see `synchronize`, unless host arrays are bound. The
        first run of a GraphExec goes instruction by instruction there, as `check` does, so that one that fails is
        named; all others are one launch of its graph.

        Args:
            n: How often.
            stream: A queue of the device that the runs take a place in: after what it holds now, before what it is
                given later. A `Stream` of the device, a stream of PyTorch, CuPy or cuda.core, or a handle. If somebody
                captures it, the instructions become a part of that graph, with the addresses that are bound now: keep
                this GraphExec, and leave its bindings, as long as that graph is used.

        Raises:
            InputMismatch: an input is not bound, `n` is no whole number of at least 1, or `stream` is no queue of a
                device that the program runs on.
            CaptureError: another thread is replaying this GraphExec, or an instruction of the first run fails; or what
                captures `stream` would repeat what the host does around each run.
        """
        check_runs(n)
        if self._is_busy():
            raise CaptureError(
                "this GraphExec is replaying in another thread; make one per thread with instantiate()"
            )
        with self._guard:
            if stream is not None:
                self._replay_on(stream, n)
                return
            run = self._run
            if run is None or len(self._bound) != len(self._boundary.ports):
                run = self._ready()
            if ranges.is_open():
                self._replay_named(run, n)
                return
            for _ in range(n):
                run()

    @abstractmethod
    def _replay_on(self, stream: object, n: int) -> None:
        """Runs the program in a caller's queue, see `replay`."""

    def _replay_named(self, run: Callable[[], None], n: int) -> None:
        for _ in range(n):
            with ranges.named(self.plan.name):
                run()

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for the replays that are queued. Raises AicfError if one failed."""

    def check(self) -> None:
        """Runs the program once, instruction by instruction where it runs on a device, and waits for it.

        Raises CaptureError that names the instruction that fails.
        """
        self.replay()
        self.synchronize()

    @abstractmethod
    def instruction_times(self, repeats: int) -> list[list[float]] | None:
        """For each repeat, microseconds of nothing and then of each instruction in launch order.

        None if the code has no way to run single instructions. Inputs must be bound, see `replay`.
        """

    @abstractmethod
    def timeline(self, repeats: int) -> Timeline | None:
        """Runs the program so often instruction by instruction; where and when each ran. None, and bound inputs, as of
        `instruction_times`."""

    @abstractmethod
    def release(self) -> None:
        """Waits for a replay in flight, then gives arena and code back; bound arrays stay bound."""

    @abstractmethod
    def _ready(self) -> Callable[[], None]:
        """Takes what is missing for a replay; what `replay` calls."""

    def _bind_rest(self, new: Callable[[Port], Bound]) -> dict[str, Bound]:
        """Binds outputs that nobody bound. Raises InputMismatch if an input is not bound."""
        missing = [port for port in self._boundary.ports if port.bind.name not in self._bound]
        for port in missing:
            if port.bind.role == "input":
                name = port.bind.name
                raise InputMismatch(f"input '{name}' is not bound; bind() it, or fill graph_exec['{name}']")
        fresh = {port.bind.name: new(port) for port in missing}
        self._bound.update(fresh)
        return fresh

    # Calls: used by an executable, which gives every call a GraphExec of its own

    @abstractmethod
    def call(self, args: Sequence[Any]) -> list[Array]:
        """One run on `args` in positional order; fresh arrays of the outputs, in order."""

    @abstractmethod
    def call_into(self, args: Sequence[Any], out: Mapping[str, object]) -> dict[str, Array]:
        """As `call`, with the outputs in `out` written in place. Gives all outputs by name."""

    # Checks

    def check_bindings(self, arrays: Mapping[str, object], others: Mapping[str, Bound]) -> dict[str, Bound]:
        """`arrays` as memory usable in place, beside `others`. Raises InputMismatch (see `bind`)."""
        self._reject_weights(arrays)
        by_name = self._boundary.by_name
        reject_unknown(arrays, list(by_name), "input or output")
        checked = {name: self._in_place(by_name[name], value) for name, value in arrays.items()}
        self._reject_overlaps({**others, **checked})
        return checked

    @abstractmethod
    def _in_place(self, port: Port, value: object) -> Bound:
        """`value` as memory that the program can use for `port`. Raises InputMismatch."""

    @abstractmethod
    def _range(self, bound: Bound) -> tuple[int, int]:
        """Addresses of the first and past the last byte."""

    @abstractmethod
    def _fixed_ranges(self) -> list[tuple[str, tuple[int, int]]]:
        """Name and byte range of everything that no caller binds."""

    def _reject_weights(self, names: Iterable[str]) -> None:
        weights = self._boundary.weight_roles
        for name in names:
            if name in weights:
                raise InputMismatch(
                    f"'{name}' is a {weights[name]}, not an input: weights come with the executable"
                )

    def _reject_overlaps(self, bound: Mapping[str, Bound]) -> None:
        """Raises InputMismatch if the memory of an output in `bound` meets that of any other binding."""
        outputs = [port.bind.name for port in self._boundary.outputs if port.bind.name in bound]
        if outputs and self._ranges is None:
            self._ranges = self._fixed_ranges()
        ranges = {name: self._range(memory) for name, memory in bound.items()}
        for name in outputs:
            low, high = ranges[name]
            for other, (start, end) in (*ranges.items(), *(self._ranges or ())):
                if low < end and start < high and other != name:
                    raise InputMismatch(
                        f"output '{name}' overlaps '{other}' in memory; give it memory of its own"
                    )
