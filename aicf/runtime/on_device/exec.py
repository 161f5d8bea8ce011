"""A program on a device: one block of its memory, a captured graph on it, and the copies to and from the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol, cast

import numpy as np

from aicf.backends.native import DeviceCode, DeviceGraph, DeviceMemory
from aicf.errors import AicfError, ArtifactError, BackendUnavailable, CaptureError, InputMismatch
from aicf.runtime import ranges
from aicf.runtime.capture_plan import ARENA, CapturePlan
from aicf.runtime.dlpack import DeviceView
from aicf.runtime.graph_exec import GraphExec, Span, Timeline
from aicf.runtime.on_device.array import DeviceArray, device_view, host_view
from aicf.runtime.on_device.memory import ALIGN, Block, PinnedBlock, PinnedRows, Queue, padded
from aicf.runtime.on_device.state import DeviceState
from aicf.runtime.on_device.stream import handle_of
from aicf.runtime.on_host.metas import SLOT_BYTES, HostMetas, written_metas
from aicf.runtime.ports import Boundary, Port, reject_unknown
from aicf.runtime.state import State
from aicf.runtime.tensors import Array, address, byte_range

STAGING_BYTES = 32 << 20
"""Inputs and outputs up to this size together go through pinned memory; larger ones are copied from where they are."""

_DESCRIPTORS = "descriptors"
_METAS = "metas"


class Source(Protocol):
    """Gives a GraphExec what it shares with others."""

    def code(self) -> DeviceCode:
        """The loaded code, which is loaded if need be."""
        ...

    def admit(self, plan: CapturePlan, state: State | None) -> None:
        """Raises BackendUnavailable if the memory for one more GraphExec is not there."""
        ...

    def fixed(self, plan: CapturePlan, state: State | None) -> Mapping[int, int]:
        """Addresses of all binds but inputs and outputs, by index in the pointer table."""
        ...


class DeviceProgram(Boundary):
    """What all GraphExecs of one plan on a device share.

    Args:
        plan: The capture plan.
        reserve: Bytes that its graph needs for itself.
    """

    def __init__(self, plan: CapturePlan, reserve: int) -> None:
        super().__init__(plan)
        self.reserve = reserve
        pinned, size = list[Port](), 0
        for port in (*self.inputs, *self.outputs):
            if size + padded(port.bind.nbytes) <= STAGING_BYTES:
                pinned.append(port)
                size += padded(port.bind.nbytes)
        self.pinned = tuple(pinned)
        self.metas = written_metas(plan)

    @property
    def parts(self) -> dict[int | str, int]:
        """What lies in the block of a GraphExec: bytes by index in the pointer table. Every input and output has a
        place, for arrays of the host and for those that the plan stages. Those that go through pinned memory come
        first, inputs before outputs, so that each is one copy."""
        rest = [port for port in self.ports if port not in self.pinned]
        ports = {port.index: port.bind.nbytes for port in (*self.pinned, *rest)}
        metas = {_METAS: SLOT_BYTES * len(self.metas)} if self.metas else {}
        return {**ports, ARENA: self.plan.arena_bytes, _DESCRIPTORS: self.reserve, **metas}

    @property
    def block_bytes(self) -> int:
        """Size of that block."""
        return sum(padded(nbytes) for nbytes in self.parts.values())


@dataclass
class _Staging:
    """Pinned memory that mirrors the first bytes of the block: small inputs and outputs by name."""

    pinned: PinnedBlock
    inputs: int
    outputs: int
    arrays: dict[str, Array]


class _Metas:
    """The metas that the executable writes, in the block of a GraphExec: each run has values of its own in its queue.

    Args:
        plan: The program.
        state: Its state, of which the host has the counters.
        address: Address of the row on the device.
        queue: Where the program runs.
        memory: The device.
    """

    def __init__(
        self, plan: CapturePlan, state: DeviceState, address: int, queue: Queue, memory: DeviceMemory
    ) -> None:
        self._metas = HostMetas(plan, state.arrays, is_copy=True)
        self._rows = PinnedRows(memory, self._metas.nbytes, queue)
        self._address = address

    def queue(self) -> None:
        """Queues the values for the next run."""
        row = self._rows.take()
        self._metas.write(self._rows.view, row)
        self._rows.upload(row, self._address)

    def around(self, run: Callable[[], None]) -> Callable[[], None]:
        """A function that queues the copy of the metas, calls `run`, then keeps what follows from the metas."""
        return self._metas.counted(self.queue, run)


@dataclass
class _DeviceResources:
    """What a GraphExec holds on the device; the fields are dropped in this order, users before what they use.

    `replay` runs the graph, `eagerly` runs instruction by instruction; both copy the metas first.
    `is_proven`: whether all its instructions have run.
    """

    own: dict[str, DeviceArray]
    ranges: list[tuple[str, tuple[int, int]]]
    replay: Callable[[], None]
    eagerly: Callable[[], None]
    metas: _Metas | None
    graph: DeviceGraph
    block: Block
    queue: Queue
    memory: DeviceMemory
    code: DeviceCode
    is_proven: bool = False

    def launch(self) -> None:
        """Runs the program: the first time instruction by instruction, so that one that fails is named, and waits for
        each; from then on as the graph."""
        if self.is_proven:
            self.replay()
        else:
            self.prove()

    def prove(self) -> None:
        """Runs the program instruction by instruction. Raises CaptureError that names the one that fails."""
        self.eagerly()
        self.is_proven = True


@dataclass(frozen=True)
class _Copy:
    """Between bound memory and the program's own place for it, before (`is_input`) or after a run."""

    is_input: bool
    staged: int
    bound: Array | DeviceView
    nbytes: int

    def queue(self, memory: DeviceMemory, stream: int) -> None:
        """Queues the copy."""
        bound, staged, nbytes = self.bound, self.staged, self.nbytes
        if isinstance(bound, DeviceView):
            pair = (staged, bound.address) if self.is_input else (bound.address, staged)
            memory.copy(*pair, nbytes, stream)
        elif self.is_input:
            memory.upload(staged, address(bound), nbytes, stream)
        else:
            memory.download(address(bound), staged, nbytes, stream)


