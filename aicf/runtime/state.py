"""Parameters and states that programs update: host copies, owned by one executable or one GraphExec."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from aicf.errors import InputMismatch
from aicf.runtime.memory import allocate, copy_of
from aicf.runtime.ports import reject_unknown
from aicf.runtime.tensors import Array, describe_array


@dataclass(frozen=True)
class StatePart:
    """Elements of a state that another one takes, numbered in row-major order.

    Args:
        name: Of the tensor, in both.
        source: The first element that is taken.
        target: Where it goes.
        count: How many follow each other.
    """

    name: str
    source: int
    target: int
    count: int


def _start(array: Array) -> Array:
    """A copy in our own memory, which is zeroed: what starts with zeros, as a cache of keys does, takes no room until
    it is written."""
    stored = np.ascontiguousarray(array).reshape(-1).view(np.uint8)  # -0.0 is no zero
    return copy_of(array) if stored.any() else allocate(array.nbytes).view(array.dtype).reshape(array.shape)


class State:
    """Copies of the parameters and states that programs update; owned by one executable or one GraphExec.

    Args:
        initial: Start values by name, copied.
    """

    def __init__(self, initial: Mapping[str, Array]) -> None:
        self.arrays = {name: _start(array) for name, array in initial.items()}
        self.lock = threading.RLock()

    def snapshot(self, names: Collection[str] | None = None) -> dict[str, Array]:
        """Copies of the values of these names, by default of all. Raises InputMismatch for an unknown name."""
        reject_unknown(names or (), list(self.arrays), "state")
        with self.lock:
            return {
                name: array.copy() for name, array in self.arrays.items() if names is None or name in names
            }

    def assign(self, values: Mapping[str, object]) -> None:
        """Replaces values. Raises InputMismatch, and changes nothing, if a name, shape or dtype is wrong."""
        checked = self._checked(values)
        with self.lock:
            for name, array in checked.items():
                self.arrays[name][...] = array

    def take(self, other: State, parts: Sequence[StatePart]) -> None:
        """Takes parts of the values of another state, whose tensors may have other shapes.

        Raises InputMismatch, and changes nothing, for tensors that one of them lacks or that differ in type, and for
        elements that are not there.
        """
        for part in parts:
            self._check_part(other, part)
        with ExitStack() as locks:
            for state in sorted({id(each): each for each in (self, other)}.values(), key=id):
                locks.enter_context(state.lock)
            self._copy(other, parts)

    def _copy(self, other: State, parts: Sequence[StatePart]) -> None:
        """Copies parts that were checked; both states are locked."""
        given = other.snapshot({part.name for part in parts})
        for part in parts:
            taken = given[part.name].reshape(-1)[part.source : part.source + part.count]
            self.arrays[part.name].reshape(-1)[part.target : part.target + part.count] = taken

    def _check_part(self, other: State, part: StatePart) -> None:
        for state, first in ((other, part.source), (self, part.target)):
            reject_unknown([part.name], list(state.arrays), "state")
            size = state.arrays[part.name].size
            if first < 0 or part.count < 0 or first + part.count > size:
                raise InputMismatch(
                    f"state '{part.name}': elements {first} to {first + part.count} of {size}; name those it has"
                )
        ours, theirs = self.arrays[part.name].dtype, other.arrays[part.name].dtype
        if ours != theirs:
            raise InputMismatch(f"state '{part.name}': expected {ours}, got {theirs}")

    def release(self) -> None:
        """Gives back what is not host memory; the values stay."""

    def _checked(self, values: Mapping[str, object]) -> dict[str, Array]:
        reject_unknown(values, list(self.arrays), "state")
        checked: dict[str, Array] = {}
        for name, value in values.items():
            checked[name] = array = np.asarray(value)
            ours = self.arrays[name]
            if array.shape != ours.shape or array.dtype != ours.dtype:
                raise InputMismatch(
                    f"state '{name}': expected {describe_array(ours)}, got {describe_array(array)}"
                )
        return checked
