"""The contract between a session and what gives it programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aicf.compiled import CompiledModel
from aicf.inference.interface import Interface, Sizes
from aicf.inference.usage import Meter

GIVEN, COMPILED, LOADED = "given", "compiled", "loaded"


@dataclass(frozen=True)
class Made:
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


class Engine(Protocol):
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

    def ahead(self) -> Made | None:
        """The executable of all sizes that were given ahead; None if they were not, or not for all dimensions."""
        ...

    def sizes_of(self, arguments: Sequence[Any]) -> Sizes:
        """The sizes of the symbolic dimensions in a call. Raises InputMismatch for inputs that do not fit."""
        ...

    def refusal(self, sizes: Sizes) -> str | None:
        """Why no program can be made for these sizes, with the way out; None if one can."""
        ...

    def make(self, sizes: Sizes) -> Made:
        """The executable of one program, for these sizes."""
        ...
