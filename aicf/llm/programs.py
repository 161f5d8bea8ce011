"""The programs of a language model by the sizes of its cache, made when a size is first asked for.

A cache that grows, and a batch, need programs of their own sizes. They share the weights of the first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicf.compilation.compiled import CompiledModel

if TYPE_CHECKING:
    from aicf.inference.packing import ModelWeights

MOST_SEQUENCES = 32
"""Of a batch."""
_FEWEST_POSITIONS = 64
"""Of the cache of a batch."""


@dataclass(frozen=True)
class Sizes:
    """What programs are made for.

    Args:
        capacity: Positions of the cache, of each sequence.
        sequences: Of a batch; 0 for programs of one text.
    """

    capacity: int
    sequences: int = 0


def bucket_of(count: int, least: int = 1) -> int:
    """The least power of two that is not less than either."""
    return 1 << (max(count, least) - 1).bit_length()


def batch_sizes(sequences: int, positions: int, context: int) -> Sizes:
    """The sizes that a batch runs with: powers of two, but no more positions than the model's context."""
    return Sizes(min(bucket_of(positions, _FEWEST_POSITIONS), context), bucket_of(sequences))


class Programs:
    """See the module.

    Args:
        make: Makes programs, on the weights that those before have; None for the first ones on the host, where nothing
            is shared yet.
        is_device: Whether they run on a device, to which all weights go once.
    """

    def __init__(self, make: Callable[[Sizes, ModelWeights | None], CompiledModel], is_device: bool) -> None:
        self._make, self._is_device = make, is_device
        self._made: dict[Sizes, CompiledModel] = {}
        self._shared: ModelWeights | None = None

    def of(self, sizes: Sizes) -> CompiledModel:
        """The programs of some sizes. Raises as `aicf.compile`."""
        if sizes not in self._made:
            shared = self._weights() if self._made or self._is_device else None
            self._made[sizes] = self._make(sizes, shared)
            if shared is not None:
                shared.keep(self._made[sizes])
        return self._made[sizes]

    def drop(self, sizes: Sizes) -> None:
        """Forgets the programs of some sizes, whose cache is gone with the last user of them."""
        self._made.pop(sizes, None)

    def _weights(self) -> ModelWeights:
        """What the programs so far have of the weights."""
        if self._shared is None:
            # Only here: one text needs nothing of what serving is made of.
            from aicf.inference.packing import ModelWeights

            self._shared = ModelWeights()
            for executable in self._made.values():
                self._shared.keep(executable)
        return self._shared
