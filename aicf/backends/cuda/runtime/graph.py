"""Captures a device program: one CUDA graph with explicit nodes and the plan's edges, instantiated once.

Own kernels are added as nodes, library calls are captured into the same graph between the nodes that they depend on;
no edge comes from the order of a stream. Parameters are prepared once. Nothing is decided here: which node waits for
which, and whether early, is in the program.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

from aicf.backends.cuda.runtime.activity import recording
from aicf.backends.cuda.runtime.device import CudaDevice
from aicf.backends.cuda.runtime.device_program import (
    Address,
    DeviceProgram,
    KernelNode,
    LibraryNode,
    Scalar,
    Table,
    TensorMap,
)
from aicf.backends.cuda.runtime.driver import LOST, Arguments, Driver, DriverError, GraphEdge, KernelParams
from aicf.backends.native import DeviceGraph, KernelSpan
from aicf.errors import AicfError, CaptureError

DESCRIPTOR_BYTES = 128
"""Of one tensor map."""


_DESCRIPTOR_ALIGN = 16
"""Bytes: alignment of a tensor that a map describes."""


class LibraryCaller(Protocol):
    """An open library."""

    def call(self, node: LibraryNode, addresses: tuple[int, ...], stream: int) -> None:
        """Queues the call of `node` on `stream`, for its operands at `addresses`. Allocates and waits for nothing."""
        ...


def descriptors_of(program: DeviceProgram) -> tuple[TensorMap, ...]:
    """The different tensor maps of a program, in order of first use."""
    return tuple(dict.fromkeys(map_ for node in program.kernels for map_ in node.maps))


def tables_of(program: DeviceProgram) -> tuple[Table, ...]:
    """The different tables of a program, in order of first use."""
    return tuple(dict.fromkeys(table for node in program.kernels for table in node.tables))


def descriptor_bytes(program: DeviceProgram) -> int:
    """Bytes of device memory for the tensor maps of a program and the tables after them."""
    return DESCRIPTOR_BYTES * len(descriptors_of(program)) + sum(table.nbytes for table in tables_of(program))


@dataclass(frozen=True)
class _Kernel:
    """A kernel node with its parameters, which read the pointer table at `pointers`: argument index to address."""

    node: KernelNode
    params: KernelParams
    pointers: tuple[tuple[int, Address], ...]


class CapturedProgram(DeviceGraph):
    """See `DeviceGraph`.

    Args:
        device: Where it runs.
        program: What is captured.
        functions: The driver's handle of each kernel symbol.
        libraries: The open library of each library function.
        owner: What keeps functions and libraries alive.
        table: Addresses of arena and binds.
        descriptors: Device memory for the tensor maps and tables.
        stream: Where it runs.

    Raises:
        CaptureError: an instruction cannot be captured.
    """

    def __init__(
        self,
        device: CudaDevice,
        program: DeviceProgram,
        functions: Mapping[str, int],
        libraries: Mapping[str, LibraryCaller],
        owner: object,
        table: Sequence[int],
        descriptors: int,
        stream: int,
    ) -> None:
        self._device = device
        self._program = program
        self._libraries = libraries
        self._owner = owner
        self._table = list(table)
        self._stale = set[int]()
        self._descriptors = {
            map_: descriptors + DESCRIPTOR_BYTES * number
            for number, map_ in enumerate(descriptors_of(program))
        }
        tables = tables_of(program)
        sizes = [DESCRIPTOR_BYTES * len(self._descriptors), *(table.nbytes for table in tables)]
        self._tables = {
            table: descriptors + start for table, start in zip(tables, accumulate(sizes), strict=False)
        }
        self._stream = stream
        self._encode(self._descriptors)
        self._fill(self._tables)
        self._kernels = [
            self._prepared(node, functions) if isinstance(node, KernelNode) else None
            for node in program.nodes()
        ]
        self._capture()

    @property
    def launch(self) -> Callable[[], None]:
        return self._launch

    def launch_on(self, stream: int) -> Callable[[], None]:
        """See `DeviceGraph`."""
        return self._device.in_each_thread(self._device.enter().launcher(self._executable, stream))

    def queue(self, stream: int) -> None:
        """See `DeviceGraph`."""
        driver = self._device.enter()
        for node, kernel in zip(self._program.nodes(), self._kernels, strict=True):
            self._queue_node(driver, node, kernel, stream)

    # Parameters

    def _prepared(self, node: KernelNode, functions: Mapping[str, int]) -> _Kernel:
        types: list[str] = []
        values: list[int | float] = []
        pointers: list[tuple[int, Address]] = []
        kinds = {
            "a": iter(node.addresses),
            "m": iter(node.maps),
            "s": iter(node.scalars),
            "t": iter(node.tables),
        }
        for letter in node.order:
            argument = next(kinds[letter])
            if isinstance(argument, Address):
                pointers.append((len(values), argument))
            types.append(argument.type if isinstance(argument, Scalar) else "ptr")
            values.append(self._value(argument))
        sizes = (node.grid, node.block, node.cluster, node.shared_bytes)
        return _Kernel(
            node, KernelParams(functions[node.symbol], *sizes, Arguments(types, values)), tuple(pointers)
        )

    def _value(self, argument: Address | TensorMap | Table | Scalar) -> int | float:
        match argument:
            case Address():
                return self._at(argument)
            case TensorMap():
                return self._descriptors[argument]
            case Table():
                return self._tables[argument]
            case Scalar():
                return argument.value

    def _at(self, operand: Address | TensorMap) -> int:
        return self._table[operand.base] + operand.offset

    def _encode(self, maps: Mapping[TensorMap, int]) -> None:
        """Writes the descriptors of `maps` to their addresses, after the work that is queued."""
        for map_, target in maps.items():
            block = ctypes.create_string_buffer(self._encoded(map_), DESCRIPTOR_BYTES)
            self._device.upload(target, ctypes.addressof(block), DESCRIPTOR_BYTES, self._stream)

    def _fill(self, tables: Mapping[Table, int]) -> None:
        """Writes `tables` to their addresses, after the work that is queued."""
        for table, target in tables.items():
            words = (*table.numbers, *map(self._at, table.addresses))
            block = (ctypes.c_uint64 * len(words))(*words)
            self._device.upload(target, ctypes.addressof(block), table.nbytes, self._stream)

    def _encoded(self, map_: TensorMap) -> bytes:
        """The descriptor of `map_`. Raises CaptureError that names the instruction which copies through it."""
        name, address = next(node.name for node in self._program.kernels if map_ in node.maps), self._at(map_)
        if address % _DESCRIPTOR_ALIGN:
            raise CaptureError(
                f"instruction '{name}' copies a tensor at {address:#x} in bulk, which needs a multiple of "
                f"{_DESCRIPTOR_ALIGN}; bind memory that is aligned so"
            )
        try:
            return self._device.enter().encode(map_, address)
        except AicfError as error:
            raise CaptureError(f"instruction '{name}' cannot be captured: {error.message}") from error

    # The graph

    def _capture(self) -> None:
        driver = self._device.enter()
        handles = ExitStack()
        with handles:
            graph = driver.new_graph()
            handles.callback(self._device.close, driver.close_graph, graph)
            ends: list[tuple[int, ...]] = []
            for number, node in enumerate(self._program.nodes()):
                ends.append(self._add(driver, graph, number, _edges(node, ends)))
            self._node_of = [end[0] for end in ends]
            self._executable = _instantiated(driver, graph, self._stream, self._program)
            handles.callback(self._device.close, driver.close_executable, self._executable)
            self._launch = self._device.in_each_thread(driver.launcher(self._executable, self._stream))
            close = weakref.finalize(self, handles.pop_all().close)
            close.atexit = False  # the driver gives everything back by itself, and may be gone by then

    def _add(self, driver: Driver, graph: int, number: int, after: Sequence[GraphEdge]) -> tuple[int, ...]:
        """Adds node `number`; the graph nodes that later ones wait for."""
        node, kernel = self._program.nodes()[number], self._kernels[number]
        try:
            if kernel is not None:
                return (driver.add_kernel(graph, kernel.params, after),)
            assert isinstance(node, LibraryNode)
            sources = [edge.node for edge in after]
            ends = driver.capture(graph, self._stream, sources, self._library_call(node))
        except AicfError as error:
            raise CaptureError(f"instruction '{node.name}' cannot be captured: {error.message}") from error
        if set(ends) <= set(sources):
            raise CaptureError(
                f"instruction '{node.name}' cannot be captured: {node.function} queued nothing; choose another "
                "kernel in the policy"
            )
        return ends

    def _library_call(self, node: LibraryNode, stream: int | None = None) -> Callable[[], None]:
        addresses = tuple(self._at(address) for address in node.addresses)
        on = self._stream if stream is None else stream
        return lambda: self._libraries[node.function].call(node, addresses, on)

    def set_pointers(self, pointers: Mapping[int, int]) -> None:
        """See `DeviceGraph`. Parameters of the kernels that use an entry are changed in place and its tensor maps
        and tables written again; a library call has its addresses inside."""
        changed = {index for index, address in pointers.items() if self._table[index] != address}
        self._check_changeable(changed)
        changed |= self._stale
        self._stale = changed  # until all that uses them is changed: a call in between may fail
        for index, address in pointers.items():
            self._table[index] = address
        self._encode({map_: target for map_, target in self._descriptors.items() if map_.base in changed})
        self._fill({table: target for table, target in self._tables.items() if _uses(table, changed)})
        driver = self._device.enter()
        for number, kernel in enumerate(self._kernels):
            if kernel is None or not any(address.base in changed for _, address in kernel.pointers):
                continue
            for index, address in kernel.pointers:
                kernel.params.arguments[index] = self._at(address)
            driver.set_kernel(self._executable, self._node_of[number], kernel.params)
        self._stale = set[int]()

    def _check_changeable(self, changed: Set[int]) -> None:
        for node in self._program.libraries:
            if any(address.base in changed for address in node.addresses):
                raise CaptureError(
                    f"instruction '{node.name}' has an address inside that is to change; stage that input or output in "
                    "the plan"
                )

    # One instruction at a time

    def run_eagerly(self, around: Callable[[str], AbstractContextManager[Any]]) -> None:
        driver = self._device.enter()
        for node, kernel in zip(self._program.nodes(), self._kernels, strict=True):
            try:
                with around(node.name):
                    self._queue_node(driver, node, kernel, self._stream)
                    driver.synchronize(self._stream)
            except DriverError as error:
                lost = LOST if error.is_sticky else ""
                raise CaptureError(f"instruction '{node.name}' failed: {error.failure}{lost}") from error
            except AicfError as error:
                raise CaptureError(f"instruction '{node.name}' failed: {error.message}") from error

    def instruction_times(self, repeats: int) -> list[list[float]]:
        """See `DeviceGraph`. A graph of its own, in which the nodes stand in a row with events between."""
        driver = self._device.enter()
        with ExitStack() as cleanup:
            graph = driver.new_graph()
            cleanup.callback(driver.close_graph, graph)
            events = self._add_in_a_row(driver, graph, cleanup)
            executable = _instantiated(driver, graph, self._stream, self._program)
            cleanup.callback(driver.close_executable, executable)
            launch = driver.launcher(executable, self._stream)
            samples: list[list[float]] = []
            for _ in range(repeats):
                launch()
                driver.synchronize(self._stream)
                samples.append([1e3 * driver.milliseconds(*pair) for pair in pairwise(events)])
            return samples

    def kernel_spans(self, repeats: int) -> list[KernelSpan]:
        """See `DeviceGraph`. The instructions are queued one by one, so that each kernel is known to be of one."""
        driver = self._device.enter()
        numbers = {
            name: number for number, name in enumerate(dict.fromkeys(n.name for n in self._program.nodes()))
        }
        with recording() as recorder:
            for _ in range(repeats):
                for node, kernel in zip(self._program.nodes(), self._kernels, strict=True):
                    with recorder.instruction(numbers[node.name]):
                        self._queue_node(driver, node, kernel, self._stream)
                driver.synchronize(self._stream)
        found = recorder.found()
        first = found[0].start_ns if found else 0
        return [
            KernelSpan(
                time.launch,
                time.symbol,
                f"stream {time.stream}",
                (time.start_ns - first) / 1e3,
                (time.end_ns - time.start_ns) / 1e3,
            )
            for time in found
        ]

    def _queue_node(
        self, driver: Driver, node: KernelNode | LibraryNode, kernel: _Kernel | None, stream: int
    ) -> None:
        if kernel is not None:
            driver.run(kernel.params, stream)
        else:
            assert isinstance(node, LibraryNode)
            self._library_call(node, stream)()

    def _add_in_a_row(self, driver: Driver, graph: int, cleanup: ExitStack) -> list[int]:
        """Adds all nodes, each after the one before; the events around an empty gap and around each instruction."""
        events: list[int] = []
        after: tuple[int, ...] = ()

        def mark() -> None:
            nonlocal after
            events.append(driver.open_event())
            cleanup.callback(driver.close_event, events[-1])
            after = (driver.add_event(graph, events[-1], after),)

        mark()
        previous = None
        for number, node in enumerate(self._program.nodes()):
            if node.name != previous:
                mark()
            after = self._add(driver, graph, number, [GraphEdge(end) for end in after])
            previous = node.name
        mark()
        return events


def _uses(table: Table, entries: Set[int]) -> bool:
    return any(address.base in entries for address in table.addresses)


def _edges(node: KernelNode | LibraryNode, ends: Sequence[tuple[int, ...]]) -> list[GraphEdge]:
    """The edges of a node between graph nodes, once each; a full edge takes the place of an early one."""
    edges: dict[int, bool] = {}
    for dependency in node.after:
        for end in ends[dependency.node]:
            edges[end] = edges.get(end, True) and dependency.programmatic
    return [GraphEdge(end, programmatic) for end, programmatic in edges.items()]


def _instantiated(driver: Driver, graph: int, stream: int, program: DeviceProgram) -> int:
    try:
        return driver.instantiate(graph, stream)
    except DriverError as error:
        raise CaptureError(f"the graph of entry '{program.entry}' cannot be made: {error.message}") from error
