"""Folds the views of a group's body. View ops before the computation become strides of the operands. View ops after a
product, and transpositions after anything else, become strides of the result.

What is left computes; its block arguments are the operands as a kernel sees them, in the order that kernels of its kind
read. Where arithmetic reads repeated elements the body says so with one broadcast of the rest: an index map of the
generated code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects.emit import YieldOp
from aicf.dialects.logical import BroadcastOp, ConstantOp, MatmulOp, ReshapeOp, TransposeOp
from aicf.dialects.traits import IndexedRead, MatrixKernels, PositionalOperands, StridedOperands
from aicf.dialects.types import ElementType, tensor, tensor_info
from aicf.passes.bodies.attention import attention_of
from aicf.passes.bodies.attention_backward import AttentionBackward, attention_backward_of
from aicf.passes.bodies.operand_sums import OperandSum, operand_sum_of
from aicf.passes.bodies.products import Products, products_of
from aicf.passes.bodies.views import View, is_view, view_after


@dataclass(frozen=True)
class FoldedOperand:
    """Operand of a folded body: block argument `argument` of the original, seen through `view`."""

    argument: int
    view: View


@dataclass(frozen=True)
class Lies:
    """Where the operands and results of a body lie, each in some memory: its own, or that of what it is a part of."""

    operands: tuple[View, ...]
    results: tuple[View, ...]

    @classmethod
    def alone(cls, body: Block) -> Lies:
        """Each value has contiguous memory of its own."""
        operands, results = (
            [tensor_info(v.type).shape for v in values] for values in (body.args, yielded(body))
        )
        return cls(tuple(map(View.whole, operands)), tuple(map(View.whole, results)))


@dataclass(frozen=True)
class FoldedBody:
    """A body without views around it, what its arguments are, and where in its results' memory it writes."""

    block: Block
    operands: tuple[FoldedOperand, ...]
    results: tuple[View, ...]


