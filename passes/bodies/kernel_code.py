"""From a folded body to its generated kernel: iteration space, index maps, phases.

Every value of the body gets an index: which dim of the iteration space each of its dims follows. A body that has no
such reading (a transpose in its middle, two different reductions) has no generated kernel, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import TypeAlias

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from aicf.dialects import logical
from aicf.dialects.emit_kernels import (
    AccumulateOp,
    KernelOp,
    PhaseOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.traits import Expensive, PrimitiveReduction
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.column_sums import ColumnSum, column_sums, combine_of, sum_behind
from aicf.passes.bodies.convolutions import Convolution, convolution_of
from aicf.passes.bodies.indexed_reads import (
    border_of,
    index_operand_dims,
    is_border,
    operands_of,
    reads_elements,
    write_coordinate,
    write_read,
)
from aicf.passes.bodies.kinds import is_contraction_of_arguments
from aicf.passes.bodies.products import (
    Piece,
    Product,
    Products,
    epilogue_piece,
    has_kernel_order,
    normed_value,
    products_of,
    prologue_piece,
)
from aicf.passes.bodies.scalar_ops import scalar_constant, scalar_ops, splat_value
from aicf.passes.bodies.updates import BodyUpdate, body_update, update_code
from aicf.passes.bodies.view_folding import yielded

Index: TypeAlias = tuple[int | None, ...]
"""Per dim of a value: the dim of the full iteration space it follows, None for a dim of size 1."""


class NoCode(Exception):
    """The body has no generated kernel; the message says why."""


def derive_codes(block: Block, symbol: str, prologue: str) -> tuple[KernelOp, KernelOp | None]:
    """Both generated programs of a folded body: its kernel, and the row program before its products, if any.

    Raises:
        NoCode: one of them has none, with the reason.
    """
    products = _products(block)
    return _code(block, products, symbol), _prologue(products, prologue)


def derive_code(block: Block, symbol: str) -> KernelOp:
    """The generated kernel of a folded body: the epilogue, if it holds matmuls, the same for all of several products.

    Raises:
        NoCode: there is none, with the reason.
    """
    return _code(block, _products(block), symbol)


def derive_prologue(block: Block, symbol: str) -> KernelOp | None:
    """The row program that makes the left operand of a folded body's products, None if that is an operand.

    Raises:
        NoCode: there is none, with the reason.
    """
    return _prologue(_products(block), symbol)


def _code(block: Block, products: Products | None, symbol: str) -> KernelOp:
    if products is None:
        if (convolution := _convolution(block)) is not None:
            return _Writer(_Indexing(convolution.piece), symbol).write()
        if (update := body_update(block)) is not None:
            return _update_code(update, block, symbol)
        ops = tuple(op for op in block.ops if not isinstance(op, YieldOp))
        piece = Piece(tuple(block.args), ops, tuple(yielded(block)))
        return _Writer(_Indexing(piece, may_accumulate=True), symbol).write()
    wanted = normed_value(products) if products.reduces else None
    codes = [
        _Writer(_Indexing(epilogue_piece(products, number)), symbol, wanted).write()
        for number in range(len(products.epilogues))
    ]
    if not all(code.is_structurally_equivalent(codes[0]) for code in codes[1:]):
        raise NoCode("the ops after the products differ")
    return codes[0]


def _update_code(update: BodyUpdate, block: Block, symbol: str) -> KernelOp:
    if (code := update_code(update, block, symbol)) is None:
        raise NoCode("an op of an update is not computed element by element")
    return code


def _prologue(products: Products | None, symbol: str) -> KernelOp | None:
    if products is None or not products.prologue:
        return None
    return _Writer(_Indexing(prologue_piece(products)), symbol).write()


def _convolution(block: Block) -> Convolution | None:
    """The convolution of a body, None if it has none."""
    if not any(isinstance(op, logical.ConvOp) for op in block.ops):
        return None
    _refuse_indexed_ops(block)
    if (found := convolution_of(block)) is None:
        raise NoCode("more than one convolution with elementwise ops after it")
    return found


def _products(block: Block) -> Products | None:
    """The products of a body, None if it has none."""
    matmuls = [op for op in block.ops if isinstance(op, Product)]
    if not matmuls:
        return None
    _refuse_indexed_ops(block)
    if (products := products_of(block, block.args)) is not None and has_kernel_order(products, block):
        return products
    if len(matmuls) > 1:
        raise NoCode("two products in one instruction")
    if isinstance(matmuls[0], logical.MatmulOp) and not is_contraction_of_arguments(matmuls[0]):
        raise NoCode("a product of a value that the same instruction computes")
    if isinstance(matmuls[0], logical.MatmulBlocksOp) and (reason := _why_packed(matmuls[0])) is not None:
        raise NoCode(reason)
    if any(op.has_trait(PrimitiveReduction) for op in block.ops):
        raise NoCode("a reduction after a product")
    raise NoCode("an op after a product has another shape than its result")


def _why_packed(product: logical.MatmulBlocksOp) -> str | None:
    """Why no code surrounds a product of packed weights; None if the reason is what follows it."""
    if product.indices is not None:
        return "an op next to a product of packed weights that indices choose"
    if not isinstance(product.lhs, BlockArgument):
        return "a product of packed weights with a value that the same instruction computes"
    return None


def _refuse_indexed_ops(block: Block) -> None:
    """Kernels of products take batch dims as rows where they can: their points have no coordinates along one dim."""
    if any(isinstance(op, logical.IotaOp) for op in block.ops):
        raise NoCode("a coordinate (iota) next to a product")
    if any(op.has_trait(logical.IndexedRead) for op in block.ops):
        raise NoCode("a read at computed indices (gather) next to a product")


def _shape(value: SSAValue) -> tuple[int, ...]:
    return tensor_info(value.type).shape


class _Indexing:
    """The full iteration space of a piece of a body and the index of each value.

    Args:
        may_accumulate: Whether its kernel may combine over its parallel space (`emit.accumulate`).
    """

    def __init__(self, piece: Piece, *, may_accumulate: bool = False):
        self.arguments = piece.arguments
        self.ops = tuple(op for op in piece.ops if not is_border(op))
        self.outputs = piece.outputs
        reductions = [op for op in self.ops if op.has_trait(PrimitiveReduction)]
        sums = column_sums(reductions, self.outputs) if may_accumulate else []
        self.sums: dict[Operation, ColumnSum] = {each.op: each for each in sums}
        """The reductions over the parallel space."""
        between = {op for each in self.sums.values() for op in each.between}
        self.ops = tuple(op for op in self.ops if op not in between)
        self.reductions = [op for op in reductions if op not in self.sums]
        self.scans = [op for op in self.ops if isinstance(op, logical.CumsumOp) and not _is_one_step(op)]
        self.scanned = self._scanned_values()
        self.memory = self._memory()
        self.shape = self._full_shape()
        self.axes = self._reduced_axes()
        self.index: dict[SSAValue, Index] = {}
        self._forward()
        self._backward()

    def _memory(self) -> frozenset[SSAValue]:
        """The arguments that ops read at computed indices."""
        found = frozenset(operands_of(op)[0] for op in self.ops if reads_elements(op))
        if not found <= set(self.arguments):
            raise NoCode("a read at computed indices (gather) of a value that the same instruction computes")
        return found

    def _full_shape(self) -> tuple[int, ...]:
        if self.reductions:
            return _shape(self.reductions[0].operands[0])
        if self.scans:
            return _shape(self.scans[0].operand)
        return max((_shape(output) for output in self.outputs), key=prod)

    def _reduced_axes(self) -> tuple[int, ...]:
        axes = {tuple(op.axes.get_values()) for op in self.reductions if isinstance(op, logical.ReduceOp)}
        axes |= {(op.axis.value.data,) for op in self.scans}
        if len(axes) > 1:
            raise NoCode("reductions over different axes")
        if any(_shape(op.operands[0]) != self.shape for op in self.reductions):
            raise NoCode("reductions of different shapes")
        return next(iter(axes), ())

    def _scanned_values(self) -> set[SSAValue]:
        """The running sums, and what differs along the axis because it is computed from them."""
        found: set[SSAValue] = set()
        for op in self.ops:
            if op in self.scans:
                if op.operands[0] in found:
                    raise NoCode("a cumulative sum of a cumulative sum")
                found.update(op.results)
            elif op not in self.reductions and any(operand in found for operand in operands_of(op)):
                found.update(op.results)
        if len({op.reverse is None for op in self.scans}) > 1:
            raise NoCode("cumulative sums from both ends")
        return found

    @property
    def identity(self) -> Index:
        """The index of a value with the full shape."""
        return tuple(None if size == 1 else dim for dim, size in enumerate(self.shape))

    def _forward(self) -> None:
        """Indices that follow from the shape, a reduction, or an operand."""
        for value in (*self.arguments, *(op.results[0] for op in self.ops)):
            if value in self.memory:
                continue
            if _shape(value) == self.shape and not self._is_reduction(value):
                self.index[value] = self.identity
            elif isinstance(value, OpResult):
                self._forward_result(value)

    def _is_reduction(self, value: SSAValue) -> bool:
        return isinstance(value, OpResult) and (value.op in self.reductions or value.op in self.sums)

    def sum_behind(self, output: SSAValue) -> ColumnSum | None:
        """The reduction over the parallel space that an output is, None if it is none."""
        return sum_behind(output, list(self.sums.values()))

    def operands_of(self, op: Operation) -> Sequence[SSAValue]:
        """What an op reads of the values that have an index: a sum of columns what its rows were before they were
        merged."""
        return (self.sums[op].operand,) if op in self.sums else operands_of(op)

    def _forward_result(self, value: OpResult) -> None:
        op = value.op
        if op in self.sums and self.sums[op].between:
            own = tuple(i for dim, i in enumerate(self.identity) if dim not in self.sums[op].axes)
            self.index[value] = (None,) * (len(_shape(value)) - len(own)) + own
        elif self._is_reduction(value):
            axes = self.sums[op].axes if op in self.sums else self.axes
            keep = len(_shape(value)) == len(self.shape)
            dims = [None if dim in axes else i for dim, i in enumerate(self.identity)]
            self.index[value] = tuple(i for dim, i in enumerate(dims) if keep or dim not in axes)
        elif isinstance(op, logical.ReshapeOp) and (source := self.index.get(op.operands[0])) is not None:
            self.index[value] = _without_units(source, op.operands[0], value)
        elif op.has_trait(logical.Elementwise):
            known = [self.index[v] for v in op.operands if v in self.index and not _is_constant(v)]
            if known:
                self.index[value] = known[0]

    def _backward(self) -> None:
        """Fills operands from results, and checks that every use of a value agrees on its index."""
        for output in self.outputs:
            if (index := self.index.get(output)) is None:
                raise NoCode("a result that neither has the shape of the loops nor is reduced from it")
            if self.sum_behind(output) is None and not self._is_written_once(index):
                raise NoCode("a result with one element for several iterations of the loops")
        for op in reversed(self.ops):
            self._backward_op(op)

    def _is_written_once(self, index: Index) -> bool:
        """Whether an output follows all dims of the iteration space, or all that are not reduced: no two points of
        those write one element of it."""
        dims = {dim for dim in self.identity if dim is not None}
        return set(index) - {None} in (dims, dims.difference(self.axes))

    def _backward_op(self, op: Operation) -> None:
        result = op.results[0]
        if isinstance(op, logical.ConstantOp):
            return
        if (index := self.index.get(result)) is None:
            raise NoCode(f"{op.name} computes a value of another shape than the loops")
        if reads_elements(op):
            self._backward_read(border_of(op) or op, index)
            return
        for operand in self.operands_of(op):
            self._agree(operand, self._operand_index(op, operand, index), op)

    def _backward_read(self, op: Operation, index: Index) -> None:
        for number, operand in enumerate(op.operands):
            if (dims := index_operand_dims(op, number)) is not None:
                self._agree(operand, tuple(index[dim] for dim in dims), op)

    def _operand_index(self, op: Operation, operand: SSAValue, index: Index) -> Index:
        if op in self.reductions or op in self.sums:
            return self.identity
        if isinstance(op, logical.BroadcastOp):
            sizes = _shape(operand)
            targets = op.dimensions.get_values()
            return tuple(
                None if size == 1 else index[target] for size, target in zip(sizes, targets, strict=True)
            )
        if isinstance(op, logical.ReshapeOp):
            return _without_units(index, op.results[0], operand)
        if op.has_trait(logical.Elementwise) or op.has_trait(logical.Scan):
            return index
        raise NoCode(f"{op.name} moves elements between ops of one instruction")

    def _agree(self, value: SSAValue, index: Index, op: Operation) -> None:
        if _is_constant(value):
            return
        if value in self.memory:
            raise NoCode(f"{op.name} reads by element what is also read at computed indices (gather)")
        if self.index.setdefault(value, index) != index:
            raise NoCode(f"{op.name} reads a value at other indices than another op computes or reads it")


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, logical.ConstantOp)


def _without_units(index: Index, source: SSAValue, target: SSAValue) -> Index:
    """The index after a reshape that only adds or drops dims of size 1."""
    kept = [(size, i) for size, i in zip(_shape(source), index, strict=True) if size != 1]
    result: list[int | None] = []
    for size in _shape(target):
        if size == 1:
            result.append(None)
        elif kept and kept[0][0] == size:
            result.append(kept.pop(0)[1])
        else:
            raise NoCode("a reshape between ops of one instruction changes more than dimensions of size 1")
    return tuple(result)


class _Writer:
    """Writes the phases: a value is computed in the phase that needs it, kept for later ones where that is cheaper.

    `wanted` is kept in any case.
    """

    def __init__(self, indexing: _Indexing, symbol: str, wanted: SSAValue | None = None):
        self.indexing = indexing
        self.symbol = symbol
        self.wanted = wanted
        self.axes = indexing.axes
        self.levels: dict[SSAValue, int] = {}
        self.kept: dict[SSAValue, SSAValue] = {}
        self.stored: dict[int, list[int]] = {}
        """The outputs that each phase writes."""
        self.arguments: dict[SSAValue, BlockArgument] = {}
        self.numbered: dict[Hashable, SSAValue] = {}
        """What a phase has computed, by what computes it: merged groups may have the same op twice."""

    def write(self) -> KernelOp:
        sources = self.indexing.arguments
        block = Block(arg_types=[self._argument_type(source) for source in sources])
        self.arguments = dict(zip(sources, block.args, strict=True))
        for source, argument in self.arguments.items():
            argument.name_hint = source.name_hint
        self._assign_levels()
        needs = self._needs()
        last = max(needs)
        for level in range(last + 1):
            block.add_op(self._phase(level, needs))
        indexing = self.indexing
        order = self._dim_order()
        parallel = [indexing.shape[dim] for dim in order if dim not in self.axes]
        reduce = [indexing.shape[dim] for dim in order if dim in self.axes]
        in_maps = [self._map(indexing.index.get(source, ())) for source in sources]
        out_maps = [self._map(indexing.index[output]) for output in indexing.outputs]
        return KernelOp(self.symbol, parallel, reduce, in_maps, out_maps, Region(block))

    def _argument_type(self, source: SSAValue) -> Attribute:
        """An element; all of it, if it is read at computed indices."""
        element = element_of(source.type).type
        return MemRefType(element, _shape(source)) if source in self.indexing.memory else element

    def _dim_order(self) -> list[int]:
        dims = range(len(self.indexing.shape))
        return [d for d in dims if d not in self.axes] + [d for d in dims if d in self.axes]

    def _map(self, index: Index) -> AffineMap:
        position = {dim: loop for loop, dim in enumerate(self._dim_order())}
        results = [
            AffineExpr.constant(0) if dim is None else AffineExpr.dimension(position[dim]) for dim in index
        ]
        return AffineMap(len(self.indexing.shape), 0, tuple(results))

    def _varies(self, value: SSAValue) -> bool:
        """Whether the value differs over the reduce dims."""
        return any(dim in self.axes for dim in self.indexing.index.get(value, ()))

    def _assign_levels(self) -> None:
        """The first phase in which each value can be known."""
        for op in self.indexing.ops:
            operands = [self.levels.get(operand, 0) for operand in self.indexing.operands_of(op)]
            after = 1 if op in self.indexing.reductions else 0
            self.levels[op.results[0]] = max(operands, default=0) + after

    def _needs(self) -> dict[int, list[SSAValue]]:
        """Per phase the values it must deliver: operands of its reductions, and the outputs it stores."""
        needs: dict[int, list[SSAValue]] = {}
        for op in self.indexing.reductions:
            needs.setdefault(self.levels[op.results[0]] - 1, []).append(op.results[0])
        last = max(self.levels.get(output, 0) for output in self.indexing.outputs)
        needs = {level: needs.get(level, []) for level in range(last + 1)}
        self._place_stores(needs)
        for level, numbers in self.stored.items():
            needs[level].extend(self._made(self.indexing.outputs[number]) for number in numbers)
        return needs

    def _made(self, output: SSAValue) -> SSAValue:
        """What a phase makes for an output: the sum of columns that it is, or itself."""
        found = self.indexing.sum_behind(output)
        return output if found is None else found.result

    def _place_stores(self, needs: dict[int, list[SSAValue]]) -> None:
        """Notes which phase stores each output: the last one that computes or reads it, so that none does so only to
        store it. What does not vary costs nothing in the last, nor does what is computed in registers in any case."""
        outputs, last = self.indexing.outputs, max(needs)
        roots = {level: list(values) for level, values in needs.items()}
        level_of: dict[int, int] = {}
        order: dict[SSAValue, int] = {op.results[0]: n for n, op in enumerate(self.indexing.ops)}
        for number in sorted(range(len(outputs)), key=lambda n: order.get(outputs[n], -1), reverse=True):
            output, level = outputs[number], last
            if self._varies(output) and self.wanted is None:
                readers = (at for at, values in roots.items() if any(self._reads(v, output) for v in values))
                level = max(readers, default=self.levels.get(output, 0))
            level_of[number] = level
            roots[level].append(self._made(output))
        self.stored = {level: [n for n in range(len(outputs)) if level_of[n] == level] for level in needs}

    def _phase(self, level: int, needs: dict[int, list[SSAValue]]) -> PhaseOp:
        body = Block()
        self.numbered = {}
        local: dict[SSAValue, SSAValue] = {}
        yields: list[tuple[SSAValue, SSAValue]] = []
        combined: dict[tuple[str, SSAValue], SSAValue] = {}
        twins: list[tuple[SSAValue, SSAValue]] = []
        for value in needs[level]:
            op = value.op if isinstance(value, OpResult) else None
            if op in self.indexing.reductions and self.levels[value] == level + 1:
                operand = self._compute(_op_of(value).operands[0], body, local)
                if (twin := combined.setdefault((combine_of(_op_of(value)), operand), value)) is not value:
                    twins.append((value, twin))
                    continue
                reduce = ReduceOp(combine_of(_op_of(value)), operand)
                body.add_op(reduce)
                yields.append((value, reduce.result))
        for number in self.stored[level]:
            output = self.indexing.outputs[number]
            if (found := self.indexing.sum_behind(output)) is not None:
                operand = self._compute(found.operand, body, local)
                body.add_op(AccumulateOp(found.combine, operand, number))
            else:
                body.add_op(StoreOp(self._compute(output, body, local), number))
        arguments = set[SSAValue](self.arguments.values())
        by_scalar = {scalar: value for value, scalar in yields}
        for value, scalar in local.items():
            if scalar in arguments or not self._keep(value, level, needs):
                continue
            if (twin := by_scalar.setdefault(scalar, value)) is value:
                yields.append((value, scalar))
            else:
                twins.append((value, twin))
        body.add_op(YieldOp([scalar for _, scalar in yields]))
        phase = PhaseOp(Region(body), [scalar.type for _, scalar in yields])
        for (value, _), result in zip(yields, phase.results, strict=True):
            result.name_hint = value.name_hint
            self.kept[value] = result
        self.kept |= {value: self.kept[twin] for value, twin in twins}
        return phase

    def _keep(self, value: SSAValue, level: int, needs: dict[int, list[SSAValue]]) -> bool:
        """Whether a later phase should read the value instead of computing it again."""
        if value in self.kept or not isinstance(value, OpResult) or isinstance(value.op, logical.ConstantOp):
            return False
        if value in self.indexing.scanned:
            return False
        worth = not self._varies(value) or value.op.has_trait(Expensive) or value is self.wanted
        return worth and any(
            self._reads(root, value) for later in range(level + 1, max(needs) + 1) for root in needs[later]
        )

    def _reads(self, root: SSAValue, value: SSAValue) -> bool:
        """Whether computing `root` needs `value`, not counting what is kept already."""
        if root is value:
            return True
        if not isinstance(root, OpResult) or self._is_available(root):
            return False
        stack = [*self.indexing.operands_of(root.op)]
        seen: set[SSAValue] = set()
        while stack:
            current = stack.pop()
            if current is value:
                return True
            if current in seen or self._is_available(current) or not isinstance(current, OpResult):
                continue
            seen.add(current)
            if not current.op.has_trait(PrimitiveReduction):
                stack.extend(operands_of(current.op))
        return False

    def _is_available(self, value: SSAValue) -> bool:
        return value in self.kept or value in self.arguments

    def _compute(self, value: SSAValue, body: Block, local: dict[SSAValue, SSAValue]) -> SSAValue:
        """The scalar of `value` at the iteration point, adding what it needs to `body`."""
        order: list[SSAValue] = []
        stack: list[tuple[SSAValue, bool]] = [(value, False)]
        seen: set[SSAValue] = set()
        while stack:
            current, done = stack.pop()
            if done:
                order.append(current)
                continue
            if current in seen or self._known(current, local) is not None:
                continue
            seen.add(current)
            stack.append((current, True))
            stack.extend((operand, False) for operand in reversed(operands_of(_op_of(current))))
        for current in order:
            local[current] = self._scalar(current, body, local)
        known = self._known(value, local)
        assert known is not None
        return known

    def _known(self, value: SSAValue, local: dict[SSAValue, SSAValue]) -> SSAValue | None:
        for table in (self.arguments, self.kept, local):
            if value in table:
                return table[value]
        return None

    def _scalar(self, value: SSAValue, body: Block, local: dict[SSAValue, SSAValue]) -> SSAValue:
        op = _op_of(value)
        type_ = element_of(value.type).type
        operands = [self._known(operand, local) for operand in operands_of(op)]
        known = [operand for operand in operands if operand is not None]
        if isinstance(op, logical.BroadcastOp | logical.ReshapeOp):
            return known[0]
        if isinstance(op, logical.IotaOp) or reads_elements(op):
            return self._coordinate_op(op, known, body)
        if isinstance(op, logical.CumsumOp) and op not in self.indexing.scans and op.exclusive is None:
            return known[0]
        key = _number_of(op, known, type_)
        if key not in self.numbered:
            ops = _scalar_ops_of(op, known, type_)
            body.add_ops(ops)
            ops[-1].results[0].name_hint = value.name_hint
            self.numbered[key] = ops[-1].results[0]
        return self.numbered[key]

    def _coordinate_op(self, op: Operation, operands: Sequence[SSAValue], body: Block) -> SSAValue:
        """The scalar of an op that knows where it is."""
        position = {dim: loop for loop, dim in enumerate(self._dim_order())}
        dims = [None if dim is None else position[dim] for dim in self.indexing.index[op.results[0]]]
        if isinstance(op, logical.IotaOp):
            scalar = write_coordinate(body, element_of(op.result.type).type, dims[op.axis.value.data])
        else:
            scalar = write_read(body, op, operands, dims)
        scalar.name_hint = op.results[0].name_hint
        return scalar


def _number_of(op: Operation, operands: Sequence[SSAValue], type_: Attribute) -> Hashable:
    """What two ops have in common that compute the same scalar."""
    if isinstance(op, logical.ConstantOp):
        # A text tells 0.0 from -0.0, which are equal.
        return type(op), repr(splat_value(op)), type_
    return type(op), tuple(operands), frozenset(op.properties.items()), type_


def _scalar_ops_of(op: Operation, operands: Sequence[SSAValue], type_: Attribute) -> Sequence[Operation]:
    """The scalar ops of one op, the last one giving its value."""
    match op:
        case logical.ConstantOp():
            return _constant_ops(op, type_)
        case logical.CumsumOp() if _is_one_step(op):
            return scalar_constant(0, type_)
        case logical.CumsumOp():
            flags = {"exclusive": op.exclusive is not None, "reverse": op.reverse is not None}
            return [ScanOp("sum", operands[0], **flags)]
        case _:
            ops = scalar_ops(op, operands, type_)
    if ops is None:
        raise NoCode(f"{op.name} is not computed element by element")
    return ops


def _is_one_step(op: logical.CumsumOp) -> bool:
    """Whether there is one element along the axis: the running sum is that, or 0 without it."""
    return _shape(op.operand)[op.axis.value.data] == 1


def _constant_ops(op: logical.ConstantOp, type_: Attribute) -> Sequence[Operation]:
    number = splat_value(op)
    if number is None:
        raise NoCode("a constant whose elements differ")
    return scalar_constant(number, type_)


def _op_of(value: SSAValue) -> Operation:
    if not isinstance(value, OpResult):
        raise NoCode("an operand that the kernel does not read")
    return value.op
