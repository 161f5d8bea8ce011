"""Weights that the executables of one model share: those that are packed ahead, and on a device all of them.

Each program made on first use is an executable of its own, and would pack the weights once more. What an instruction of
`@prepare` makes follows from its meaning, its kernel, its record and what it reads, all of which the plan tells: equal
ones are taken from an executable that has them, as long as there is one. On the host the weights themselves are used
where they are.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from weakref import WeakValueDictionary

from aicf.compilation.compiled import CompiledModel
from aicf.runtime.capture_plan import ARENA, CapturePlan, Launch, ModulePlan, OperandRef
from aicf.runtime.executable import Executable
from aicf.runtime.graph import Node
from aicf.runtime.on_device.weights import DeviceWeights
from aicf.runtime.store import DERIVED, WEIGHT, CommonKey
from aicf.runtime.tensors import Array, numpy_dtype
from aicf.support.dataclass_json import to_json_value


class ModelWeights:
    """The weights of the executables of one model that are alive; see `SharedWeights`."""

    def __init__(self) -> None:
        self.on_device = DeviceWeights(packing_keys)
        self._lock = threading.Lock()
        self._arrays: WeakValueDictionary[str, Array] = WeakValueDictionary()

    def packed(self, plan: ModulePlan) -> Mapping[str, Array] | None:
        """All that `plan` needs by name, if all of it is on the host already."""
        keys = packing_keys(plan)
        with self._lock:
            found = {name: self._arrays.get(key) for name, key in keys.items()}
        whole = {name: array for name, array in found.items() if array is not None}
        return whole if whole and len(whole) == len(plan.derived) else None

    def keep(self, executable: CompiledModel) -> None:
        """Offers what an executable has packed on the host from now on."""
        if executable.native.memory != "host" or executable.plan.prepare is None:
            return
        keys, arrays = packing_keys(executable.plan), executable.prepared()
        with self._lock:
            for name, key in keys.items():
                self._arrays[key] = arrays[name]


def packing_keys(plan: ModulePlan) -> dict[str, str]:
    """By derived bind, a hash of all that its bytes follow from, the values of weights apart."""
    if plan.prepare is None:
        return {}
    packing = _PackingKeys(plan.prepare)
    for node, launch in zip(plan.prepare.graph.nodes, plan.prepare.launches, strict=True):
        packing.run(node, launch)
    return packing.keys()


def common_bytes(executables: Iterable[Executable], kinds: Collection[str] = (WEIGHT, DERIVED)) -> int:
    """Bytes of these kinds that executables may have in common, those that several have once."""
    parts: dict[CommonKey, int] = {}
    for executable in {id(each): each for each in executables}.values():
        parts.update(executable.common())
    return sum(nbytes for (kind, *_), nbytes in parts.items() if kind in kinds)


@dataclass(frozen=True)
class _Written:
    """Bytes that an instruction wrote: where they begin and end, and the hash of how."""

    start: int
    stop: int
    key: str


class _PackingKeys:
    """What `@prepare` has packed so far, as hashes of how."""

    def __init__(self, prepare: CapturePlan) -> None:
        self._binds = prepare.graph.binds
        self._written: dict[int, list[_Written]] = {}

    def run(self, node: Node, launch: Launch) -> None:
        """One instruction: what it writes follows from what it computes, by which kernel, and from what it reads."""
        read = [[self._source(operand), _walk(operand)] for operand in launch.ins]
        written = [[operand.base != ARENA and operand.offset, _walk(operand)] for operand in launch.outs]
        text = json.dumps([node.meaning, launch.kernel, launch.record, read, written], sort_keys=True)
        for number, operand in enumerate(launch.outs):
            key = f"{hashlib.sha256(text.encode()).hexdigest()}.{number}"
            self._note(operand, _Written(*self._bytes(operand), key))

    def _note(self, operand: OperandRef, new: _Written) -> None:
        """Notes what was written; what lay there before is gone if all bytes are new."""
        known = self._written.setdefault(operand.base, [])
        if operand.layout is None and new.stop - new.start == prod(operand.shape) * _element_bytes(operand):
            known[:] = [each for each in known if each.start < new.start or new.stop < each.stop]
        known.append(new)

    def _bytes(self, operand: OperandRef) -> tuple[int, int]:
        """Where an operand begins and ends, in bytes; in a layout, all of its bind."""
        if operand.layout is not None:
            return 0, self._binds[operand.base - ARENA - 1].nbytes
        low = sum((n - 1) * step for n, step in zip(operand.shape, operand.strides, strict=True) if step < 0)
        high = (
            sum((n - 1) * step for n, step in zip(operand.shape, operand.strides, strict=True) if step > 0)
            + 1
        )
        size = _element_bytes(operand)
        return operand.offset + low * size, operand.offset + high * size

    def _source(self, operand: OperandRef) -> object:
        """What is read: what earlier instructions wrote there, in order, and in a bind its weight or constant."""
        start, stop = self._bytes(operand)
        written = self._written.get(operand.base, ())
        sources = [
            [each.key, each.start - start] for each in written if each.start < stop and start < each.stop
        ]
        if operand.base == ARENA:
            return sources
        bind = self._binds[operand.base - ARENA - 1]
        return sources or [bind.name, bind.value, operand.offset]

    def keys(self) -> dict[str, str]:
        """The hash of each derived bind."""
        return {
            bind.name: json.dumps([to_json_value(bind), self._keys_of(index)], sort_keys=True)
            for index, bind in enumerate(self._binds, ARENA + 1)
            if bind.role == "derived"
        }

    def _keys_of(self, base: int) -> list[str]:
        return [each.key for each in self._written.get(base, ())]


def _element_bytes(operand: OperandRef) -> int:
    return numpy_dtype(operand.dtype).itemsize


def _walk(operand: OperandRef) -> list[object]:
    """How an operand is walked from where it begins."""
    return [list(operand.shape), list(operand.strides), operand.dtype, operand.layout]
