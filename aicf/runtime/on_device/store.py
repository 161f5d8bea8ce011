"""An executable on a device: weights uploaded once, prepared there, and how much memory all of it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from aicf.backends.native import DeviceCode, DeviceMemory
from aicf.errors import ArtifactError
from aicf.runtime.capture_plan import ARENA, CapturePlan, ModulePlan
from aicf.runtime.consts import read_const
from aicf.runtime.graph import WEIGHT_ROLES, Bind
from aicf.runtime.on_device.addressed import DeviceAddressed
from aicf.runtime.on_device.exec import DeviceGraphExec, DeviceProgram
from aicf.runtime.on_device.memory import Block, Queue, padded
from aicf.runtime.on_device.pool import pool_of
from aicf.runtime.on_device.state import DeviceState
from aicf.runtime.on_device.weights import DeviceWeights, Resident
from aicf.runtime.state import State
from aicf.runtime.store import DERIVED, WEIGHT, CommonKey
from aicf.runtime.tensors import Array, address

PartKey: TypeAlias = tuple[str, ...]
"""Kind and name of what is uploaded once."""


class DeviceStore:
    """See `Store`.

    Args:
        plan: Plans of all programs.
        weights: Initial values by name, on the host.
        derived: Prepared weights from a cache; made by `@prepare` on the device if None.
        code: Gives the loaded code, loading it if need be.
        reserves: Bytes that the graph of each program needs for itself, by entry.
        common: What executables of the same model have on the device in common.

    Raises:
        ArtifactError: `reserves` lacks a program.
    """

    def __init__(
        self,
        plan: ModulePlan,
        weights: Mapping[str, Array],
        derived: Mapping[str, Array] | None,
        code: Callable[[], DeviceCode],
        reserves: Mapping[str, int],
        common: DeviceWeights,
    ) -> None:
        self._plan = plan
        self._weights = weights
        self._cached = derived
        self.code = code
        self._reserves = reserves
        self._mutable = frozenset(plan.mutable)
        self._of_host = frozenset(plan.kept) - frozenset(plan.updated)
        self._lock = threading.RLock()
        self._shared: _Shared | None = None
        self._programs = {program.name: self._program(program) for program in plan.programs}
        self._parts = self._shared_parts()
        self._common = common
        self._common_keys = self._keys_in_common()

    def instance(self, plan: CapturePlan, state: State | None) -> DeviceGraphExec:
        """See `Store`."""
        assert state is None or isinstance(state, DeviceState)
        return DeviceGraphExec(self._programs[plan.name], self, state)

    def addressed(self, plan: CapturePlan) -> DeviceAddressed:
        """See `Store`."""
        return DeviceAddressed(self._plan, plan, self.code, self._reserves)

    def new_state(self) -> DeviceState | None:
        """See `Store`."""
        if not (names := self._plan.mutable):
            return None
        kept = self._plan.kept
        copied = [name for name in kept if name not in self._of_host]
        return DeviceState({name: self._weights[name] for name in names}, self._memory, self._of_host, copied)

    def prepared(self) -> dict[str, Array]:
        """See `Store`."""
        shared, queue = self._take(), Queue(self._memory())
        arrays: dict[str, Array] = {}
        for bind in self._plan.derived:
            arrays[bind.name] = array = np.empty(bind.nbytes, np.uint8)
            shared.memory.download(address(array), shared[DERIVED, bind.name], bind.nbytes, queue.handle)
        shared.memory.synchronize(queue.handle)
        return arrays

    def release(self) -> None:
        """See `Store`."""
        with self._lock:
            self._shared = None

    def common(self) -> Mapping[CommonKey, int]:
        """See `Store`."""
        return {key: padded(self._parts[part]) for part, key in self._common_keys.items()}

    # Sizes

    def memory(self) -> dict[str, int]:
        """See `Store`."""
        sizes: dict[str, int] = {}
        for name, program in self._programs.items():
            ports = sum(padded(port.bind.nbytes) for port in program.ports)
            sizes[f"arena@{name}"] = padded(program.plan.arena_bytes)
            sizes[f"io@{name}"] = ports
            sizes[f"descriptors@{name}"] = padded(program.reserve)
            sizes[f"instance@{name}"] = program.block_bytes
        for kind in (WEIGHT, DERIVED, "const"):
            parts = {key: nbytes for key, nbytes in self._parts.items() if key[0] == kind}
            sizes[{WEIGHT: "weights", "const": "consts"}.get(kind, kind)] = _padded(parts)
        sizes["state"] = self._state_bytes
        needs = self._shared_needs()
        for name in self._programs:
            sizes[f"peak@{name}"] = self._peak(name, needs)
        return sizes

    @property
    def _state_bytes(self) -> int:
        names = (name for name in self._plan.mutable if name not in self._of_host)
        return sum(padded(self._weights[name].nbytes) for name in names)

    def _peak(self, name: str, needs: _Needs) -> int:
        """The most that is requested at once when this program is the first to run."""
        running = self._state_bytes + self._programs[name].block_bytes
        return needs.own + max(running, needs.preparing)

    def _shared_needs(self) -> _Needs:
        """What is shared, as it is, or as it would now have to be requested."""
        if (shared := self._shared) is not None:
            held = _padded({key: self._parts[key] for key in shared.own.offsets})
            return _Needs(held, held, 0)
        found = self._found()
        own = {key: nbytes for key, nbytes in self._parts.items() if key not in found}
        return _Needs(_padded(own), 0, self._prepare_bytes(found))

    def _prepare_bytes(self, found: Mapping[PartKey, Resident]) -> int:
        """What making the prepared weights takes for a while, beside those parts."""
        if self._plan.prepare is None or not self._prepares(found):
            return 0
        program = self._program(self._plan.prepare)
        return _padded(self._only_prepared()) + program.block_bytes

    def admit(self, plan: CapturePlan, state: State | None) -> None:
        """See `Source`; with it what is shared, if that is not there yet."""
        is_resident = isinstance(state, DeviceState) and state.is_resident
        needs = self._shared_needs()
        needed = self._peak(plan.name, needs) - needs.held - (self._state_bytes if is_resident else 0)
        pool_of(self._memory()).admit(needed, f"@{plan.name}")

    # What all GraphExecs read

    def _memory(self) -> DeviceMemory:
        return self.code().memory

    def _program(self, plan: CapturePlan) -> DeviceProgram:
        if plan.entry not in self._reserves:
            raise ArtifactError(f"the native code has no entry '{plan.entry}'; compile the program again")
        return DeviceProgram(plan, self._reserves[plan.entry])

    def _shared_parts(self) -> dict[PartKey, int]:
        """What is uploaded once: bytes by kind and name. Weights that only `@prepare` reads are not in it."""
        parts: dict[PartKey, int] = {}
        for plan in self._plan.programs:
            for bind in plan.graph.binds:
                if (key := self._key(plan, bind)) is not None:
                    parts[key] = bind.nbytes
        return parts

    def _key(self, plan: CapturePlan, bind: Bind) -> PartKey | None:
        """Where the shared block holds a bind; None for inputs, outputs, state and what the executable writes."""
        if bind.role in WEIGHT_ROLES:
            is_own = bind.name in self._mutable or bind.is_host_written
            return None if is_own else (WEIGHT, bind.name)
        if bind.role == "derived":
            return (DERIVED, bind.name)
        return ("const", plan.name, bind.name) if bind.role == "const" else None

    def fixed(self, plan: CapturePlan, state: State | None) -> dict[int, int]:
        """See `Source`."""
        shared = self._take()
        addresses: dict[int, int] = {}
        for index, bind in enumerate(plan.graph.binds, ARENA + 1):
            if (key := self._key(plan, bind)) is not None:
                addresses[index] = shared[key]
            elif bind.role in WEIGHT_ROLES and not bind.is_host_written:
                assert isinstance(state, DeviceState)
                addresses[index] = state.resident().block[bind.name]
        return addresses

    def _take(self) -> _Shared:
        """Everything shared, uploaded and prepared."""
        with self._lock:
            if self._shared is None:
                with self._common.lock:
                    self._shared = self._uploaded(self._found())
            return self._shared

    def _uploaded(self, found: Mapping[PartKey, Resident]) -> _Shared:
        """What was found, and the rest in a block of its own, which others find from now on."""
        memory = self._memory()
        missing = {key: nbytes for key, nbytes in self._parts.items() if key not in found}
        own = Block(memory, missing, "weights and constants")
        shared, queue, initial = _Shared(own, dict(found)), Queue(memory), self._initial()
        for key in own.offsets:
            if key in initial:
                own.upload(key, initial[key], queue)
        memory.synchronize(queue.handle)
        if self._plan.prepare is not None and self._prepares(found):
            self._prepare(self._plan.prepare, shared)
        for part, key in self._common_keys.items():
            if part in own.offsets:
                shared.residents[part] = Resident(own, own[part], initial.get(part))
                self._common.keep(key, shared.residents[part])
        return shared

    # What executables of one model have in common

    def _keys_in_common(self) -> dict[PartKey, CommonKey]:
        """What tells that a part is that of another executable: the memory of a weight, how a packed one is made."""
        packed, nobody = self._common.packing_keys(self._plan), object()
        keys: dict[PartKey, CommonKey] = {}
        for part in self._parts:
            if part[0] == WEIGHT:
                array = self._weights[part[1]]
                keys[part] = (WEIGHT, address(array), array.nbytes)
            elif part[0] == DERIVED:
                keys[part] = (DERIVED, packed.get(part[1], nobody), part[1])
        return keys

    def _found(self) -> dict[PartKey, Resident]:
        """The parts that are on the device already; packed weights only if all of them are: one run makes them."""
        found: dict[PartKey, Resident] = {}
        for part, key in self._common_keys.items():
            if (resident := self._common.find(key)) is not None:
                found[part] = resident
        if self._prepares(found):
            return {part: resident for part, resident in found.items() if part[0] != DERIVED}
        return found

    def _prepares(self, found: Mapping[PartKey, Resident]) -> bool:
        """Whether packed weights are still to be made."""
        return self._cached is None and any(part[0] == DERIVED and part not in found for part in self._parts)

    def _initial(self) -> dict[PartKey, Array]:
        """What is uploaded into the shared block, by its key."""
        arrays: dict[PartKey, Array] = {}
        for plan in self._plan.programs:
            for bind in plan.graph.with_role("const"):
                arrays["const", plan.name, bind.name] = read_const(bind)
        for kind, *names in self._parts:
            if kind == WEIGHT:
                arrays[kind, names[0]] = self._weights[names[0]]
            elif kind == DERIVED and self._cached is not None:
                arrays[kind, names[0]] = self._cached[names[0]]
        return arrays

    # Preparing weights

    def _only_prepared(self) -> dict[PartKey, int]:
        """Weights, consts and results that only `@prepare` uses: bytes by key."""
        prepare = self._plan.prepare
        assert prepare is not None
        keys = {self._key(prepare, bind): bind.nbytes for bind in prepare.graph.binds}
        return {key: nbytes for key, nbytes in keys.items() if key is not None and key not in self._parts}

    def _prepare(self, prepare: CapturePlan, shared: _Shared) -> None:
        """Runs `@prepare` on the device, into the shared memory; what only it reads is there for the time being."""
        memory = shared.memory
        extra, queue = Block(memory, self._only_prepared(), "weights while they are packed"), Queue(memory)
        consts = {self._key(prepare, bind): bind for bind in prepare.graph.with_role("const")}
        for key in self._only_prepared():
            if key in consts:
                extra.upload(key, read_const(consts[key]), queue)
            elif key[0] == WEIGHT:
                extra.upload(key, self._weights[key[1]], queue)
        memory.synchronize(queue.handle)
        keys = {index: self._key(prepare, bind) for index, bind in enumerate(prepare.graph.binds, ARENA + 1)}
        addresses = {
            index: shared[key] if key in shared else extra[key]
            for index, key in keys.items()
            if key is not None
        }
        run = DeviceGraphExec(self._program(prepare), _Preparing(self.code, addresses))
        run.replay()
        run.synchronize()


@dataclass(frozen=True)
class _Shared:
    """Where everything shared is.

    Args:
        own: What this executable requested.
        residents: What others may use too, or others requested, by part.
    """

    own: Block
    residents: dict[PartKey, Resident]

    @property
    def memory(self) -> DeviceMemory:
        """Of the device."""
        return self.own.memory

    def __contains__(self, key: object) -> bool:
        return key in self.own.offsets or key in self.residents

    def __getitem__(self, key: PartKey) -> int:
        """Address of a part."""
        return self.own[key] if key in self.own.offsets else self.residents[key].address


@dataclass(frozen=True)
class _Needs:
    """Bytes of what is shared.

    Args:
        own: Of the parts that this executable requested, or would now have to.
        held: Of those that it has.
        preparing: What making the prepared weights takes beside them, for a while.
    """

    own: int
    held: int
    preparing: int


@dataclass(frozen=True)
class _Preparing:
    """`Source` of the one run of `@prepare`, whose memory was admitted with that of its executable."""

    code: Callable[[], DeviceCode]
    addresses: Mapping[int, int]

    def admit(self, plan: CapturePlan, state: State | None) -> None:
        """See `Source`."""

    def fixed(self, plan: CapturePlan, state: State | None) -> Mapping[int, int]:
        """See `Source`."""
        return self.addresses


def _padded(parts: Mapping[PartKey, int]) -> int:
    return sum(padded(nbytes) for nbytes in parts.values())
