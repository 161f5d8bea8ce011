"""Timing cases on the GPU of this machine: inside a captured graph of many runs, as a program would run them.

Between two runs stands the neighbour, a small instruction of the model, if it has one: it leaves room on the
multiprocessors, where the next run may begin early. Before a cold launch of the graph the cache is overwritten, and
each run has weights and constants of its own, which so come from memory; what the program computes stays where the
instruction before would have left it. Work without weights has all of its operands for itself. Warm runs share all
operands. Launches are short and have pauses between: a GPU that works without a break lowers its clock, and what is
measured last would lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from time import sleep

import numpy as np

from aicf.backends.cuda.runtime.device import CudaDevice
from aicf.backends.cuda.runtime.device_program import (
    Dependency,
    DeviceModule,
    DeviceProgram,
    KernelNode,
    LibraryNode,
)
from aicf.backends.cuda.runtime.driver import DriverError, version_text
from aicf.backends.cuda.runtime.graph import descriptor_bytes
from aicf.backends.cuda.runtime.library import Offer, installed, library_of, module_of, offered
from aicf.backends.cuda.runtime.loader import CudaCode
from aicf.backends.cuda.runtime.storage import read, stored
from aicf.backends.native import NativeCode
from aicf.errors import BackendUnavailable
from aicf.runtime.tensors import Array
from aicf.tuning.cases import Case, Memory, Setting
from aicf.tuning.host_device import fill
from aicf.tuning.measure import Runnable, Samples, Variant, rounds_by_time

RUNS = 32
"""Most runs in one launch of the graph; its own start is then a small part of the time."""
LAUNCH_US = 600
"""About how long a launch may take; a long run needs fewer of its kind beside it."""
PAUSE_S = 0.002
"""Between launches."""
LAUNCHES = 9
WARM_UP = 2
ROUNDS = 5
"""Of two programs that are compared."""
FLUSH_BYTES = 192 << 20
"""Written before a cold launch; several times the largest L2 cache."""
ALGORITHMS = 8
"""Most algorithms of a library call that are measured."""

_LENGTHS = (1, 2, 4, 8, 16, 32)
"""Runs in one launch."""
_ALIGN = 256
_RANDOM_BYTES = 4 << 20
"""Made on the host for each element type; a larger operand repeats them."""


class GpuDevice:
    """`Device` of backend `cuda`: the first GPU of this machine."""

    shares_cores = False

    def __init__(self, setting: Setting) -> None:
        self._device = CudaDevice()
        neighbour = setting.neighbour
        self._neighbour = None if neighbour is None else _Link.read(neighbour, neighbour.native)
        self._alone: dict[int, Samples] = {}
        self._calls_library = setting.calls_library

    @property
    def name(self) -> str:
        """The GPU."""
        return self._device.facts.name

    @property
    def driver(self) -> str:
        """The CUDA version of its driver."""
        return version_text(self._device.facts.driver)

    @property
    def libraries(self) -> Mapping[str, str]:
        """Those that are here, if a case calls one."""
        return installed() if self._calls_library else {}

    @property
    def lost(self) -> bool:
        """See `Device`: a kernel that touches foreign memory breaks the context of its process."""
        try:
            self._device.available()
        except DriverError:
            return True
        return False

    def variants(self, case: Case) -> Sequence[Variant]:
        """See `Device`: one for each algorithm that the library would take."""
        module, cubins = read(case.native.code)
        (program,) = module.programs
        (node,) = program.libraries
        found = offered(self._device, node, ALGORITHMS)
        version = module_of(library_of(node.function)).version()
        return [_with_algorithm(case.native, module, cubins, node, version, offer) for offer in found]

    def time(self, case: Case, native: NativeCode) -> Samples:
        """See `Device`. The neighbour, if there is one, runs after each run; the time it takes alone is subtracted."""
        link = _Link.read(case, native)
        if self._neighbour is None:
            return self._timed(link)[1]
        runs, both = self._timed(link.followed(self._neighbour))
        if runs not in self._alone:
            self._alone[runs] = self._timed(self._neighbour, runs)[1]
        cold, warm = median(self._alone[runs].cold), median(self._alone[runs].warm)
        return Samples([us - cold for us in both.cold], [us - warm for us in both.warm])

    def rounds(self, first: Runnable, second: Runnable) -> Iterator[tuple[Samples, Samples]]:
        """See `Device`."""
        return rounds_by_time(self, first, second, ROUNDS)

    def _timed(self, link: _Link, runs: int | None = None) -> tuple[int, Samples]:
        """Times of a link in a chain of `runs`, or as many as a launch has time for, and how many those are."""
        layout = _Layout.of(link.memory)
        copies = self._copies(layout)
        with ExitStack() as cleanup:
            block = self._allocated(layout.nbytes(copies), cleanup)
            flush = self._allocated(FLUSH_BYTES, cleanup)
            stream = self._device.open_stream()
            cleanup.callback(self._device.close_stream, stream)
            self._fill(link.memory, layout, copies, block, stream)
            timer = _Timer(self._device, link, layout, block, stream, cleanup)
            if runs is None:
                one = min(timer.samples(1, 1, _nothing, WARM_UP))
                runs = max([1, *(runs for runs in _LENGTHS if runs <= RUNS and runs * one <= LAUNCH_US)])
            cold = timer.samples(runs, min(copies, runs), lambda: self._flush(flush, stream), LAUNCHES)
            warm = timer.samples(runs, 1, _nothing, LAUNCHES)
        return runs, Samples(cold, warm)

    def _copies(self, layout: _Layout) -> int:
        """Sets of operands: so many that the first is out of the cache when its turn comes again, no more than there
        are runs or half of the free memory holds."""
        free, _ = self._device.available()
        room = free // 2 - FLUSH_BYTES - layout.shared
        if room < layout.own:
            raise BackendUnavailable(
                f"a case needs {layout.nbytes(1):,} bytes for its operands, and half of what {self.name} has free is "
                f"{free // 2:,}"
            )
        own = max(layout.own, 1)
        return max(1, min(room // own, RUNS, 1 + -(-FLUSH_BYTES // own)))

    def _allocated(self, nbytes: int, cleanup: ExitStack) -> int:
        address = self._device.allocate(max(nbytes, _ALIGN))
        cleanup.callback(self._device.free, address)
        return address

    def _fill(self, memory: Sequence[Memory], layout: _Layout, copies: int, block: int, stream: int) -> None:
        """Random data in the first set of operands, and the same in the others."""
        for region, start in zip(memory, layout.table(block, 1), strict=True):
            data = _random(region.dtype, region.numbers)
            done = min(region.nbytes, _RANDOM_BYTES)
            if done:
                self._device.upload(start, data.ctypes.data, done, stream)
            while done < region.nbytes:
                size = min(done, region.nbytes - done)
                self._device.copy(start + done, start, size, stream)
                done += size
        self._device.synchronize(stream)
        own = block + layout.shared
        for copy in range(1, copies):
            self._device.copy(own + copy * layout.own, own, layout.own, stream)

    def _flush(self, flush: int, stream: int) -> None:
        self._device.clear(flush, FLUSH_BYTES, stream)


def _nothing() -> None:
    """What is done before a warm launch."""


@dataclass(frozen=True)
class _Timer:
    """Takes times of chains of a link, whose operands lie in `block`; everything goes with `cleanup`."""

    device: CudaDevice
    link: _Link
    layout: _Layout
    block: int
    stream: int
    cleanup: ExitStack

    def samples(self, runs: int, sets: int, before: Callable[[], None], launches: int) -> list[float]:
        """Microseconds of one of `runs` runs, for each launch of the graph; `before` is queued first and not timed.

        Args:
            sets: Sets of operands that the runs take in turns.
        """
        program = _repeated(self.link.program, runs, sets, self.link.early)
        code = CudaCode(replace(self.link.module, programs=(program,)), self.link.cubins, self.device)
        table = self.layout.table(self.block, sets)
        size = descriptor_bytes(program)
        descriptors = self.device.allocate(size) if size else 0
        if size:
            self.cleanup.callback(self.device.free, descriptors)
        graph = code.capture(program.entry, table, descriptors, self.stream)
        found: list[float] = []
        with self.device.event() as start, self.device.event() as end:
            for number in range(WARM_UP + launches):
                sleep(PAUSE_S)
                before()
                driver = self.device.enter()
                driver.record(start, self.stream)
                graph.launch()
                driver.record(end, self.stream)
                self.device.synchronize(self.stream)
                if number >= WARM_UP:
                    found.append(driver.milliseconds(start, end) * 1e3 / runs)
        return found


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


@dataclass(frozen=True)
class _Layout:
    """Where the operands of a case lie in one block of memory: first those that all runs share, then sets of those that
    a run has for itself.

    Args:
        offsets: For each operand, whether it is of a set, and its offset in the set or in the memory before the sets.
        shared, own: Bytes before the sets, and of one set.
    """

    offsets: tuple[tuple[bool, int], ...]
    shared: int
    own: int

    @staticmethod
    def of(memory: Sequence[Memory]) -> _Layout:
        """What is fixed is of a set; if nothing is, everything."""
        some = any(region.fixed for region in memory)
        ends = {False: 0, True: 0}
        offsets: list[tuple[bool, int]] = []
        for region in memory:
            own = region.fixed or not some
            offsets.append((own, ends[own]))
            ends[own] += _aligned(region.nbytes)
        return _Layout(tuple(offsets), ends[False], ends[True])

    def nbytes(self, copies: int) -> int:
        """Of the block with `copies` sets."""
        return self.shared + copies * self.own

    def table(self, block: int, copies: int) -> list[int]:
        """Addresses of all operands, set after set."""
        sets = [block + self.shared + copy * self.own for copy in range(copies)]
        return [(start if own else block) + offset for start in sets for own, offset in self.offsets]


@cache
def _random(dtype: str, numbers: int) -> Array:
    """What operands of a type begin with, see `Memory`."""
    data = np.zeros(_RANDOM_BYTES, np.uint8)
    fill(data, dtype, numbers, np.random.default_rng(0))
    return data


# Programs of many runs


@dataclass(frozen=True)
class _Link:
    """What is run again and again.

    Args:
        program: One run.
        memory: What its pointer table points to.
        early: Whether it may start before its predecessor ends, and lets its successor start early.
        module, cubins: Its code.
    """

    program: DeviceProgram
    memory: tuple[Memory, ...]
    early: bool
    module: DeviceModule
    cubins: Mapping[str, bytes]

    @staticmethod
    def read(case: Case, native: NativeCode) -> _Link:
        """A case alone."""
        module, cubins = read(native.code)
        (program,) = module.programs
        return _Link(program, case.memory, case.starts_early, module, cubins)

    def followed(self, other: _Link) -> _Link:
        """This one, then the other, on memory of its own."""
        first, count = self.program, len(self.program.order)
        early = self.early and other.early
        moved = _later(other.program, count, first.table_size, Dependency(count - 1, early))
        table_size = first.table_size + other.program.table_size
        program = _program(first.entry, table_size, [*first.nodes(), *moved])
        memory = (*self.memory, *(replace(region, fixed=False) for region in other.memory))
        return _Link(program, memory, early, self.module, {**other.cubins, **self.cubins})


def _repeated(program: DeviceProgram, runs: int, copies: int, early: bool) -> DeviceProgram:
    """A program of `runs` runs in a row, on `copies` sets of operands in turn.

    Args:
        early: Whether a run may start before the previous one ends: the kernel waits inside.
    """
    count, size = len(program.order), program.table_size
    nodes: list[KernelNode | LibraryNode] = []
    for run in range(runs):
        before = Dependency(run * count - 1, early) if run else None
        nodes += _later(program, run * count, run % copies * size, before)
    return _program(program.entry, size * copies, nodes)


def _later(
    program: DeviceProgram, count: int, shift: int, before: Dependency | None
) -> Iterator[KernelNode | LibraryNode]:
    """The nodes of a program that comes after `count` others, with its pointer table `shift` entries further on.

    Args:
        before: What its first node waits for; None leaves that as it is.
    """
    for number, node in enumerate(program.nodes()):
        after = tuple(replace(edge, node=edge.node + count) for edge in node.after)
        yield _moved(node, shift, after if number or before is None else (before,))


def _program(entry: str, table_size: int, nodes: Sequence[KernelNode | LibraryNode]) -> DeviceProgram:
    kernels = tuple(node for node in nodes if isinstance(node, KernelNode))
    libraries = tuple(node for node in nodes if isinstance(node, LibraryNode))
    order = "".join("k" if isinstance(node, KernelNode) else "l" for node in nodes)
    return DeviceProgram(entry, table_size, kernels, libraries, order)


def _moved(
    node: KernelNode | LibraryNode, shift: int, after: tuple[Dependency, ...]
) -> KernelNode | LibraryNode:
    """The node with its pointer table entries shifted, and with other predecessors."""
    addresses = tuple(replace(address, base=address.base + shift) for address in node.addresses)
    if isinstance(node, LibraryNode):
        return replace(node, addresses=addresses, after=after)
    maps = tuple(replace(map_, base=map_.base + shift) for map_ in node.maps)
    return replace(node, addresses=addresses, maps=maps, after=after)


def _with_algorithm(
    native: NativeCode,
    module: DeviceModule,
    cubins: Mapping[str, bytes],
    node: LibraryNode,
    version: str,
    offer: Offer,
) -> Variant:
    """The case with its one library call complete."""
    (program,) = module.programs
    call = {**node.call, **offer.values}
    complete = replace(program, libraries=(replace(node, version=version, call=call),))
    code = stored(replace(module, programs=(complete,)), b"".join(cubins[e.symbol] for e in module.cubins))
    return Variant(
        replace(native, code=code),
        {"algorithm": offer.label},
        {**offer.values, "library": version},
    )
