"""What is known of a model that is quantised: fields of a GGUF file, and tensors that are read a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from aicf.dialects.block_schemes import Array, Scheme
from aicf.frontends.gguf.reader import ALIGNMENT

_PIECE = 1 << 22
"""Elements that are widened at a time."""
REPLACED = (ALIGNMENT, "general.file_type", "general.quantization_version")
"""Fields that a quantised file has others for."""


@dataclass(frozen=True)
class Original:
    """A tensor of the model.

    Args:
        name: In a GGUF file.
        shape: Row-major.
        scheme: How its numbers are stored; that of f32 for what a folder has.
        read: Rows from one to another, all dims but the last counted as one, f32[rows, columns].
        stored: All of its bytes, u8, as its scheme has them; None if they are not such.
    """

    name: str
    shape: tuple[int, ...]
    scheme: Scheme
    read: Callable[[int, int], Array]
    stored: Callable[[], Array] | None = None

    def pieces(self) -> Iterator[Array]:
        """f32[rows, columns], all rows in turns."""
        rows, columns = prod(self.shape[:-1]), self.shape[-1]
        step = max(1, _PIECE // columns)
        for start in range(0, rows, step):
            yield self.read(start, min(start + step, rows))


class OriginalModel(NamedTuple):
    """Fields, as a GGUF file stores them, without those of `REPLACED`, and tensors in the order of the file."""

    fields: list[bytes]
    tensors: list[Original]