class _CopyingReplay:
    """A run between copies from and to bound memory; it waits for the end if some of that is on the host.

    Args:
        taken: The GraphExec's memory.
        copies: What is copied.
        run: The run.
    """

    def __init__(self, taken: _DeviceResources, copies: Sequence[_Copy], run: Callable[[], None]) -> None:
        self._memory, self._queue = taken.memory, taken.queue
        self._run = run
        self._inputs = [copy for copy in copies if copy.is_input]
        self._outputs = [copy for copy in copies if not copy.is_input]
        self._waits = not all(isinstance(copy.bound, DeviceView) for copy in copies)

    def __call__(self) -> None:
        memory, stream = self._memory, self._queue.handle
        for copy in self._inputs:
            copy.queue(memory, stream)
        self._run()
        for copy in self._outputs:
            copy.queue(memory, stream)
        if self._waits:
            memory.synchronize(stream)


class DeviceGraphExec(GraphExec):
    """See `GraphExec`.

    Args:
        program: Its plan, and what lies where in its memory.
        source: What it shares with others.
        state: What the program updates, None if nothing.
    """

    def __init__(self, program: DeviceProgram, source: Source, state: DeviceState | None = None) -> None:
        super().__init__(program, state)
        self._program = program
        self._source = source
        self._device_state = state
        self._taken: _DeviceResources | None = None
        self._staging: _Staging | None = None
        self._pointed: set[int] = set()

    # Taking and giving back resources

    def _take(self) -> _DeviceResources:
        """Allocates the block and captures the graph on it."""
        if self._taken is not None:
            return self._taken
        program, plan, state = self._program, self.plan, self._device_state
        if plan.arena_align > ALIGN:
            raise CaptureError(
                f"@{plan.name}: the arena asks for an alignment above {ALIGN}; plan memory again"
            )
        code = self._source.code()
        _check_instructions(plan, code)
        self._source.admit(plan, state)
        memory = code.memory
        queue = Queue(memory) if state is None else state.resident().queue
        fixed = self._source.fixed(plan, state)
        block = Block(memory, program.parts, f"instances of @{plan.name}")
        memory.clear(block.address, block.nbytes, queue.handle)
        ports = {port.index: block[port.index] for port in program.ports}
        written = {index: block[_METAS] + offset for index, offset in program.metas.items()}
        table = {ARENA: block[ARENA], **fixed, **ports, **written}
        descriptors = block[_DESCRIPTORS] if program.reserve else 0
        ordered = [table[index] for index in range(plan.table_size)]
        graph = code.capture(plan.entry, ordered, descriptors, queue.handle)
        own = {port.bind.name: DeviceArray(port, block, ports[port.index], queue) for port in program.ports}
        spans = [
            (bind.name, (fixed[index], fixed[index] + bind.nbytes))
            for index, bind in enumerate(plan.graph.binds, ARENA + 1)
            if index in fixed
        ]
        spans.append(("the arena", (block[ARENA], block[ARENA] + plan.arena_bytes)))
        replay, eagerly = graph.launch, partial(graph.run_eagerly, ranges.named)
        metas: _Metas | None = None
        if program.metas:
            assert state is not None
            metas = _Metas(plan, state, block[_METAS], queue, memory)
            replay, eagerly = metas.around(replay), metas.around(eagerly)
        self._taken = _DeviceResources(own, spans, replay, eagerly, metas, graph, block, queue, memory, code)
        return self._taken

    def release(self) -> None:
        """See `GraphExec`."""
        with self._guard:
            taken, self._taken, self._staging, self._run = self._taken, None, None, None
            self._ranges = None
            self._pointed.clear()
            if taken is None:
                return
            self._bound = {
                name: bound for name, bound in self._bound.items() if bound is not taken.own.get(name)
            }
            with suppress(AicfError):  # a broken device has nothing in flight, and says so at the next use
                taken.memory.synchronize(taken.queue.handle)
            if self._device_state is not None:
                self._device_state.release()

    # Zero-copy use

    def __getitem__(self, name: str) -> DeviceArray | DeviceView | Array:
        """See `GraphExec`."""
        reject_unknown([name], list(self._program.by_name), "input or output")
        with self._guard:
            if name not in self._bound:
                self._bound[name] = self._take().own[name]
                self._run = None
            return self._bound[name]

    def _rebound(self, run: Callable[[], None] | None, checked: Mapping[str, object]) -> None:
        if self._taken is not None:
            self._point_at_bound(self._taken)

    def _point_at_bound(self, taken: _DeviceResources) -> None:
        """Points the graph at what is bound directly; arrays of the host, and what the plan stages, stay at ours."""
        pointers: dict[int, int] = {}
        for port in self._program.ports:
            bound = self._bound.get(port.bind.name)
            ours = taken.block[port.index]
            is_pointed = isinstance(bound, DeviceView) and not port.is_staged
            pointers[port.index] = cast(DeviceView, bound).address if is_pointed else ours
        taken.graph.set_pointers(pointers)

    def _ready(self) -> Callable[[], None]:
        taken = self._take()
        self._bind_rest(lambda port: taken.own[port.bind.name])
        self._point_at_bound(taken)
        steady = self._with_copies(taken, taken.replay)
        if not taken.is_proven:
            return partial(self._first_then, taken, steady)
        self._run = steady
        return steady

    def _replay_on(self, stream: object, n: int) -> None:
        """See `GraphExec`. What is bound is of the caller's queue; everything else stays in the order of our own queue,
        which follows the caller's and is followed by it."""
        memory, handle = self._source.code().memory, handle_of(stream)
        if memory.is_capturing(handle):
            self._queue_into_capture(memory, handle, n)
            return
        run = self._run
        if run is None or len(self._bound) != len(self._program.ports):
            run = self._ready()
        queue = self._take().queue
        memory.follow(queue.handle, handle)
        for _ in range(n):
            run()
        memory.follow(handle, queue.handle)

    def _queue_into_capture(self, memory: DeviceMemory, handle: int, n: int) -> None:
        """Queues the instructions one by one, which makes them nodes of the graph that somebody captures."""
        if self._program.metas:
            raise CaptureError(
                f"@{self.plan.name}: the host computes values before each run, which a captured graph would repeat as "
                "they are; compile with meta='device', or replay outside of the capture"
            )
        with memory.beside_capture():
            self._ready()
            taken = self._take()
            memory.synchronize(taken.queue.handle)  # what was queued there is no part of the captured graph
        copies = self._copies(taken)
        if any(isinstance(copy.bound, np.ndarray) for copy in copies):
            name = next(name for name, bound in self._bound.items() if isinstance(bound, np.ndarray))
            raise CaptureError(
                f"@{self.plan.name}: '{name}' is bound to an array of the host, which a captured graph cannot copy; "
                "bind memory of the device"
            )
        for _ in range(n):
            for copy in (copy for copy in copies if copy.is_input):
                copy.queue(memory, handle)
            taken.graph.queue(handle)
            for copy in (copy for copy in copies if not copy.is_input):
                copy.queue(memory, handle)

    def _first_then(self, taken: _DeviceResources, steady: Callable[[], None]) -> None:
        """The first replay of all, see `_DeviceResources.launch`; any other is `steady`."""
        if taken.is_proven:
            steady()
            return
        self._with_copies(taken, taken.prove)()
        self._run = steady

    def _with_copies(self, taken: _DeviceResources, run: Callable[[], None]) -> Callable[[], None]:
        copies = self._copies(taken)
        return _CopyingReplay(taken, copies, run) if copies else run

    def _copies(self, taken: _DeviceResources) -> list[_Copy]:
        """The copies around a replay: for bound arrays of the host, and for what the plan stages."""
        copies: list[_Copy] = []
        for port in self._program.ports:
            bound: Array | DeviceArray | DeviceView = self._bound[port.bind.name]
            if isinstance(bound, DeviceArray) or not port.bind.nbytes:
                continue
            if isinstance(bound, np.ndarray) or port.is_staged:
                is_input, staged = port.bind.role == "input", taken.block[port.index]
                copies.append(_Copy(is_input, staged, bound, port.bind.nbytes))
        return copies

    def synchronize(self) -> None:
        """See `GraphExec`."""
        if (taken := self._taken) is not None:
            taken.memory.synchronize(taken.queue.handle)

    def check(self) -> None:
        """See `GraphExec`."""
        with self._guard:
            self._ready()
            taken = self._take()
            self._with_copies(taken, taken.prove)()

    def instruction_times(self, repeats: int) -> list[list[float]]:
        """See `GraphExec`."""
        with self._guard:
            self._ready()
            taken = self._take()
            if taken.metas is not None:
                taken.metas.queue()
            return taken.graph.instruction_times(repeats)

    def timeline(self, repeats: int) -> Timeline:
        """See `GraphExec`. From the device's own records where there are any, else by events between instructions."""
        with self._guard:
            self._ready()
            taken = self._take()
            if taken.metas is not None:
                taken.metas.queue()
            try:
                found = taken.graph.kernel_spans(repeats)
            except BackendUnavailable as error:
                reason = error.message
            else:
                spans = (
                    Span(each.launch, each.queue, each.start_us, each.duration_us, each.symbol)
                    for each in found
                )
                return Timeline("records of the device", tuple(spans))
        return Timeline(f"events between instructions: {reason}", tuple(self._by_events(repeats)))

    def _by_events(self, repeats: int) -> Iterator[Span]:
        """The instructions in a row, one after the other."""
        start, track = 0.0, self._source.code().memory.name
        for _, *times in self.instruction_times(repeats):
            for launch, duration in enumerate(times):
                yield Span(launch, track, start, duration)
                start += duration

    def _in_place(self, port: Port, value: object) -> DeviceArray | DeviceView | Array:
        taken = self._take()
        view = self._on_device(port, value)
        if view is None:
            return port.check_in_place(value)
        own = taken.own[port.bind.name]
        if value is own:
            return own
        port.check_writable(view.read_only)
        return view

    def _range(self, bound: DeviceArray | DeviceView | Array) -> tuple[int, int]:
        if isinstance(bound, np.ndarray):
            return byte_range(bound)
        view = bound.view if isinstance(bound, DeviceArray) else bound
        return view.address, view.address + view.nbytes

    def _fixed_ranges(self) -> list[tuple[str, tuple[int, int]]]:
        return self._take().ranges

    # Calls

    def call(self, args: Sequence[Any]) -> list[Array]:
        """See `GraphExec`."""
        results = self._run_once(args, {})
        return [results[port.bind.name] for port in self._program.outputs]

    def call_into(self, args: Sequence[Any], out: Mapping[str, object]) -> dict[str, Any]:
        """See `GraphExec`."""
        given = {
            port.bind.name: bound
            for port, value in zip(self._program.inputs, args, strict=True)
            if isinstance(bound := self._in_call(port, value), DeviceView)
        }
        return self._run_once(args, self.check_bindings(out, given))

    def _run_once(self, args: Sequence[Any], out: Mapping[str, Any]) -> dict[str, Any]:
        """One run; outputs by name: those in `out`, and fresh host arrays.

        Arrays of this device are used in place where the plan binds directly, and copied where it stages.
        """
        taken = self._take()
        memory, stream, staging = taken.memory, taken.queue.handle, self._stage(taken)
        pointers: dict[int, int] = {}
        fed = [
            (port, self._feed(taken, staging, port, value, pointers))
            for port, value in zip(self._program.inputs, args, strict=True)
        ]
        if any(source is None for _, source in fed):
            memory.upload(taken.block.address, staging.pinned.address, staging.inputs, stream)
        for port, source in fed:  # after that upload, which overwrites all staged inputs
            if isinstance(source, DeviceView) and port.index not in pointers:
                memory.copy(taken.block[port.index], source.address, port.bind.nbytes, stream)
        after: list[tuple[DeviceView, Port]] = []
        for port in self._program.outputs:
            if isinstance(view := _view_of(out.get(port.bind.name)), DeviceView):
                if port.is_staged:
                    after.append((view, port))
                else:
                    pointers[port.index] = view.address
        self._point(taken, pointers)
        taken.launch()
        for view, port in after:
            memory.copy(view.address, taken.block[port.index], port.bind.nbytes, stream)
        results = self._collect(taken, staging, out)
        del fed
        return results

    def _stage(self, taken: _DeviceResources) -> _Staging:
        if self._staging is None:
            sizes = [(port.bind.role, padded(port.bind.nbytes)) for port in self._program.pinned]
            inputs, outputs = (
                sum(size for role, size in sizes if role == wanted) for wanted in ("input", "output")
            )
            pinned = PinnedBlock(taken.memory, max(inputs + outputs, ALIGN))
            arrays = {
                port.bind.name: host_view(pinned.array, taken.block.offsets[port.index], port)
                for port in self._program.pinned
            }
            self._staging = _Staging(pinned, inputs, outputs, arrays)
        return self._staging

    def _in_call(self, port: Port, value: object) -> DeviceView | Array:
        return self._on_device(port, value) or port.check(value)

    def _on_device(self, port: Port, value: object) -> DeviceView | None:
        """The memory of `value` on this device, as `port` is bound; None if it is on the host.

        Raises InputMismatch: it does not fit, or is bound directly and not aligned so.
        """
        taken = self._take()
        view = device_view(value, port, taken.memory, taken.queue)
        align = port.bind.align or 1
        if view is not None and not port.is_staged and view.address % align:
            raise InputMismatch(
                f"{port.bind.role} '{port.bind.name}' starts at {view.address:#x}, the plan binds it directly at a "
                f"multiple of {align} bytes; copy it into an array of its own"
            )
        return view

    def _feed(
        self, taken: _DeviceResources, staging: _Staging, port: Port, value: object, pointers: dict[int, int]
    ) -> DeviceView | Array | None:
        """Stages one input (None), uploads it, or puts its address into `pointers` if the plan binds it directly.

        Gives what must live until the run is over.
        """
        bound = self._in_call(port, value)
        if isinstance(bound, DeviceView):
            if not port.is_staged:
                pointers[port.index] = bound.address
            return bound
        if (stage := staging.arrays.get(port.bind.name)) is not None:
            stage[...] = bound
            return None
        if not port.fits_in_place(bound):
            bound, given = port.new_buffer(), bound
            bound[...] = given
        taken.memory.upload(taken.block[port.index], address(bound), port.bind.nbytes, taken.queue.handle)
        return bound

    def _point(self, taken: _DeviceResources, pointers: Mapping[int, int]) -> None:
        """Points the graph at `pointers`, and back at ours what the last call had elsewhere."""
        back = {index: taken.block[index] for index in self._pointed - pointers.keys()}
        if pointers or back:
            self._pointed |= pointers.keys()
            taken.graph.set_pointers({**pointers, **back})
            self._pointed = set(pointers)

    def _collect(self, taken: _DeviceResources, staging: _Staging, out: Mapping[str, Any]) -> dict[str, Any]:
        """Copies the outputs to the host where they belong there, waits, and gives them all by name."""
        memory, stream = taken.memory, taken.queue.handle
        results: dict[str, Any] = dict(out)
        staged = False
        for port in self._program.outputs:
            name = port.bind.name
            target = out.get(name)
            if target is None and name in staging.arrays:
                staged = True
            elif target is None or isinstance(target, np.ndarray):
                results[name] = array = port.new_buffer() if target is None else cast(Array, target)
                if port.bind.nbytes:
                    memory.download(address(array), taken.block[port.index], port.bind.nbytes, stream)
        if staged:
            start = staging.inputs
            memory.download(
                staging.pinned.address + start, taken.block.address + start, staging.outputs, stream
            )
        memory.synchronize(stream)
        for port in self._program.outputs:
            if port.bind.name not in results:
                results[port.bind.name] = staging.arrays[port.bind.name].copy()
        return {port.bind.name: results[port.bind.name] for port in self._program.outputs}


def _check_instructions(plan: CapturePlan, code: DeviceCode) -> None:
    """Raises ArtifactError if `code` was not made from `plan`."""
    names = tuple(node.name for node in plan.graph.nodes)
    for ours, theirs in zip_longest(names, code.instructions(plan.entry)):
        if ours != theirs:
            raise ArtifactError(
                f"@{plan.name}: the code runs {_quoted(theirs)} where the plan has {_quoted(ours)}; the file is "
                "corrupt: compile the program again"
            )


def _quoted(name: str | None) -> str:
    return "nothing" if name is None else f"'{name}'"


def _view_of(value: object) -> object:
    return value.view if isinstance(value, DeviceArray) else value
