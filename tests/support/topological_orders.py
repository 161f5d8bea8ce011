"""Random topological orders of a program's instructions, by its `after` edges alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aicf.dialects.emit import ProgramOp
from aicf.runtime.graph import Graph


def random_order(program: ProgramOp, random: np.random.Generator) -> list[str]:
    """Instruction names in an order in which each comes after all it waits for."""
    waits = {op.instruction.data: {edge.source.data for edge in op.after} for op in program.instructions}
    return _random_order(waits, random)


def random_graph_order(graph: Graph, seed: int) -> tuple[str, ...]:
    """One order of a graph's operations that its edges allow, the same for the same seed."""
    waits = {node.name: {edge.source for edge in node.after} for node in graph.nodes}
    return tuple(_random_order(waits, np.random.default_rng(seed)))


def _random_order(waits: dict[str, set[str]], random: np.random.Generator) -> list[str]:
    order: list[str] = []
    while waits:
        ready = [name for name, sources in waits.items() if not sources & waits.keys()]
        chosen = ready[int(random.integers(len(ready)))]
        order.append(chosen)
        del waits[chosen]
    return order


def is_graph_order(graph: Graph, names: Sequence[str]) -> bool:
    """Whether `names` are all operations of a graph in an order that its edges allow."""
    seen: set[str] = set()
    sources = {node.name: [edge.source for edge in node.after] for node in graph.nodes}
    for name in names:
        if name in seen or not all(source in seen for source in sources.get(name, [name])):
            return False
        seen.add(name)
    return len(seen) == len(graph.nodes)
