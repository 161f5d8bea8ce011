"""State in memory of a device: uploaded at its first use, brought back when the device is given back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aicf.backends.native import DeviceMemory
from aicf.runtime.on_device.memory import Block, Queue
from aicf.runtime.state import State, StatePart
from aicf.runtime.tensors import Array, address


@dataclass(frozen=True)
class Resident:
    """A state on a device. All programs on it run on one stream, so that one sees what the one before wrote."""

    block: Block
    queue: Queue


class DeviceState(State):
    """See `State`; `arrays` hold the values while no device does.

    Args:
        initial: Start values by name, copied.
        memory: Gives the device.
        of_host: Those that the executable keeps and no program updates: they are in `arrays` always.
        copied: Those that programs update and the executable counts on with them: what the device has is the truth.
    """

    def __init__(
        self,
        initial: Mapping[str, Array],
        memory: Callable[[], DeviceMemory],
        of_host: Collection[str] = (),
        copied: Collection[str] = (),
    ) -> None:
        super().__init__(initial)
        self._memory = memory
        self._on_device = {name: array for name, array in self.arrays.items() if name not in of_host}
        self._copied = copied
        self._resident: Resident | None = None

    @property
    def is_resident(self) -> bool:
        """Whether it is on the device now."""
        return self._resident is not None

    def resident(self) -> Resident:
        """The state on the device, uploaded if need be."""
        with self.lock:
            if self._resident is None:
                memory = self._memory()
                sizes = {name: array.nbytes for name, array in self._on_device.items()}
                block = Block(memory, sizes, "state")
                queue = Queue(memory)
                for name, array in self._on_device.items():
                    block.upload(name, array, queue)
                self._resident = Resident(block, queue)
            return self._resident

    def snapshot(self, names: Collection[str] | None = None) -> dict[str, Array]:
        """See `State`."""
        with self.lock:
            self._download(self._on_device if names is None else self._on_device.keys() & set(names))
            return super().snapshot(names)

    def assign(self, values: Mapping[str, object]) -> None:
        """See `State`."""
        with self.lock:
            if self._copied:
                self._download(self._copied)
            super().assign(values)
            self._upload(values)

    def _copy(self, other: State, parts: Sequence[StatePart]) -> None:
        """See `State`: on the device what both have there."""
        if isinstance(other, DeviceState) and self._is_beside(other):
            shared = self._on_device.keys() & other._on_device.keys()
            if there := [part for part in parts if part.name in shared]:
                self._copy_on_device(other, there)
            parts = [part for part in parts if part.name not in shared]
        if parts:
            self._copy_on_host(other, parts)

    def _is_beside(self, other: DeviceState) -> bool:
        """Whether both are on one device; each executable has an object of its own for it."""
        return self._memory().dlpack_device == other._memory().dlpack_device

    def _copy_on_host(self, other: State, parts: Sequence[StatePart]) -> None:
        names = {part.name for part in parts}
        self._download(names & self._on_device.keys())
        super()._copy(other, parts)
        self._upload(names)

    def _copy_on_device(self, other: DeviceState, parts: Sequence[StatePart]) -> None:
        """Queues copies after the runs of both that are queued, and before those that come."""
        (mine, theirs), memory = (self.resident(), other.resident()), self._memory()
        memory.follow(mine.queue.handle, theirs.queue.handle)
        for part in parts:
            size = self.arrays[part.name].itemsize
            target, source = mine.block[part.name], theirs.block[part.name]
            if part.count:
                memory.copy(
                    target + size * part.target,
                    source + size * part.source,
                    size * part.count,
                    mine.queue.handle,
                )
        memory.follow(theirs.queue.handle, mine.queue.handle)

    def release(self) -> None:
        """See `State`."""
        with self.lock:
            try:
                self._download(self._on_device)
            finally:
                self._resident = None

    def _upload(self, names: Iterable[str]) -> None:
        """Lets the device have the values of the host."""
        if self._resident is not None:
            for name in self._on_device.keys() & set(names):
                self._resident.block.upload(name, self.arrays[name], self._resident.queue)

    def _download(self, names: Collection[str]) -> None:
        if self._resident is None:
            return
        block, queue = self._resident.block, self._resident.queue
        for name in names:
            if (array := self.arrays[name]).nbytes:
                block.memory.download(address(array), block[name], array.nbytes, queue.handle)
        block.memory.synchronize(queue.handle)
