"""Random topological orders of a program's instructions, by its `after` edges alone."""

from __future__ import annotations

import numpy as np

from aicf.dialects.emit import ProgramOp


def random_order(program: ProgramOp, random: np.random.Generator) -> list[str]:
    """Instruction names in an order in which each comes after all it waits for."""
    waits = {op.instruction.data: {edge.source.data for edge in op.after} for op in program.instructions}
    order: list[str] = []
    while waits:
        ready = [name for name, sources in waits.items() if not sources & waits.keys()]
        chosen = ready[int(random.integers(len(ready)))]
        order.append(chosen)
        del waits[chosen]
    return order
