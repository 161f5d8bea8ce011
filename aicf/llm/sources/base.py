"""What a family asks of a model's source: settings and tensors, under the names that GGUF files use.

A setting's name is that of a GGUF field without its architecture, `attention.head_count`; a tensor's is `blk.0.attn_q`
with `.weight` or `.bias`. A source that calls them otherwise translates.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from aicf.dialects.block_schemes import Scheme
from aicf.errors import InvalidIR, UnsupportedOp, quoted
from aicf.runtime.tensors import Array


class Source(ABC):
    """A model that is opened; its tensors stay where they are stored until they are asked for.

    Args:
        path: Of the file or the folder.
        architecture: What the source calls the model's architecture.
    """

    rotates_neighbours: bool
    """Whether rotary positions turn elements 2 i and 2 i + 1 of a head as a pair, else i and i + width / 2."""

    def __init__(self, path: Path, architecture: str) -> None:
        self.path, self.architecture = path, architecture

    @abstractmethod
    def identity(self) -> list[object]:
        """What tells the model's files from others without reading all of them, as JSON values; see `identity_of`."""

    @abstractmethod
    def setting(self, name: str) -> object:
        """A setting as it is stored; None if the source does not state it."""

    @abstractmethod
    def called(self, name: str) -> str:
        """What the source calls a setting, for messages."""

    @abstractmethod
    def rope_parameters(self, *, local: bool) -> Mapping[str, Any]:
        """The settings of rotary positions, as `aicf.llm.families.rope` takes them.

        Args:
            local: Those of layers with a sliding window, where a model has others for them.
        """

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is a tensor."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a tensor, row-major. Raises InvalidIR if there is none."""

    @abstractmethod
    def array(self, name: str, dtype: str = "f32") -> Array:
        """A tensor in `f32`, `bf16` or `f16`, rounded to nearest where it is stored with more digits; where it lies if
        it is stored so. Raises InvalidIR if there is none."""

    def packed(self) -> dict[str, Scheme]:
        """The schemes of the matrices that are stored in blocks, or laid out so when they are read, by name."""
        return {}

    def rows(self, name: str) -> Array:
        """A matrix of `packed`, or a stack of them: u8[..., bytes of a row]. Raises InvalidIR if it is none."""
        raise self.error(f"tensor '{name}' is not stored in blocks")

    @abstractmethod
    def names(self) -> list[str]:
        """All tensors."""

    @abstractmethod
    def unused(self, used: Iterable[str]) -> list[str]:
        """Tensors besides those used that a model computes with, as the source calls them."""

    def size(self, name: str, default: int | None = None) -> int:
        """A setting that is a whole number, 1 or more. Raises InvalidIR if it is none, or missing without default."""
        value = self.setting(name)
        if value is None:
            return self._required(name) if default is None else default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{self.called(name)} is {quoted(value)}, which is of another type")
        if value < 1:
            raise self.error(f"{self.called(name)} is {value}; it is 1 or more")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A setting that is a number. Raises InvalidIR if it is none, or missing without default."""
        value = self.setting(name)
        if value is None:
            return self._required(name) if default is None else default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"{self.called(name)} is {quoted(value)}, which is of another type")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is true or false. Raises InvalidIR if it is neither."""
        value = self.setting(name)
        if value is not None and not isinstance(value, bool):
            raise self.error(f"{self.called(name)} is {quoted(value)}; it is true or false")
        return default if value is None else value

    def entries(self, name: str) -> list[Any] | None:
        """A setting that is a list; None if the source does not state it. Raises InvalidIR if it is none."""
        value = self.setting(name)
        if value is not None and not isinstance(value, list):
            raise self.error(f"{self.called(name)} is {quoted(value)}; it is a list")
        return cast("list[Any] | None", value)

    def _required(self, name: str) -> Any:
        raise self.error(f"{self.called(name)} is missing; make the model again")

    def error(self, message: str) -> InvalidIR:
        """An error about this model."""
        return InvalidIR(message, location=str(self.path))

    def unsupported(self, message: str) -> UnsupportedOp:
        """An error about something this model has that is not read."""
        return UnsupportedOp(message, location=str(self.path))


_SAMPLES, _SAMPLE_BYTES = 128, 4096


def identity_of(data: memoryview, written: int) -> list[object]:
    """What tells a file from others: its size, its time, and a hash of samples that lie evenly in it, as two files may
    have the same size and time. A file of 512 KiB or less is hashed whole.

    Args:
        data: Bytes of the file that was opened, mapped.
        written: When that file was last written, in nanoseconds.
    """
    step = max(_SAMPLE_BYTES, len(data) // _SAMPLES)
    digest = hashlib.sha256()
    for start in range(0, len(data), step):
        digest.update(data[start : start + _SAMPLE_BYTES])
    digest.update(data[-_SAMPLE_BYTES:])
    return [len(data), written, digest.hexdigest()]
