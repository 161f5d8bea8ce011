"""The nodes of the traced graph that the ops of a program come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue


@dataclass(frozen=True)
class Provenance:
    """Maps ops to nodes, and nodes to ops.

    Args:
        writers: The name of the node of each op, in text order; empty for ops that are written only for results.
        values: By name of a node, the index of the op whose result is its tensor. Without nodes whose tensor is an
            argument, and those with several results.
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
