"""Memory that a training step takes while it runs, estimated on lowered logical IR for a choice of what is kept.

Groups, kernels and places are decided later, so this is a guess that is good for comparing choices: a value that one
pointwise op alone reads is taken to stay in registers, and workspace, gaps and overwriting do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import byte_count
from aicf.passes.bodies.views import is_view
from aicf.passes.logical.saved_values import computing, is_always_in_memory, root_of


@dataclass(frozen=True)
class Peak:
    """The moment at which most bytes are alive.

    Args:
        bytes: How many.
        waiting: The values that are alive and not read or written then: each could be elsewhere.
    """

    bytes: int
    waiting: frozenset[SSAValue]


@dataclass
class _Life:
    """From where to where a value, or its second copy, is alive, in steps; and who reads it."""

    start: int
    end: int
    readers: set[Operation]


_Key = tuple[SSAValue, bool]
"""A value that is in memory, and whether it is the copy that was computed again."""


class _Read(NamedTuple):
    """An operand of an op, what is in memory of it, and whether a save is between the two."""

    operand: SSAValue
    root: SSAValue
    is_saved: bool


class LiveBytes:
    """The estimate for one function, whose saves are still there. It is read once: the function must not change."""

    def __init__(self, block: Block) -> None:
        self._ops = [op for op in block.ops if not (is_view(op) or isinstance(op, logical.SaveOp | ReturnOp))]
        self._reads = {op: list(_reads_of(op)) for op in self._ops}
        self._writes = {
            op: [result for result in op.results if not is_always_in_memory(result)] for op in self._ops
        }
        self._readers: dict[SSAValue, set[Operation]] = {}
        for op, reads in self._reads.items():
            for read in reads:
                if not read.is_saved:
                    self._readers.setdefault(read.root, set()).add(op)

    def peak(self, held: Collection[SSAValue]) -> Peak:
        """The peak if of what is saved the roots `held` are kept, and the rest is computed again."""
        lives, touched = self._lives(held)
        sizes = {
            key: byte_count(key[0].type)
            for key, life in lives.items()
            if not _in_registers(key[0], life.readers)
        }
        change = [0] * (len(touched) + 1)
        for key, size in sizes.items():
            change[lives[key].start] += size
            change[lives[key].end + 1] -= size
        most = step = live = 0
        for index, delta in enumerate(change):
            live += delta
            if live > most:
                most, step = live, index
        waiting = (
            root
            for root, again in sizes
            if not again and lives[root, again].start < step < lives[root, again].end
        )
        return Peak(most, frozenset(waiting) - touched[step] if touched else frozenset())

    def reads_in_registers(self, root: SSAValue) -> bool:
        """Whether the forward part would not write the value if it were not kept."""
        return _in_registers(root, self._readers.get(root, set()))

    def _lives(self, held: Collection[SSAValue]) -> tuple[dict[_Key, _Life], list[set[SSAValue]]]:
        """The lives of all values, and which first copies each step reads or writes."""
        lives: dict[_Key, _Life] = {}
        touched: list[set[SSAValue]] = []
        for op, again in self._steps(held):
            step = len(touched)
            touched.append(set())
            for _, root, is_saved in self._reads[op]:
                life = lives[root, (again or is_saved) and root not in held]
                life.end = step
                life.readers.add(op)
                touched[-1].add(root)
            for result in self._writes[op]:
                lives[result, again] = _Life(step, step, set())
                touched[-1].add(result)
        return lives, touched

    def _steps(self, held: Collection[SSAValue]) -> Iterator[tuple[Operation, bool]]:
        """The ops in the order in which they will run, and whether each runs again."""
        done: set[Operation] = set()
        for op in self._ops:
            for operand, root, is_saved in self._reads[op]:
                if is_saved and root not in held:
                    for other in computing(operand, held):
                        if other not in done and not is_view(other):
                            done.add(other)
                            yield other, True
            yield op, False


def _reads_of(op: Operation) -> Iterator[_Read]:
    """What an op reads of what a choice may keep out of memory."""
    for operand in op.operands:
        if not is_always_in_memory(root := root_of(operand)):
            yield _Read(operand, root, _is_saved(operand))


def _is_saved(value: SSAValue) -> bool:
    """Whether a save is among the views that lead to the value."""
    while isinstance(value, OpResult) and (is_view(value.op) or isinstance(value.op, logical.SaveOp)):
        if isinstance(value.op, logical.SaveOp):
            return True
        value = value.op.operands[0]
    return False


def _in_registers(root: SSAValue, readers: Collection[Operation]) -> bool:
    op = root.owner
    if len(readers) > 1 or not isinstance(op, Operation):
        return False
    joins = (logical.Elementwise, logical.Contraction)
    return any(op.has_trait(trait) for trait in joins) and all(
        reader.has_trait(logical.Elementwise) or reader.has_trait(logical.Reduction) for reader in readers
    )
