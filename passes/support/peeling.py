"""Peeling a group's body: view ops in front of the computation become strides of the operands.

What is left computes; its block arguments are the operands as a kernel sees them. Where arithmetic reads repeated
elements the body says so with one broadcast of the rest: an index map of the generated code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects.emit import YieldOp
from aicf.dialects.logical import BroadcastOp, ConcatOp, MatmulOp
from aicf.dialects.types import ElementType, tensor, tensor_info
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


_STRIDED_READERS = (MatmulOp, ConcatOp, YieldOp)
"""Ops that take operands with any strides, 0 included."""

_POSITIONAL = (MatmulOp, ConcatOp)
"""Ops whose kernels know operands by their place: each place gets a block argument of its own, in order."""


class _Peeler:
    def __init__(self, body: Block):
        self.body = body
        self.views: dict[SSAValue, PeeledOperand] = {}
        self.values: dict[SSAValue, SSAValue] = {}
        self.block = Block()
        self.operands: list[PeeledOperand] = []
        self.arguments: dict[tuple[PeeledOperand, int], SSAValue] = {}
        self.ways: dict[PeeledOperand, list[tuple[int, ...]]] = {}

    def run(self) -> PeeledBody:
        for index, argument in enumerate(self.body.args):
            self.views[argument] = PeeledOperand(index, View.whole(tensor_info(argument.type).shape))
        ops = list(self.body.ops)
        for op in ops:
            self._note_view(op)
        for op in ops:
            if isinstance(op, _POSITIONAL):
                for slot, operand in enumerate(op.operands):
                    if operand in self.views:
                        self._argument(self.views[operand], tensor_info(operand.type).element, slot + 1)
        for op in ops:
            if not (op.results and op.results[0] in self.views):
                self._clone(op)
        return PeeledBody(self.block, tuple(self.operands))

    def _note_view(self, op: Operation) -> None:
        base = self.views.get(op.operands[0]) if isinstance(op, VIEW_OPS) else None
        if base is not None and (view := base.view.then(op)) is not None:
            self.views[op.results[0]] = PeeledOperand(base.argument, view)

    def _operand(self, value: SSAValue, reader: Operation, slot: int) -> SSAValue:
        """The value in the new block. Arithmetic reads repeated elements through a broadcast, all else as strides."""
        if (peeled := self.views.get(value)) is None:
            return self.values[value]
        element = tensor_info(value.type).element
        if isinstance(reader, _STRIDED_READERS):
            return self._argument(peeled, element, slot + 1 if isinstance(reader, _POSITIONAL) else 0)
        view = peeled.view
        kept = [
            dim
            for dim, (size, step) in enumerate(zip(view.shape, view.strides, strict=True))
            if size != 1 and step
        ]
        if len(kept) == sum(1 for size in view.shape if size != 1):
            return self._argument(peeled, element, 0)
        if value not in self.values:
            core = View(view.offset, tuple(view.shape[d] for d in kept), tuple(view.strides[d] for d in kept))
            operand = PeeledOperand(peeled.argument, core)
            spread = BroadcastOp(
                self._argument(operand, element, -self._way(operand, kept)), kept, view.shape
            )
            self.block.add_op(spread)
            self.values[value] = spread.result
        return self.values[value]

    def _way(self, operand: PeeledOperand, kept: Sequence[int]) -> int:
        """Counts the dims along which an operand is laid out, from 0 for the first ones met.

        A vector times itself laid across (an outer product) needs two block arguments: each has one index map.
        """
        ways = self.ways.setdefault(operand, [])
        if tuple(kept) not in ways:
            ways.append(tuple(kept))
        return ways.index(tuple(kept))

    def _argument(self, peeled: PeeledOperand, element: ElementType, slot: int) -> SSAValue:
        """The block argument for a view; `slot` is the place in a positional op, from 1, else minus its way."""
        if (peeled, slot) not in self.arguments:
            argument = self.block.insert_arg(tensor(peeled.view.shape, element), len(self.block.args))
            argument.name_hint = self.body.args[peeled.argument].name_hint
            self.arguments[peeled, slot] = argument
            self.operands.append(peeled)
        return self.arguments[peeled, slot]

    def _clone(self, op: Operation) -> None:
        operands = [self._operand(value, op, slot) for slot, value in enumerate(op.operands)]
        clone = op.clone(dict(zip(op.operands, operands, strict=True)))
        # clone() maps by value, so two slots of one value need the explicit list.
        clone.operands = operands
        self.block.add_op(clone)
        self.values.update(zip(op.results, clone.results, strict=True))


def yielded(block: Block) -> Sequence[SSAValue]:
    """The values that a body yields."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    return last.operands
