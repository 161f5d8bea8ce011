"""Bodies that update many tensors: which of their ops go together, and the generated program that says so.

Chains of elementwise ops over tensors of any shapes, which share nothing but numbers of rank 0: learning rates,
corrections, a guard. What such a program looks like is in `dialects/emit_updates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from aicf.dialects import logical
from aicf.dialects.emit_kernels import KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.emit_updates import PARTS_ATTR, Part
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.indexed_reads import write_coordinate
from aicf.passes.bodies.scalar_ops import scalar_constant, scalar_ops, splat_value
from aicf.passes.bodies.view_folding import yielded

Signature: TypeAlias = tuple[object, ...]


@dataclass
class Chain:
    """The ops of a body that one part has for itself.

    Args:
        shape: Of all its values.
        ops: In text order, without constants and broadcasts of numbers.
        arguments: What it reads element by element, in the order of first use.
        results: Numbers of the yielded values that it computes.
        program: Chains of one number have the same arithmetic.
    """

    shape: tuple[int, ...]
    ops: list[Operation] = field(default_factory=list[Operation])
    arguments: list[BlockArgument] = field(default_factory=list[BlockArgument])
    results: list[int] = field(default_factory=list[int])
    program: int = 0

    @property
    def counts(self) -> bool:
        """Whether it asks for the numbers of its elements, as what notes one number a step at its place."""
        return any(isinstance(op, logical.IotaOp) for op in self.ops)


@dataclass(frozen=True)
class BodyUpdate:
    """A body that updates parts.

    Args:
        chains: One for each part, in text order.
        numbers: The ops that compute numbers of rank 0, in text order.
        number_results: Which yielded values are such numbers.
    """

    chains: tuple[Chain, ...]
    numbers: tuple[Operation, ...]
    number_results: tuple[int, ...]

    @property
    def programs(self) -> list[Chain]:
        """The first chain of each program."""
        first: dict[int, Chain] = {}
        for chain in self.chains:
            first.setdefault(chain.program, chain)
        return list(first.values())


def body_update(block: Block) -> BodyUpdate | None:
    """How a folded body updates several tensors, or one and a number; None if it does something else.

    A body whose chains all read tensors in common is one of another kind: their elements are read once, in one loop.
    """
    if len(yielded(block)) < 2:
        return None
    try:
        return _Reader(block).read()
    except _Other:
        return None


class _Other(Exception):
    """The body is no update."""


class _Reader:
    """Sorts the ops of a body into chains."""

    def __init__(self, block: Block):
        self.block = block
        self.chains: dict[SSAValue, Chain] = {}
        self.numbers: list[Operation] = []
        self.results = {value: number for number, value in enumerate(yielded(block))}

    def read(self) -> BodyUpdate | None:
        for op in self.block.ops:
            if not isinstance(op, YieldOp | logical.ConstantOp):
                self._sort(op)
        number_results: list[int] = []
        for number, value in enumerate(yielded(self.block)):
            if not isinstance(value, OpResult):
                raise _Other
            if value in self.chains:
                self.chains[value].results.append(number)
            elif value.op in self.numbers:
                number_results.append(number)
            else:
                raise _Other
        chains = self._in_order()
        if len(_together(chains)) + min(1, len(number_results)) < 2 or not all(c.results for c in chains):
            return None
        _number_programs(chains)
        return BodyUpdate(tuple(chains), tuple(self.numbers), tuple(number_results))

    def _in_order(self) -> list[Chain]:
        order = {op: number for number, op in enumerate(self.block.ops)}
        chains = {id(chain): chain for chain in self.chains.values()}
        for chain in chains.values():
            chain.ops.sort(key=order.__getitem__)
            chain.arguments = _arguments_of(chain.ops)
        return sorted(chains.values(), key=lambda chain: order[chain.ops[0]])

    def _sort(self, op: Operation) -> None:
        if is_spread(op) or _is_number_op(op):
            self.numbers += [] if is_spread(op) else [op]
            return
        shape = tensor_info(op.results[0].type).shape
        if not shape or not _is_of_elements(op):
            raise _Other
        chain = Chain(shape)
        for value in op.operands:
            self._join(chain, value)
        chain.ops.append(op)
        self.chains[op.results[0]] = chain

    def _join(self, chain: Chain, value: SSAValue) -> None:
        """Makes the chain of an operand, with all its values, the same as `chain`."""
        if isinstance(value, OpResult) and (is_spread(value.op) or isinstance(value.op, logical.ConstantOp)):
            return
        if tensor_info(value.type).shape != chain.shape:
            raise _Other
        other = self.chains.get(value)
        if other is not None and other is not chain:
            for op in other.ops:
                self.chains[op.results[0]] = chain
            chain.ops += other.ops


def _together(chains: Sequence[Chain]) -> list[set[BlockArgument]]:
    """The arguments of chains, those together that lead from one to another by what they read in common."""
    found: list[set[BlockArgument]] = []
    for chain in chains:
        own = set(chain.arguments)
        met = [each for each in found if not each.isdisjoint(own)]
        found = [*(each for each in found if each not in met), own.union(*met)]
    return found


def is_spread(op: Operation) -> bool:
    """Whether an op repeats a number of rank 0, be it once."""
    views = logical.BroadcastOp | logical.ReshapeOp
    return isinstance(op, views) and not tensor_info(op.operands[0].type).shape


def _is_of_elements(op: Operation) -> bool:
    """Whether an op computes each element of a part by itself.

    Parts are rows of memory: an element has its number there, and no coordinates along several dims.
    """
    if isinstance(op, logical.IotaOp):
        return len(tensor_info(op.result.type).shape) == 1
    return op.has_trait(logical.Elementwise)


def _is_number_op(op: Operation) -> bool:
    return op.has_trait(logical.Elementwise) and not any(
        tensor_info(value.type).shape for value in (*op.operands, *op.results)
    )


def _arguments_of(ops: Sequence[Operation]) -> list[BlockArgument]:
    read = (value for op in ops for value in op.operands)
    return list(dict.fromkeys(value for value in read if isinstance(value, BlockArgument)))


def _number_programs(chains: Sequence[Chain]) -> None:
    """Numbers the programs. A chain that counts its elements has one of its own: its dim counts those of no other."""
    known: dict[Signature, int] = {}
    for chain in chains:
        chain.program = known.setdefault(_signature(chain), len(known))


def _signature(chain: Chain) -> Signature:
    """What a chain computes, but for its shape."""
    names: dict[SSAValue, object] = {value: ("$", number) for number, value in enumerate(chain.arguments)}
    lines: list[object] = [tuple(element_of(value.type) for value in chain.arguments)]
    for number, op in enumerate(chain.ops):
        operands = tuple(_named(value, names) for value in op.operands)
        lines.append((op.name, operands, tuple(op.properties.items()), element_of(op.results[0].type)))
        names[op.results[0]] = ("%", number)
    body = chain.ops[0].parent
    assert body is not None
    lines.append(tuple(names[yielded(body)[number]] for number in chain.results))
    return (*lines, id(chain)) if chain.counts else tuple(lines)


def _named(value: SSAValue, names: Mapping[SSAValue, object]) -> object:
    """An operand in terms of its chain; a number of rank 0 is the same one for all."""
    if value in names:
        return names[value]
    assert isinstance(value, OpResult)
    if isinstance(value.op, logical.ConstantOp):
        return ("c", splat_value(value.op), element_of(value.type))
    number = value.op.operands[0]
    is_constant = isinstance(number.owner, logical.ConstantOp)
    return _named(number, names) if is_constant else number


# The generated program


def update_code(update: BodyUpdate, block: Block, symbol: str) -> KernelOp | None:
    """The generated program of a folded body that updates parts; None if an op of it has no scalar form."""
    writer = _Writer(update, block)
    return writer.write(symbol)


class _Writer:
    """Writes the numbers' phase, then that of each program on its first chain."""

    def __init__(self, update: BodyUpdate, body: Block):
        self.update = update
        self.body = body
        self.programs = update.programs
        self.scalars = [argument for argument in body.args if not tensor_info(argument.type).shape]
        self.sources = [*self.scalars, *(value for chain in self.programs for value in chain.arguments)]
        self.values: dict[SSAValue, SSAValue] = {}
        """Of the numbers."""

    def write(self, symbol: str) -> KernelOp | None:
        block = Block(arg_types=[element_of(source.type).type for source in self.sources])
        for source, argument in zip(self.sources, block.args, strict=True):
            argument.name_hint = source.name_hint
        given = iter(block.args)
        self.values = {number: next(given) for number in self.scalars}
        outs = [AffineMap(len(self.programs), 0, ()) for _ in self.update.number_results]
        try:
            if self.update.numbers:
                block.add_op(self._numbers())
            for chain in self.programs:
                # Two programs may read one tensor, each as an operand of its own.
                elements = {value: next(given) for value in chain.arguments}
                block.add_op(self._program(chain, len(outs), elements))
                outs += [self._map(chain)] * len(chain.results)
        except _NoScalarForm:
            return None
        sizes = [
            sum(prod(chain.shape) for chain in self.update.chains if chain.program == number)
            for number in range(len(self.programs))
        ]
        ins = [AffineMap(len(sizes), 0, ()) for _ in self.scalars]
        ins += [self._map(chain) for chain in self.programs for _ in chain.arguments]
        code = KernelOp(symbol, sizes, [], ins, outs, Region(block))
        code.attributes[PARTS_ATTR] = ArrayAttr([self._part(chain).to_attr() for chain in self.update.chains])
        return code

    def _map(self, chain: Chain) -> AffineMap:
        return AffineMap(len(self.programs), 0, (AffineExpr.dimension(chain.program),))

    def _part(self, chain: Chain) -> Part:
        operands = tuple(argument.index for argument in chain.arguments)
        return Part(chain.program, prod(chain.shape), operands, tuple(chain.results))

    def _numbers(self) -> PhaseOp:
        """Computes all numbers of rank 0, stores those that are results and gives those that chains read."""
        ops, local = Block(), dict(self.values)
        for op in self.update.numbers:
            self._add(op, ops, local)
        for output, number in enumerate(self.update.number_results):
            ops.add_op(StoreOp(local[yielded(self.body)[number]], output))
        read = {op.operands[0] for op in self.body.ops if is_spread(op)}
        given = [op.results[0] for op in self.update.numbers if op.results[0] in read]
        ops.add_op(YieldOp([local[value] for value in given]))
        phase = PhaseOp(Region(ops), [element_of(value.type).type for value in given])
        for value, result in zip(given, phase.results, strict=True):
            result.name_hint = value.name_hint
            self.values[value] = result
        return phase

    def _program(
        self, chain: Chain, first_output: int, elements: Mapping[BlockArgument, SSAValue]
    ) -> PhaseOp:
        ops, local = Block(), {**self.values, **elements}
        for op in chain.ops:
            if isinstance(op, logical.IotaOp):
                local[op.result] = write_coordinate(ops, element_of(op.result.type).type, chain.program)
            else:
                self._add(op, ops, local)
        for output, number in enumerate(chain.results, first_output):
            ops.add_op(StoreOp(local[yielded(self.body)[number]], output))
        ops.add_op(YieldOp([]))
        return PhaseOp(Region(ops))

    def _add(self, op: Operation, ops: Block, local: dict[SSAValue, SSAValue]) -> None:
        """Adds the scalar form of an op, with the constants it reads."""
        operands = [self._scalar(value, ops, local) for value in op.operands]
        made = scalar_ops(op, operands, element_of(op.results[0].type).type)
        if made is None:
            raise _NoScalarForm
        ops.add_ops(made)
        local[op.results[0]] = made[-1].results[0]
        made[-1].results[0].name_hint = op.results[0].name_hint

    def _scalar(self, value: SSAValue, ops: Block, local: dict[SSAValue, SSAValue]) -> SSAValue:
        if value in local:
            return local[value]
        assert isinstance(value, OpResult)
        if not isinstance(value.op, logical.ConstantOp):
            return self._scalar(value.op.operands[0], ops, local)
        number = splat_value(value.op)
        if number is None:
            raise _NoScalarForm
        made = scalar_constant(number, element_of(value.type).type)
        ops.add_ops(made)
        local[value] = made[-1].results[0]
        local[value].name_hint = value.name_hint
        return local[value]


class _NoScalarForm(Exception):
    """An op that generated programs do not have, or a constant that is another number for each element."""
