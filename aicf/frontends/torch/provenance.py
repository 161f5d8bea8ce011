"""Which ops of a program come from which nodes of the traced graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue


@dataclass(frozen=True)
class Provenance:
    """Ops and the nodes that they were written for.

    Args:
        writers: By op, in text order, the name of the node; empty for what is written for results alone.
        values: By name of a node, the index of the op that gives its tensor. Nodes whose tensor is an argument, and
            those with several results, are not in it.
    """

    writers: Sequence[str] = ()
    values: Mapping[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def of(
        ops: Sequence[Operation],
        last_ops: Iterable[tuple[str, Operation | None]],
        values: Iterable[tuple[str, SSAValue]],
    ) -> Provenance:
        """The table of a program.

        Args:
            ops: All of it.
            last_ops: By node, in the order of the graph, what was the last op when the node was written.
            values: The tensors of nodes.
        """
        index = {op: number for number, op in enumerate(ops)}
        writers = [""] * len(ops)
        start = 0
        for name, last in last_ops:
            end = 0 if last is None else index[last] + 1
            writers[start:end] = [name] * (end - start)
            start = max(start, end)
        found = {name: index[value.owner] for name, value in values if isinstance(value.owner, Operation)}
        return Provenance(writers, found)
