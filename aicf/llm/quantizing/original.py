"""What is known of a model that is quantised: fields of a GGUF file, and tensors that are read one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
        read: Its rows as the scheme has them, all dims but the last counted as one: u8[rows, bytes of a row].
    """

    name: str
    shape: tuple[int, ...]
    scheme: Scheme
    read: Callable[[], Array]

    def stored(self) -> Iterator[Array]:
        """u8[rows, bytes of a row], all rows in turns; they are read once."""
        rows, step = self.read(), max(1, _PIECE // self.shape[-1])
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def pieces(self) -> Iterator[Array]:
        """f32[rows, columns], all rows in turns."""
        return map(self.scheme.rows, self.stored())


class OriginalModel(NamedTuple):
    """Fields, as a GGUF file stores them, without those of `REPLACED`, and tensors in the order of the file."""

    fields: list[bytes]
    tensors: list[Original]
