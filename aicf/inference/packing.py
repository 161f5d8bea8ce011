"""Weights that are packed ahead, shared among the executables of one model on the host.

Each program made on first use is an executable of its own, and would pack the weights once more. What a pack makes
follows from its kernel, its record and what it reads, all of which the plan tells: equal ones are taken from an
executable that has them, as long as there is one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

from aicf.compiled import CompiledModel
from aicf.plain import to_plain
from aicf.runtime.capture_plan import ARENA, CapturePlan, Launch, ModulePlan, Place
from aicf.runtime.tensors import Array, address


class PackedWeights:
    """The packed weights of the executables of one model that are alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: WeakValueDictionary[str, Array] = WeakValueDictionary()

    def of(self, plan: ModulePlan) -> Mapping[str, Array] | None:
        """All that `plan` needs by name, if all of it is there."""
        keys = packing_keys(plan)
        with self._lock:
            found = {name: self._arrays.get(key) for name, key in keys.items()}
        whole = {name: array for name, array in found.items() if array is not None}
        return whole if whole and len(whole) == len(plan.derived) else None

    def keep(self, executable: CompiledModel) -> None:
        """Offers those of an executable from now on."""
        if executable.native.place != "host" or executable.plan.prepare is None:
            return
        keys, arrays = packing_keys(executable.plan), executable.prepared()
        with self._lock:
            for name, key in keys.items():
                self._arrays[key] = arrays[name]


def packing_keys(plan: ModulePlan) -> dict[str, str]:
    """By derived bind, a hash of all that its bytes follow from, the values of weights apart."""
    if plan.prepare is None:
        return {}
    made = _Made(plan.prepare)
    for launch in plan.prepare.launches:
        made.run(launch)
    return made.keys()


def prepared_bytes(executables: Iterable[CompiledModel]) -> int:
    """Bytes of prepared weights, those that several executables share once."""
    different = {id(executable): executable for executable in executables}.values()
    shared: dict[int, int] = {}
    own = 0
    for executable in different:
        if executable.native.place == "host":
            shared.update((address(array), array.nbytes) for array in executable.prepared().values())
        else:
            own += executable.memory()["derived"]
    return own + sum(shared.values())


class _Made:
    """What `@prepare` has made so far, as hashes of how."""

    def __init__(self, prepare: CapturePlan) -> None:
        self._binds = prepare.graph.binds
        self._by_place: dict[tuple[int, int], str] = {}
        self._by_base: dict[int, list[str]] = {}

    def run(self, launch: Launch) -> None:
        """One instruction: what it writes follows from its kernel and from what it reads."""
        read = [[self._source(place), _walk(place)] for place in launch.ins]
        written = [[place.base != ARENA and place.offset, _walk(place)] for place in launch.outs]
        text = json.dumps([launch.kernel, launch.record, read, written], sort_keys=True)
        for number, place in enumerate(launch.outs):
            key = f"{hashlib.sha256(text.encode()).hexdigest()}.{number}"
            self._by_place[place.base, place.offset] = key
            self._by_base.setdefault(place.base, []).append(key)

    def _source(self, place: Place) -> object:
        """What is read: what an instruction in front wrote there, else a weight or a constant."""
        made = self._by_place.get((place.base, place.offset))
        if made is not None or place.base == ARENA:
            return made
        bind = self._binds[place.base - ARENA - 1]
        return [bind.name, bind.value, place.offset]

    def keys(self) -> dict[str, str]:
        """The hash of each derived bind."""
        return {
            bind.name: json.dumps([to_plain(bind), self._by_base.get(index, [])], sort_keys=True)
            for index, bind in enumerate(self._binds, ARENA + 1)
            if bind.role == "derived"
        }


def _walk(place: Place) -> list[object]:
    """How an operand is walked from where it begins."""
    return [list(place.shape), list(place.strides), place.dtype, place.layout]
