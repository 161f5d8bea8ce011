"""The compiled graphs of this process that are alive, for reports."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from aicf.pytorch.fallback import PartlyCompiled
    from aicf.pytorch.graphs import CompiledGraph

    G = TypeVar("G", CompiledGraph, PartlyCompiled)
else:
    G = TypeVar("G")

_graphs: list[weakref.ref[CompiledGraph | PartlyCompiled]] = []


def register(graph: G) -> G:
    """Registers a graph, and returns it."""
    _graphs[:] = [known for known in _graphs if known() is not None]
    _graphs.append(weakref.ref(graph))
    return graph


def all_graphs() -> Sequence[CompiledGraph | PartlyCompiled]:
    """All live graphs, in the order in which they were traced."""
    return [graph for known in _graphs if (graph := known()) is not None]
