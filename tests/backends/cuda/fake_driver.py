"""A CUDA driver without a GPU: it records every call, and runs what is queued late and in any legal order.

Device memory is host memory, kernels are Python functions on addresses. Work runs only when somebody waits for it, so a
missing wait shows as a wrong result; a graph runs in a random order that its edges allow, so a missing edge does too;
fresh memory is poisoned.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.runtime.driver import DeviceFacts, DriverError, GraphEdge, KernelParams
from aicf.errors import BackendUnavailable

HOPPER = DeviceFacts("Fake H100", 90, 1 << 24, 132, 13000)
LEGACY_STREAM = 1
POISON = 0xA5

Kernel = Callable[[list[int]], None]
"""What a kernel does, on the values of its arguments."""


@dataclass
class _Node:
    """A kernel or event of a graph, or one captured call."""

    after: list[GraphEdge]
    kernel: KernelParams | None = None
    values: list[int] = field(default_factory=list)
    work: Callable[[], None] | None = None


@dataclass
class FakeDriver:
    """See `driver.Driver`.

    Args:
        device: The GPU it pretends to have; None for none.
        gpus: How many of it.
        kernels: What each symbol does.
        seed: Of the orders in which graphs run.
        failures: Error codes by name: of calls, and of kernels that break the context.
        fail_at: The length of `calls` at which a call fails, once.
    """

    device: DeviceFacts | None = HOPPER
    gpus: int = 1
    kernels: dict[str, Kernel] = field(default_factory=dict)
    seed: int = 0
    calls: list[tuple[str, Any]] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    fail_at: int | None = None
    broken: int = 0
    blocks: dict[int, Any] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    pinned: dict[int, Any] = field(default_factory=dict)
    freed: list[Any] = field(default_factory=list)
    queues: dict[int, list[Callable[[], None]]] = field(default_factory=lambda: {LEGACY_STREAM: []})
    done: dict[int, int] = field(default_factory=dict)
    events: dict[int, tuple[int, int]] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    graphs: dict[int, dict[int, _Node]] = field(default_factory=dict)
    executables: dict[int, dict[int, _Node]] = field(default_factory=dict)
    contexts: int = 0
    _capture_mode: int = 0
    capturing: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    last: int = 1 << 40

    # Helpers

    def _note(self, name: str, argument: Any = None) -> None:
        self.calls.append((name, argument))
        code = self.broken or self.failures.get(name, 0)
        if len(self.calls) == self.fail_at:
            self.fail_at, code = None, code or 1
        if code:
            error = DriverError(name, code, f"fake error {code}")
            if error.is_sticky:
                self.broken = code
            raise error

    def _handle(self) -> int:
        self.last += 4096
        return self.last

    def _queue(self, stream: int, work: Callable[[], None]) -> None:
        self.queues[stream].append(work)

    def _drain(self, stream: int, until: int | None = None) -> None:
        """Runs what a stream holds, up to work number `until`."""
        queue = self.queues[stream]
        while queue and (until is None or self.done.get(stream, 0) < until):
            self.done[stream] = self.done.get(stream, 0) + 1
            queue.pop(0)()

    def named(self, name: str) -> list[Any]:
        """The arguments of all calls of one function."""
        return [argument for called, argument in self.calls if called == name]

    # Devices

    def count(self) -> int:
        self._note("count")
        return 0 if self.device is None else self.gpus

    def facts(self, device: int) -> DeviceFacts:
        self._note("facts", device)
        assert self.device is not None and device < self.gpus
        return self.device

    def retain(self, device: int) -> int:
        self._note("retain", device)
        self.contexts += 1
        return 7

    def release(self, device: int) -> None:
        self._note("release", device)
        self.contexts -= 1

    def make_current(self, context: int) -> None:
        self._note("make_current", context)

    # Memory

    @property
    def live_bytes(self) -> int:
        return sum(self.sizes.values())

    def allocate(self, nbytes: int) -> int:
        self._note("allocate", nbytes)
        free, total = self.available()
        if nbytes > free:
            raise BackendUnavailable(
                f"{nbytes:,} bytes of GPU memory cannot be allocated ({free:,} of {total:,} are free)"
            )
        raw = np.full(nbytes + 256, POISON, np.uint8)
        address = raw.ctypes.data + -raw.ctypes.data % 256
        self.blocks[address], self.sizes[address] = raw, nbytes
        return address

    def free(self, address: int) -> None:
        self._note("free", address)
        for stream in self.queues:
            self._drain(stream)
        self.blocks.pop(address)[:] = POISON
        del self.sizes[address]

    def allocate_pinned(self, nbytes: int) -> int:
        self._note("allocate_pinned", nbytes)
        raw = np.full(nbytes, POISON, np.uint8)
        self.pinned[raw.ctypes.data] = raw
        return raw.ctypes.data

    def free_pinned(self, address: int) -> None:
        """Waits for nothing: a copy that is still queued reads what is in the memory now."""
        self._note("free_pinned", address)
        self.freed.append(self.pinned.pop(address))
        self.freed[-1][:] = POISON

    def available(self) -> tuple[int, int]:
        assert self.device is not None
        return self.device.memory_bytes - self.live_bytes, self.device.memory_bytes

    def _is_pinned(self, address: int) -> bool:
        return any(start <= address < start + raw.nbytes for start, raw in self.pinned.items())

    def _check_device(self, address: int, nbytes: int) -> None:
        inside = (start <= address and address + nbytes <= start + size for start, size in self.sizes.items())
        assert any(inside), f"{nbytes} bytes at {address:#x} are not in memory of the device"

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._note("upload", nbytes)
        self._check_device(target, nbytes)
        if self._is_pinned(source):
            self._queue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)
        else:
            data = ctypes.string_at(source, nbytes)
            self._queue(stream, lambda: ctypes.memmove(target, data, nbytes) and None)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._note("download", nbytes)
        self._check_device(source, nbytes)
        self._queue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._note("copy", nbytes)
        self._queue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)

    def clear(self, target: int, nbytes: int, stream: int) -> None:
        self._note("clear", nbytes)
        self._check_device(target, nbytes)
        self._queue(stream, lambda: ctypes.memset(target, 0, nbytes) and None)

    # Streams and events

    def open_stream(self, priority: int = 0) -> int:
        self._note("open_stream", priority)
        stream = self._handle()
        self.queues[stream] = []
        return stream

    def close_stream(self, stream: int) -> None:
        self._note("close_stream", stream)
        self._drain(stream)
        del self.queues[stream]

    def synchronize(self, stream: int) -> None:
        self._note("synchronize", stream)
        self._drain(stream)

    def synchronize_all(self) -> None:
        self._note("synchronize_all")
        for stream in self.queues:
            self._drain(stream)

    def is_capturing(self, stream: int) -> bool:
        self._note("is_capturing", stream)
        return stream in self.capturing

    def exchange_capture_mode(self, mode: int) -> int:
        self._note("exchange_capture_mode", mode)
        before, self._capture_mode = self._capture_mode, mode
        return before

    def open_event(self) -> int:
        self._note("open_event")
        return self._handle()

    def close_event(self, event: int) -> None:
        self._note("close_event", event)

    def record(self, event: int, stream: int) -> None:
        self._note("record", stream)
        self.events[event] = (stream, self.done.get(stream, 0) + len(self.queues[stream]))

    def wait(self, stream: int, event: int) -> None:
        self._note("wait", stream)
        other, position = self.events[event]
        self._queue(stream, lambda: self._drain(other, position))

    def is_over(self, event: int) -> bool:
        self._note("is_over", event)
        stream, position = self.events[event]
        return self.done.get(stream, 0) >= position

    def wait_for(self, event: int) -> None:
        self._note("wait_for", event)
        self._drain(*self.events[event])

    def milliseconds(self, start: int, end: int) -> float:
        self._note("milliseconds")
        return 0.004

    # Code

    def load(self, image: bytes) -> int:
        self._note("load", image)
        module = self._handle()
        self.modules[module] = image.decode()
        return module

    def unload(self, module: int) -> None:
        self._note("unload", module)
        del self.modules[module]

    def function(self, module: int, symbol: str) -> int:
        self._note("function", symbol)
        assert symbol in self.kernels
        function = self._handle()
        self.functions[function] = symbol
        return function

    def allow_shared(self, function: int, nbytes: int) -> None:
        self._note("allow_shared", (self.functions[function], nbytes))

    def encode(self, tensor: TensorMap, address: int) -> bytes:
        """Not NVIDIA's form: the address in the first eight bytes."""
        self._note("encode", (tensor, address))
        return address.to_bytes(8, "little").ljust(128, b"\0")

    def run(self, kernel: KernelParams, stream: int) -> None:
        symbol = self.functions[kernel.function]
        self._note("run", symbol)
        if symbol in self.failures:
            self.broken = self.failures[symbol]
        values = _values(kernel)
        if stream in self.capturing:
            graph, ends = self.capturing[stream]
            ends[:] = [self._add(graph, _Node([GraphEdge(node) for node in ends], kernel, values))]
        else:
            self._queue(stream, lambda: self.kernels[symbol](values))

    # Graphs

    def new_graph(self) -> int:
        self._note("new_graph")
        graph = self._handle()
        self.graphs[graph] = {}
        return graph

    def _add(self, graph: int, node: _Node) -> int:
        assert all(edge.node in self.graphs[graph] for edge in node.after)
        handle = self._handle()
        self.graphs[graph][handle] = node
        return handle

    def add_kernel(self, graph: int, kernel: KernelParams, after: Sequence[GraphEdge]) -> int:
        self._note("add_kernel", (self.functions[kernel.function], tuple(after)))
        return self._add(graph, _Node(list(after), kernel, _values(kernel)))

    def add_event(self, graph: int, event: int, after: Sequence[int]) -> int:
        self._note("add_event", event)
        return self._add(graph, _Node([GraphEdge(node) for node in after], work=lambda: None))

    def capture(
        self, graph: int, stream: int, after: Sequence[int], work: Callable[[], None]
    ) -> tuple[int, ...]:
        self._note("capture", tuple(after))
        self.capturing[stream] = (graph, list(after))
        try:
            work()
        finally:
            _, ends = self.capturing.pop(stream)
        return tuple(ends)

    def library_call(self, stream: int, work: Callable[[], None]) -> None:
        """What a library queues: captured while the stream captures."""
        if stream in self.capturing:
            graph, ends = self.capturing[stream]
            ends[:] = [self._add(graph, _Node([GraphEdge(node) for node in ends], work=work))]
        else:
            self._queue(stream, work)

    def instantiate(self, graph: int, stream: int) -> int:
        self._note("instantiate", graph)
        executable = self._handle()
        self.executables[executable] = {
            handle: _Node(node.after, node.kernel, list(node.values), node.work)
            for handle, node in self.graphs[graph].items()
        }
        return executable

    def launcher(self, executable: int, stream: int) -> Callable[[], None]:
        self._note("launcher", executable)

        def launch() -> None:
            self._note("launch", executable)
            nodes = {
                handle: _Node(node.after, node.kernel, list(node.values), node.work)
                for handle, node in self.executables[executable].items()
            }
            self._queue(stream, lambda: self._run_graph(nodes))

        return launch

    def _run_graph(self, nodes: dict[int, _Node]) -> None:
        pick = random.Random(self.seed)
        self.seed += 1
        waiting = {handle: {edge.node for edge in node.after} for handle, node in nodes.items()}
        while waiting:
            handle = pick.choice([handle for handle, sources in waiting.items() if not sources])
            del waiting[handle]
            for sources in waiting.values():
                sources.discard(handle)
            node = nodes[handle]
            if node.work is not None:
                node.work()
            else:
                assert node.kernel is not None
                self.kernels[self.functions[node.kernel.function]](node.values)

    def set_kernel(self, executable: int, node: int, kernel: KernelParams) -> None:
        self._note("set_kernel", self.functions[kernel.function])
        self.executables[executable][node].values = _values(kernel)

    def close_graph(self, graph: int) -> None:
        self._note("close_graph", graph)
        del self.graphs[graph]

    def close_executable(self, executable: int) -> None:
        self._note("close_executable", executable)
        del self.executables[executable]


def _values(kernel: KernelParams) -> list[int]:
    return [int(kernel.arguments[index]) for index in range(len(kernel.arguments))]
