"""Parameters and states that programs update: host copies, owned by one executable or one GraphExec."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import numpy as np

from aicf.errors import InputMismatch
from aicf.runtime.memory import copy_of
from aicf.runtime.ports import reject_unknown
from aicf.runtime.tensors import Array, describe_array


class State:
    """Copies of the parameters and states that programs update; owned by one executable or one GraphExec.

    Args:
        initial: Start values by name, copied.
    """

    def __init__(self, initial: Mapping[str, Array]) -> None:
        self.arrays = {name: copy_of(array) for name, array in initial.items()}
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
