"""Weights that are made when they are first read: those of a file whose numbers must be widened, and that a program
with prepared weights may never look at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from aicf.runtime.tensors import Array


class DeferredWeights(Mapping[str, Array]):
    """Arrays by name, each made once, when it is first read. For any number of threads.

    Args:
        names: In order.
        make: Gives the array of a name, in the element type that is asked for if it may have several, as numbers in
            blocks do that are read as they are stored or widened.
    """

    def __init__(self, names: Iterable[str], make: Callable[[str, str | None], Array]) -> None:
        self._made: dict[str, Array | None] = dict.fromkeys(names)
        self._make = make
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> Array:
        return self.read(name)

    def read(self, name: str, dtype: str | None = None) -> Array:
        """The array of a name; if it is made now, in that element type where it may have several."""
        with self._lock:
            array = self._made[name]
            if array is None:
                array = self._made[name] = self._make(name, dtype)
            return array

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    @property
    def made(self) -> dict[str, Array]:
        """Those that were read."""
        with self._lock:
            return {name: array for name, array in self._made.items() if array is not None}


def chosen(weights: Mapping[str, Array], names: Iterable[str]) -> Mapping[str, Array]:
    """Those of the weights that have one of these names, without reading what is deferred."""
    found = [name for name in names if name in weights]
    if not isinstance(weights, DeferredWeights):
        return {name: weights[name] for name in found}
    return DeferredWeights(found, weights.read)


def joined(weights: Mapping[str, Array], derived: Mapping[str, Array]) -> Mapping[str, Array]:
    """Weights and prepared weights as one, without reading what is deferred."""
    if not isinstance(weights, DeferredWeights):
        return {**weights, **derived}
    return DeferredWeights(
        [*weights, *derived], lambda name, _: derived[name] if name in derived else weights[name]
    )


def in_memory(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """The arrays that are there, without making what is deferred."""
    return arrays.made if isinstance(arrays, DeferredWeights) else arrays
