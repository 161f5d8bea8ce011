"""The contract between a session and what gives it programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aicf.compilation.compiled import CompiledModel
from aicf.engines.interface import Bucket, Interface
from aicf.inference.usage import Meter

GIVEN, COMPILED, LOADED = "given", "compiled", "loaded"


@dataclass(frozen=True)
class SourcedProgram:
    """An executable, where it comes from, and the seconds that took.

    Args:
        origin: `given` with the session, `compiled` now, or `loaded` from the cache.
        detail: More of it, in words.
        meter: Counted what making it requested; None if it was made elsewhere.
    """

    executable: CompiledModel
    origin: str
    detail: str
    seconds: float
    meter: Meter | None


class ProgramSource(Protocol):
    """Gives the programs of a session."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def name(self) -> str:
        """The target its programs are for, without libraries: `cpu:x86-64-v4`."""
        ...

    @property
    def threads(self) -> int:
        """That run each program together."""
        ...

    @property
    def makes_programs(self) -> bool:
        """Whether it may have programs for more sizes than those that were given ahead."""
        ...

    @property
    def interface(self) -> Interface:
        """What the model takes and gives."""
        ...

    def ahead(self) -> SourcedProgram | None:
        """The executable of all sizes that were given ahead; None if they were not, or not for all dimensions."""
        ...

    def bucket_of(self, arguments: Sequence[Any]) -> Bucket:
        """What the program of a call is made for. Raises InputMismatch for inputs that do not fit."""
        ...

    def refusal(self, bucket: Bucket) -> str | None:
        """Why no program can be made for a bucket, with the way out; None if one can."""
        ...

    def make(self, bucket: Bucket) -> SourcedProgram:
        """The executable of one program. Raises ValueNeeded if the bucket must have more values."""
        ...
