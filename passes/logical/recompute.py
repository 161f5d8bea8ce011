"""Takes the saves out of a function: who reads them reads the value itself, or one computed again before the reader."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects import logical
from aicf.passes.logical.saved_values import computing, in_memory
from aicf.passes.support.identity import IdTable, derived_id, op_id, set_identity, sources, value_hint
from aicf.passes.support.policy import without_bucket

AGAIN = "again"
"""The suffix of an op that computes a saved value again, after the id of the first."""


def is_again(op: Operation) -> bool:
    """Whether an op computes again what is not kept: `a.again`, or with a number where a reader has another one."""
    last = without_bucket(op_id(op) or "").rpartition(".")[2]
    return last.partition("_")[0] == AGAIN


def eliminate(block: Block, held: Collection[SSAValue], ids: IdTable) -> None:
    """Replaces every save. What is not `held` is computed again before its first reader, once for all readers."""
    writer = _Writer(held, ids)
    saves: list[logical.SaveOp] = []
    for op in list(block.ops):
        if isinstance(op, logical.SaveOp):
            saves.append(op)
            continue
        for index, operand in enumerate(op.operands):
            if isinstance(operand.owner, logical.SaveOp):
                op.operands[index] = writer.value(operand.owner.operand, op)
    for save in reversed(saves):
        Rewriter.erase_op(save)


class _Writer:
    """Writes the ops that compute saved values again."""

    def __init__(self, held: Collection[SSAValue], ids: IdTable) -> None:
        self._held = held
        self._ids = ids
        self._again: dict[SSAValue, SSAValue] = {}

    def value(self, value: SSAValue, reader: Operation) -> SSAValue:
        """The value as `reader` gets it."""
        for op in computing(value, self._held):
            if op.results[0] not in self._again:
                self._copy(op, reader)
        return self._read(value)

    def _read(self, value: SSAValue) -> SSAValue:
        while isinstance(value.owner, logical.SaveOp):
            value = value.owner.operand
        return value if in_memory(value, self._held) else self._again[value]

    def _copy(self, op: Operation, reader: Operation) -> None:
        copy = op.clone({operand: self._read(operand) for operand in op.operands})
        identity = op_id(op)
        if identity is not None:
            identity = self._ids.fresh(derived_id(identity, AGAIN))
        set_identity(copy, identity, sources(op))
        copy.location = op.location
        Rewriter.insert_op(copy, InsertPoint.before(reader))
        for old, new in zip(op.results, copy.results, strict=True):
            new.name_hint = None if identity is None else value_hint(identity)
            self._again[old] = new
