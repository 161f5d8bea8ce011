"""Where the code, the weights and the state of one executable lie, and the GraphExecs that run on them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol, TypeAlias

from aicf.runtime.addressed import Addressed
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.state import State
from aicf.runtime.tensors import Array

WEIGHT, DERIVED = "weight", "derived"

CommonKey: TypeAlias = tuple[Hashable, ...]
"""Tells that two executables have the same: `WEIGHT` or `DERIVED`, then what it follows from."""


class Store(Protocol):
    """What an executable shares among its calls."""

    def instance(self, plan: CapturePlan, state: State | None) -> GraphExec:
        """A GraphExec of one of the programs."""
        ...

    def addressed(self, plan: CapturePlan) -> Addressed:
        """One of the programs, on memory of others."""
        ...

    def new_state(self) -> State | None:
        """A state with the initial values; None if no program updates anything."""
        ...

    def prepared(self) -> dict[str, Array]:
        """The derived binds: u8[nbytes] by name."""
        ...

    def memory(self) -> dict[str, int]:
        """See `Executable.memory`."""
        ...

    def release(self) -> None:
        """Gives back what is shared, once no GraphExec uses it; the next use takes it again."""
        ...

    def common(self) -> Mapping[CommonKey, int]:
        """See `Executable.common`."""
        ...
