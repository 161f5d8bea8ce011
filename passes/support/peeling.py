"""Peeling a group's body: view ops in front of the computation become strides of the operands.

What is left computes; its block arguments are the operands as a kernel sees them. A broadcast stays in the body
(it is an index map of the generated code) unless only contractions read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects.emit import YieldOp
from aicf.dialects.logical import BroadcastOp, ConcatOp, MatmulOp
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.support.views import VIEW_OPS, View


@dataclass(frozen=True)
class PeeledOperand:
    """Operand of a peeled body: block argument `argument` of the original, seen through `view`."""

    argument: int
    view: View


@dataclass(frozen=True)
class PeeledBody:
    """A body without leading views, and what its arguments are; matmul operands come first, in order."""

    block: Block
    operands: tuple[PeeledOperand, ...]


def peel(body: Block) -> PeeledBody:
    """A new block that computes what `body` does, with leading view ops turned into operand views."""
    return _Peeler(body).run()


class _Peeler:
    def __init__(self, body: Block):
        self.body = body
        self.views: dict[SSAValue, PeeledOperand] = {}
        self.values: dict[SSAValue, SSAValue] = {}
        self.block = Block()
        self.operands: list[PeeledOperand] = []
        self.arguments: dict[tuple[PeeledOperand, int], SSAValue] = {}

    def run(self) -> PeeledBody:
        for index, argument in enumerate(self.body.args):
            self.views[argument] = PeeledOperand(index, View.whole(tensor_info(argument.type).shape))
        ops = list(self.body.ops)
        for op in ops:
            self._note_view(op)
        for op in ops:
            if isinstance(op, MatmulOp):
                for slot, operand in enumerate(op.operands):
                    if operand in self.views:
                        self._operand(operand, slot + 1)
        for op in ops:
            if not (op.results and op.results[0] in self.views):
                self._clone(op)
        return PeeledBody(self.block, tuple(self.operands))

    def _note_view(self, op: Operation) -> None:
        if not isinstance(op, VIEW_OPS) or (base := self.views.get(op.operands[0])) is None:
            return
        if isinstance(op, BroadcastOp) and not _feeds_only_strided(op):
            return
        if (view := base.view.then(op)) is not None:
            self.views[op.results[0]] = PeeledOperand(base.argument, view)

    def _operand(self, value: SSAValue, slot: int) -> SSAValue:
        """The value in the new block; `slot` tells operands of the contraction (1, 2) from all others (0)."""
        peeled = self.views.get(value)
        if peeled is None:
            return self.values[value]
        if (peeled, slot) not in self.arguments:
            type_ = tensor(peeled.view.shape, tensor_info(value.type).element)
            argument = self.block.insert_arg(type_, len(self.block.args))
            argument.name_hint = value.name_hint
            self.arguments[peeled, slot] = argument
            self.operands.append(peeled)
        return self.arguments[peeled, slot]

    def _clone(self, op: Operation) -> None:
        contraction = isinstance(op, MatmulOp)
        operands = [self._operand(v, slot + 1 if contraction else 0) for slot, v in enumerate(op.operands)]
        clone = op.clone(dict(zip(op.operands, operands, strict=True)))
        # clone() maps by value, so two slots of one value need the explicit list.
        clone.operands = operands
        self.block.add_op(clone)
        self.values.update(zip(op.results, clone.results, strict=True))


def _feeds_only_strided(op: Operation) -> bool:
    """Whether every reader of the result takes any strides: contractions, concatenation, further views, a plain copy."""
    readers = [use.operation for use in op.results[0].uses]
    return all(
        isinstance(reader, MatmulOp | ConcatOp | YieldOp)
        or (isinstance(reader, VIEW_OPS) and _feeds_only_strided(reader))
        for reader in readers
    )


def yielded(block: Block) -> Sequence[SSAValue]:
    """The values that a body yields."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    return last.operands
