"""See `addressed`: a program on memory of others on a device.

A captured graph has addresses inside. One is kept for each tuple of addresses that runs came with lately: the allocator
of a framework gives the same addresses again in a loop, so that the usual run changes nothing and launches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aicf.backends.native import DeviceCode, DeviceGraph, DeviceMemory
from aicf.errors import ArtifactError, PlanError
from aicf.runtime.capture_plan import ARENA, CapturePlan, ModulePlan
from aicf.runtime.consts import read_const
from aicf.runtime.on_device.memory import Block, Queue
from aicf.runtime.on_host.addressed import GIVEN
from aicf.runtime.on_host.metas import written_metas

MOST_GRAPHS = 8
"""Captured graphs of one program that are kept for one stream; the least recently used one goes."""


@dataclass
class _Resident:
    """What runs of a program need on the device beside the memory of others.

    Args:
        code: The loaded code.
        consts: Constants and packed parameters, by name of the bind.
        queue: Where graphs are captured, and what they start with is uploaded.
    """

    code: DeviceCode
    consts: Block
    queue: Queue

    @property
    def memory(self) -> DeviceMemory:
        """Of the device."""
        return self.code.memory


@dataclass
class _Captured:
    """A graph for one tuple of addresses. The fields are dropped in this order, the graph before its memory."""

    graph: DeviceGraph
    descriptors: Block
    arena: Block
    launch: Callable[[], None]


class DeviceAddressed:
    """See `Addressed`.

    Args:
        plan: The plans of the module.
        program: The one that runs.
        code: Gives the loaded code, loading it if need be.
        reserves: Bytes that the graph of each program needs for itself, by entry.

    Raises:
        PlanError: the program has values that the executable maintains, which have no address.
        ArtifactError: `reserves` lacks the program.
    """

    def __init__(
        self,
        plan: ModulePlan,
        program: CapturePlan,
        code: Callable[[], DeviceCode],
        reserves: Mapping[str, int],
    ) -> None:
        metas = [bind.name for bind in program.graph.binds if bind.role == "meta"]
        if metas or written_metas(program):
            raise PlanError(
                f"@{program.name}: the executable maintains {', '.join(metas) or 'some values'}; make them inputs"
            )
        for each in (program, *([] if plan.prepare is None else [plan.prepare])):
            if each.entry not in reserves:
                raise ArtifactError(f"the native code has no entry '{each.entry}'; compile the program again")
        self._plan, self._program, self._code, self._reserves = plan, program, code, reserves
        self.names = tuple(bind.name for bind in program.graph.binds if bind.role in GIVEN)
        prepare = plan.prepare
        self.packs = tuple(
            bind.name for bind in (() if prepare is None else prepare.graph.binds) if bind.role == "param"
        )
        self._slots = tuple(
            index for index, bind in enumerate(program.graph.binds, ARENA + 1) if bind.role in GIVEN
        )
        self._resident: _Resident | None = None
        self._packed: Mapping[str, int] | None = None
        self._arenas: dict[int, Block] = {}
        self._graphs: OrderedDict[tuple[int, ...], _Captured] = OrderedDict()
        self._pinned: list[_Captured] = []
        self._given: Sequence[int] = ()
        self._stream = 0
        self._launch: Callable[[], None] | None = None

    def prepare(self, addresses: Mapping[str, int], stream: int = 0) -> None:
        """See `Addressed`."""
        prepare = self._plan.prepare
        if prepare is None:
            return
        self._packed = dict(addresses)
        resident = self._take()
        arena = Block(resident.memory, {ARENA: prepare.arena_bytes}, f"arena of @{prepare.name}")
        captured = self._captured(prepare, addresses, arena, stream)
        captured.launch()
        resident.memory.synchronize(stream)  # its arena goes now

    def run(self, addresses: Sequence[int], stream: int = 0) -> None:
        """See `Addressed`."""
        if addresses == self._given and stream == self._stream and self._launch is not None:
            self._launch()
            return
        key = (stream, *addresses)
        captured = self._graphs.get(key)
        if captured is None:
            captured = self._new(key)
        self._graphs.move_to_end(key)
        self._given, self._stream, self._launch = addresses, stream, captured.launch
        captured.launch()

    def queue(self, addresses: Sequence[int], stream: int) -> None:
        """See `Addressed`."""
        named = dict(zip(self.names, addresses, strict=True))
        with self._take().memory.beside_capture():
            captured = self._captured(self._program, named, self._arena(stream), stream)
        captured.graph.queue(stream)
        self._pinned.append(captured)

    def release(self) -> None:
        """See `Addressed`."""
        resident, self._resident = self._resident, None
        self._launch = None
        self._graphs.clear()
        self._pinned.clear()
        self._arenas.clear()
        del resident

    def _new(self, key: tuple[int, ...]) -> _Captured:
        stream, *addresses = key
        if self._resident is None and self._packed is not None:
            self.prepare(self._packed, stream)
        named = dict(zip(self.names, addresses, strict=True))
        captured = self._captured(self._program, named, self._arena(stream), stream)
        self._graphs[key] = captured
        if len(self._graphs) > MOST_GRAPHS:
            oldest, gone = self._graphs.popitem(last=False)
            self._take().memory.synchronize(oldest[0])
            del gone
        return captured

    def _arena(self, stream: int) -> Block:
        """What runs on one stream have in common, which they use one after the other."""
        if stream not in self._arenas:
            holder = f"arena of @{self._program.name}"
            self._arenas[stream] = Block(self._take().memory, {ARENA: self._program.arena_bytes}, holder)
        return self._arenas[stream]

    def _captured(
        self, plan: CapturePlan, addresses: Mapping[str, int], arena: Block, stream: int
    ) -> _Captured:
        resident = self._take()
        table = [arena[ARENA] if plan.arena_bytes else 0]
        table += [
            addresses[bind.name]
            if bind.role in GIVEN and bind.name in addresses
            else self._own(plan, bind.name)
            for bind in plan.graph.binds
        ]
        reserve = self._reserves[plan.entry]
        parts = {"descriptors": reserve} if reserve else {}
        descriptors = Block(resident.memory, parts, f"descriptors of @{plan.name}")
        at = descriptors["descriptors"] if reserve else 0
        graph = resident.code.capture(plan.entry, table, at, resident.queue.handle)
        resident.memory.synchronize(resident.queue.handle)  # the descriptors are there before any launch
        return _Captured(graph, descriptors, arena, graph.launch_on(stream))

    def _own(self, plan: CapturePlan, name: str) -> int:
        consts = self._take().consts
        return consts[plan.name, name] if (plan.name, name) in consts.offsets else consts[name]

    def _take(self) -> _Resident:
        if self._resident is None:
            code = self._code()
            plans = [self._program, *([] if self._plan.prepare is None else [self._plan.prepare])]
            consts = {
                (plan.name, bind.name): bind for plan in plans for bind in plan.graph.with_role("const")
            }
            derived = {bind.name: bind.nbytes for bind in self._plan.derived}
            sizes = {**{key: bind.nbytes for key, bind in consts.items()}, **derived}
            block, queue = Block(code.memory, sizes, "constants and packed weights"), Queue(code.memory)
            for key, bind in consts.items():
                block.upload(key, read_const(bind), queue)
            code.memory.synchronize(queue.handle)
            self._resident = _Resident(code, block, queue)
        return self._resident