@dataclass(frozen=True)
class _Order:
    """Which arguments a body gets, and in which order, by what its kernels know of it.

    Args:
        first: Operands that come first, each as the reader, and its index among the reader's operands.
        slots: The same operands to the slot that tells them apart: those in one slot share an argument.
        strided: Readers of arithmetic that take operands with any strides, 0 included, instead of index maps.
        sums: Sums of what a product reads, to where it does: they read the same argument, as the matrix that it is.
        parts: Op to the part of the body it is of; an operand that two parts read is an argument of each.
        ops: All ops, in the order in which they ask for their arguments.
    """

    ops: Sequence[Operation]
    first: Sequence[tuple[Operation, int]] = ()
    slots: Mapping[tuple[Operation, int], int] = field(default_factory=dict[tuple[Operation, int], int])
    strided: frozenset[Operation] = frozenset()
    sums: Mapping[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    parts: Mapping[Operation, int] = field(default_factory=dict[Operation, int])


def fold_views(body: Block, lies: Lies | None = None) -> FoldedBody:
    """A new block that computes what `body` does, with leading view ops turned into operand views.

    `lies` says where the operands and results of `body` lie; without it each has contiguous memory of its own.
    """
    return _ViewFolder(body, lies or Lies.alone(body)).run()


_IN_MEMORY = 1
"""Slot of operands that are read at computed indices: apart from those of the same value that are read at the point."""


def reads_in_memory(reader: Operation, index: int) -> bool:
    """Whether `reader` takes operand `index` as it lies in memory, with any strides, and not as elements."""
    return reader.has_trait(StridedOperands) or (index == 0 and reader.has_trait(IndexedRead))


class _ViewFolder:
    def __init__(self, body: Block, lies: Lies):
        self.body = body
        self.lies = lies
        self.views: dict[SSAValue, FoldedOperand] = {}
        self.values: dict[tuple[SSAValue, int], SSAValue] = {}
        self.block = Block()
        self.operands: list[FoldedOperand] = []
        self.arguments: dict[tuple[FoldedOperand, int, int], SSAValue] = {}
        self.ways: dict[tuple[FoldedOperand, int], list[tuple[int, ...]]] = {}
        self.order = _Order(())
        self.has_products = any(op.has_trait(MatrixKernels) for op in body.ops)

    def run(self) -> FoldedBody:
        for index, argument in enumerate(self.body.args):
            self.views[argument] = FoldedOperand(index, self.lies.operands[index])
        for op in self.body.ops:
            self._note_view(op)
        product_views = self._views_of_products()
        self.order = _order_of(self.body, self.views, product_views)
        for op, operand in self.order.first:
            if op.operands[operand] in self.views:
                self._operand(op.operands[operand], op, operand)
        for op in self.order.ops:
            self._clone(op, product_views)
        results = tuple(
            product_views[value][1] if value in product_views else view
            for value, view in zip(yielded(self.body), self.lies.results, strict=True)
        )
        return FoldedBody(self.block, tuple(self.operands), results)

    def _views_of_products(self) -> dict[SSAValue, tuple[SSAValue, View]]:
        """Results that are views of a product which nothing else reads, of keys and values that an attention writes a
        row of, or transpositions of what is computed otherwise, or interleaved: the value, and its position in
        their memory."""
        attention = attention_of(self.body, self.views)
        writes = () if attention is None else (attention.writes or ())
        found: dict[SSAValue, tuple[SSAValue, View]] = {}
        for result, last in zip(yielded(self.body), self.lies.results, strict=True):
            value, chain = _seen_through(result, is_view)
            if not isinstance(value, OpResult):
                # A copy: what strides of the operand do not say, those of the result may.
                value, chain = _seen_through(
                    result, lambda op: op.results[0] not in self.views and _moves(op)
                )
            elif not (isinstance(value.op, MatmulOp) and value.has_one_use()) and value.op not in writes:
                value, chain = _seen_through(result, _moves)
                if self.has_products or _is_yielded(value, chain):
                    continue
            if chain and (view := view_after(chain, last)) is not None:
                found[result] = value, view
        return found

    def _note_view(self, op: Operation) -> None:
        base = self.views.get(op.operands[0]) if is_view(op) else None
        if base is not None and (view := base.view.then(op)) is not None:
            self.views[op.results[0]] = FoldedOperand(base.argument, view)

    def _operand(self, value: SSAValue, reader: Operation, index: int) -> SSAValue:
        """The value in the new block. Arithmetic reads repeated elements through a broadcast, all else as strides."""
        part = self.order.parts.get(reader, 0)
        if (folded := self.views.get(value)) is None:
            return self.values[value, 0]
        element = tensor_info(value.type).element
        slot = self.order.slots.get((reader, index), 0)
        if reads_in_memory(reader, index) or reader in self.order.strided:
            return self._argument(folded, element, slot, part)
        view = folded.view
        kept = [
            dim
            for dim, (size, step) in enumerate(zip(view.shape, view.strides, strict=True))
            if size != 1 and step
        ]
        if len(kept) == sum(1 for size in view.shape if size != 1):
            return self._argument(folded, element, 0, part)
        if (value, part) not in self.values:
            core = View(view.offset, tuple(view.shape[d] for d in kept), tuple(view.strides[d] for d in kept))
            operand = FoldedOperand(folded.argument, core)
            argument = self._argument(operand, element, -self._way(operand, part, kept), part)
            spread = BroadcastOp(argument, kept, view.shape)
            self.block.add_op(spread)
            self.values[value, part] = spread.result
        return self.values[value, part]

    def _way(self, operand: FoldedOperand, part: int, kept: Sequence[int]) -> int:
        """Counts the dims along which an operand is laid out, from 0 for the first ones met.

        A vector times itself laid across (an outer product) needs two block arguments: each has one index map.
        """
        ways = self.ways.setdefault((operand, part), [])
        if tuple(kept) not in ways:
            ways.append(tuple(kept))
        return ways.index(tuple(kept))

    def _argument(self, folded: FoldedOperand, element: ElementType, slot: int, part: int) -> SSAValue:
        """The block argument for a view; `slot` is that of a positional op, from 1, else minus its way."""
        key = folded, slot, part
        if key not in self.arguments:
            argument = self.block.insert_arg(tensor(folded.view.shape, element), len(self.block.args))
            argument.name_hint = self.body.args[folded.argument].name_hint
            self.arguments[key] = argument
            self.operands.append(folded)
        return self.arguments[key]

    def _clone(self, op: Operation, product_views: Mapping[SSAValue, tuple[SSAValue, View]]) -> None:
        read = [product_views[value][0] if value in product_views else value for value in op.operands]
        read = [self.order.sums[op]] if op in self.order.sums else read
        operands = [self._operand(value, op, index) for index, value in enumerate(read)]
        clone = op.clone_without_regions(clone_operands=False)
        clone.operands = operands
        if op in self.order.sums:
            clone.properties["axes"] = DenseArrayBase.from_list(i64, [0])
        self.block.add_op(clone)
        for old, new in zip(op.results, clone.results, strict=True):
            self.values[old, 0] = new


def _order_of(
    body: Block,
    views: Mapping[SSAValue, FoldedOperand],
    product_views: Mapping[SSAValue, tuple[SSAValue, View]],
) -> _Order:
    """The order of a body's arguments: that of its kind, else those of positional ops and then the rest."""
    skipped = _chains(product_views)
    ops = [op for op in body.ops if op not in skipped and not (op.results and op.results[0] in views)]
    if (backward := attention_backward_of(body, views)) is not None:
        return _order_of_backward(ops, backward)
    if (attention := attention_of(body, views)) is not None:
        add = attention.mask_add
        first: list[tuple[Operation, int]] = list(attention.reads)
        if add is not None:
            first.append((add, 0 if add.lhs is attention.mask else 1))
        if attention.position is not None:
            first.append(attention.position)
        slots = {index: slot for slot, index in enumerate(first, 1)}
        strided = {attention.queries[0], attention.keys[0]} | ({add} if add is not None else set[Operation]())
        if attention.position is not None:
            strided |= {attention.position[0]}
        if attention.writes is not None:
            keys, values = attention.writes
            strided |= {keys, values}
            slots[values, 1] = slots[keys, 1]
        for turn in attention.turns or ():
            slots |= dict.fromkeys(turn.source_reads, slots[turn.reads[0]])
            strided |= {op for op, _ in (*turn.source_reads, *turn.reads)}
        return _Order(ops, first, slots, frozenset(strided))
    if (products := products_of(body, views)) is not None:
        return _order_of_products(ops, products, views)
    if (found := operand_sum_of(body, _by_argument(views))) is not None:
        return _order_of_operand_sum(ops, found)
    first = [
        (op, index) for op in ops if op.has_trait(PositionalOperands) for index in range(len(op.operands))
    ]
    slots = {(op, index): index + 1 for op, index in first}
    slots |= {(op, 0): _IN_MEMORY for op in ops if op.has_trait(IndexedRead)}
    return _Order(ops, first, slots)


def _by_argument(views: Mapping[SSAValue, FoldedOperand]) -> dict[SSAValue, tuple[int, View]]:
    return {value: (folded.argument, folded.view) for value, folded in views.items()}


def _order_of_operand_sum(ops: Sequence[Operation], found: OperandSum) -> _Order:
    """The operands of the product, one of which the sum reads as well."""
    product, total = found.product, found.total
    first: list[tuple[Operation, int]] = [(product, 0), (product, 1)]
    slots: dict[tuple[Operation, int], int] = {(product, 0): 1, (product, 1): 2, (total, 0): found.index + 1}
    sums: dict[Operation, SSAValue] = {total: product.operands[found.index]}
    return _Order(ops, first, slots, frozenset({total}), sums)


def _order_of_backward(ops: Sequence[Operation], backward: AttentionBackward) -> _Order:
    """Queries, keys, values, the gradient of the result, and the mask; two products read each but values and mask."""
    first = [reads[0] for reads in backward.reads]
    slots = {read: slot for slot, reads in enumerate(backward.reads, 1) for read in reads}
    add, mask = backward.forward.mask_add, backward.forward.mask
    if add is None:
        return _Order(ops, first, slots)
    read = (add, 0 if add.lhs is mask else 1)
    return _Order(ops, [*first, read], {**slots, read: len(first) + 1}, frozenset({add}))


def _chains(product_views: Mapping[SSAValue, tuple[SSAValue, View]]) -> set[Operation]:
    """The view ops between products and results."""
    chains: set[Operation] = set()
    for value, (product, _) in product_views.items():
        while value is not product:
            assert isinstance(value, OpResult)
            chains.add(value.op)
            value = value.op.operands[0]
    return chains


def _seen_through(value: SSAValue, is_seen: Callable[[Operation], bool]) -> tuple[SSAValue, list[Operation]]:
    """What a value is a view of by such ops that nothing else reads, and those ops, the first one first."""
    chain: list[Operation] = []
    while isinstance(value, OpResult) and is_seen(value.op) and value.has_one_use():
        chain.append(value.op)
        value = value.op.operands[0]
    return value, chain[::-1]


_MOST_DIMS = 5
"""Of a value with channels. What has more is interleaved, such as ``[N, C, H / 2, 2, W / 2, 2]``."""


def _moves(op: Operation) -> bool:
    """Whether an op is a transposition, or the reshape that joins what is interleaved."""
    if not isinstance(op, ReshapeOp):
        return isinstance(op, TransposeOp)
    before, after = (tensor_info(value.type).rank for value in (op.operand, op.result))
    return after <= _MOST_DIMS < before


def _is_yielded(value: SSAValue, besides: Collection[Operation]) -> bool:
    """Whether a body yields a value, or views of it, by other ops than those. What reads it in the body, or a view of
    it, has no say in where it lies."""
    readers = [use.operation for use in value.uses if use.operation not in besides]
    return any(
        _is_yielded(reader.results[0], ()) if is_view(reader) else isinstance(reader, YieldOp)
        for reader in readers
    )


_PROLOGUE, _PRODUCTS, _EPILOGUE = 1, 2, 3
"""Parts of a body with products; those of the results after the first follow."""


def _order_of_products(
    ops: Sequence[Operation], products: Products, views: Mapping[SSAValue, FoldedOperand]
) -> _Order:
    """The left operand or what its rows are made of, the right ones, and then part by part."""
    parts: dict[Operation, int] = {op: _PROLOGUE for op in products.prologue}
    parts |= {matmul: _PRODUCTS for matmul in products.matmuls}
    for number, epilogue in enumerate(products.epilogues):
        parts |= {op: _EPILOGUE + number for op in epilogue if op not in parts}
    left = _row_operand(products, views) if products.prologue else (products.matmuls[0], 0)
    first = [*([] if left is None else [left]), *((matmul, 1) for matmul in products.matmuls)]
    slots: dict[tuple[Operation, int], int] = {(matmul, 0): 1 for matmul in products.matmuls}
    slots |= {(matmul, 1): 2 + number for number, matmul in enumerate(products.matmuls)}
    if products.prologue or len(products.results) > 1:
        last = max(parts.values()) + 1
        ops = sorted(ops, key=lambda op: 0 if isinstance(op, ConstantOp) else parts.get(op, last))
    return _Order(ops, first, slots, parts=parts)


def _row_operand(products: Products, views: Mapping[SSAValue, FoldedOperand]) -> tuple[Operation, int] | None:
    """Where the row program first reads whole rows: x."""
    shape = tensor_info(products.left.type).shape
    for op in products.prologue:
        for index, value in enumerate(op.operands):
            view = views[value].view if value in views else None
            if view is not None and view.shape == shape and not _is_repeated(view):
                return op, index
    return None


def _is_repeated(view: View) -> bool:
    return any(size != 1 and not step for size, step in zip(view.shape, view.strides, strict=True))


def yielded(block: Block) -> Sequence[SSAValue]:
    """The values that a body yields."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    return last.operands
