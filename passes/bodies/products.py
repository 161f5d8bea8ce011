"""Products of one left operand in a body, perhaps with packed weights, with what is computed before and after them.

A body with products is cut into pieces that have a scalar program each: the *prologue*, a row program whose result is
the left operand, and one *epilogue* for each result, pointwise on the accumulators. After a single product the
epilogue may be a row program too: a norm of the product's rows. It also gives the value that it normalizes if others
read that value. A pointwise epilogue may give an intermediate value as well.
Kernels know operands by their index, so this file also says in which order they come.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit_kernels import YieldOp
from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.matching import computed_from

Product: TypeAlias = logical.MatmulOp | logical.MatmulBlocksOp
"""What multiplies a left factor by a right one, which may be packed."""

AnyProduct: TypeAlias = Product | logical.RoundedMatmulBlocksOp
"""Those, and products that round their left factor, with which nothing is fused."""


@dataclass(frozen=True)
class Piece:
    """Ops of a body that one scalar program computes.

    Args:
        arguments: What it reads, in the order of the program's operands.
        ops: In text order, constants included.
        outputs: What it gives.
    """

    arguments: tuple[SSAValue, ...]
    ops: tuple[Operation, ...]
    outputs: tuple[SSAValue, ...]


@dataclass(frozen=True)
class Products:
    """A body that multiplies one left operand with one or several right ones.

    Args:
        matmuls: The products, in text order; all of one shape.
        prologue: The ops that make the left operand; empty where it is an operand of the body.
        epilogues: The ops after the products, for each result: the same program each time, on operands of its own.
            A single product has one epilogue, for all results.
        results: What the body gives. Either there is one, of all products together, or one of each product, or up to
            two of a single product.
    """

    matmuls: tuple[Product, ...]
    prologue: tuple[Operation, ...]
    epilogues: tuple[tuple[Operation, ...], ...]
    results: tuple[SSAValue, ...]

    @property
    def left(self) -> SSAValue:
        """The left operand of every product."""
        return self.matmuls[0].lhs

    @property
    def reduces(self) -> bool:
        """Whether the epilogue is a row program."""
        return _reduces(self.epilogues[0])

    @property
    def kind(self) -> str:
        """The kind of instruction that computes them."""
        if isinstance(self.matmuls[0], logical.MatmulBlocksOp):
            return PACKED_PRODUCTS
        if self.reduces:
            return "gemm_norm"
        if len(self.matmuls) > 1 and len(self.results) > 1:
            return "gemm_multi"
        if self.prologue:
            return "norm_gemm" if len(self.matmuls) == 1 else "norm_gated"
        if len(self.matmuls) == 2:
            return "gemm_gated"
        return "gemm_epilogue" if self.epilogues[0] else "gemm"

    def accumulators(self, epilogue: int) -> tuple[SSAValue, ...]:
        """The products that an epilogue starts from."""
        if len(self.epilogues) == 1:
            return tuple(matmul.result for matmul in self.matmuls)
        return (self.matmuls[epilogue].result,)

    def outputs(self, epilogue: int) -> tuple[SSAValue, ...]:
        """The results that an epilogue gives."""
        return self.results if len(self.epilogues) == 1 else (self.results[epilogue],)


def products_of(block: Block, given: Container[SSAValue]) -> Products | None:
    """The products of a body, None if it has none or they are not of the form that kernels know.

    Args:
        given: The body's arguments, and views of them; what makes those is no part of any piece.
    """
    order = [op for op in block.ops if op.results and op.results[0] not in given]
    matmuls = tuple(op for op in order if isinstance(op, Product))
    last = block.last_op
    if (
        not isinstance(last, YieldOp)
        or not matmuls
        or not all(are_alike(matmuls[0], matmul) for matmul in matmuls[1:])
    ):
        return None
    if any(matmul.rhs not in given for matmul in matmuls):
        return None
    prologue = computed_from([matmuls[0].lhs], given, order)
    if prologue and not is_row_program(prologue, matmuls[0]):
        return None
    results = tuple(last.operands)
    rest = [op for op in order if op not in prologue and op not in matmuls]
    roots = [results] if len(matmuls) == 1 or _reduces(rest) else [(result,) for result in results]
    epilogues = tuple(computed_from(root, given, rest) for root in roots)
    found = Products(matmuls, prologue, epilogues, results)
    return found if _is_complete(found, order) else None


def _reduces(ops: Sequence[Operation]) -> bool:
    return any(op.has_trait(logical.Reduction) for op in ops)


def are_alike(one: Product, other: Product) -> bool:
    """Whether two products read the same left operand the same way, with the same indices if they choose matrices, and
    have right ones and results of one type."""
    return (
        type(one) is type(other)
        and one.lhs is other.lhs
        and one.properties == other.properties
        and one.operands[2:] == other.operands[2:]
        and one.rhs.type == other.rhs.type
        and one.result.type == other.result.type
    )


def reads_columns(product: Product) -> bool:
    """Whether the left operand of a product is transposed."""
    return isinstance(product, logical.MatmulOp) and product.transpose_a is not None


def is_row_program(ops: Sequence[Operation], matmul: Product) -> bool:
    """Whether `ops`, which make the left operand of `matmul`, reduce its rows (their last dim) and nothing else."""
    shape = tensor_info(matmul.lhs.type).shape
    reductions = [op for op in ops if op.has_trait(logical.Reduction)]
    return (
        bool(reductions)
        and not reads_columns(matmul)
        and not any(isinstance(op, Product) for op in ops)
        and all(reduces_rows(op, shape) for op in reductions)
    )


def reduces_rows(op: Operation, shape: tuple[int, ...]) -> bool:
    """Whether a reduction is one over the last dim of values of `shape`."""
    if not isinstance(op, logical.ReduceOp):
        return False
    return tensor_info(op.operand.type).shape == shape and tuple(op.axes.get_values()) == (len(shape) - 1,)


def _is_complete(found: Products, order: Sequence[Operation]) -> bool:
    """Whether the pieces are all of the body, each result follows its products, and pieces share constants alone."""
    pieces = [found.prologue, *found.epilogues]
    computing = [{op for op in piece if not isinstance(op, logical.ConstantOp)} for piece in pieces]
    if sum(map(len, computing)) != len(set[Operation]().union(*computing)):
        return False
    if set[Operation]().union(*map(set, pieces), found.matmuls) != set(order):
        return False
    if found.reduces:
        return _is_norm(found) and _follows(found, 0)
    if len(found.matmuls) == 1 and len(found.results) == 2 and not found.prologue:
        return _follows(found, 0)
    single = len(found.results) == 1 and len(found.matmuls) <= 2
    if not single and (len(found.results) != len(found.matmuls) or found.prologue):
        return False
    programs = [_program(found, number) for number in range(len(found.results))]
    same = all(program == programs[0] for program in programs[1:])
    return same and all(_follows(found, number) for number in range(len(found.results)))


def _is_norm(found: Products) -> bool:
    """Whether a row program follows one product, reduces the product's rows and gives one or two results."""
    shape = tensor_info(found.matmuls[0].result.type).shape
    reductions = [op for op in found.epilogues[0] if op.has_trait(logical.Reduction)]
    single = len(found.matmuls) == 1 and not found.prologue and len(found.results) <= 2
    return single and all(reduces_rows(op, shape) for op in reductions)


def _program(found: Products, number: int) -> list[tuple[object, ...]]:
    """The epilogue of result `number` with its values named by when they are met, to compare epilogues by."""
    names: dict[SSAValue, int] = {value: index for index, value in enumerate(found.accumulators(number))}
    lines: list[tuple[object, ...]] = []
    for op in found.epilogues[number]:
        operands = tuple((names.setdefault(value, len(names)), value.type) for value in op.operands)
        lines.append((op.name, tuple(op.properties.items()), operands, op.results[0].type))
        names[op.results[0]] = len(names)
    lines.append((names.setdefault(found.results[number], len(names)),))
    return lines


def _follows(found: Products, number: int) -> bool:
    """Whether epilogue `number` is computed from all of its accumulators and no other product; its results have their
    shape."""
    outputs = found.outputs(number)
    read = {operand for op in found.epilogues[number] for operand in op.operands} | set(outputs)
    own = set(found.accumulators(number))
    others = {matmul.result for matmul in found.matmuls} - own
    shape = tensor_info(found.matmuls[0].result.type).shape
    same_shape = all(tensor_info(output.type).shape == shape for output in outputs)
    return own <= read and not others & read and same_shape and not (found.prologue and found.left in read)


def normed_value(found: Products) -> SSAValue | None:
    """The value that a row program after a product normalizes: the last value before its reductions through which all
    later ops read the product. None if that is the product itself, or there is no such value.
    """
    ops = found.epilogues[0]
    first = next(index for index, op in enumerate(ops) if op.has_trait(logical.Reduction))
    for op in reversed(ops[:first]):
        value = op.results[0]
        rest = computed_from(found.results, {value}, ops)
        read = {operand for member in rest for operand in member.operands} | set(found.results)
        front = {result for member in ops if member not in rest for result in member.results}
        if read & (front | set(found.accumulators(0))) == {value}:
            return value
    return None


def prologue_piece(found: Products) -> Piece:
    """The row program before the products of a folded body. It takes x, then the other operands, and gives the left
    operand of the products."""
    return Piece(_read_arguments(found.prologue), found.prologue, (found.left,))


def epilogue_piece(found: Products, number: int) -> Piece:
    """The program of epilogue `number` of a folded body: its accumulators, then the other operands."""
    ops = found.epilogues[number]
    return Piece((*found.accumulators(number), *_read_arguments(ops)), ops, found.outputs(number))


def _read_arguments(ops: Sequence[Operation]) -> tuple[BlockArgument, ...]:
    """The block arguments that `ops` read, in order."""
    read = {operand for op in ops for operand in op.operands if isinstance(operand, BlockArgument)}
    return tuple(sorted(read, key=lambda argument: argument.index))


def has_kernel_order(found: Products, block: Block) -> bool:
    """Whether the arguments of a folded body stand in the order that kernels of the kind read.

    The left operand or what it is made from, the right operands, the prologue's other operands, and then those of
    each epilogue in turn.
    """
    prologue = prologue_piece(found).arguments
    first = prologue[0] if prologue else found.left
    rest = [epilogue_piece(found, number) for number in range(len(found.epilogues))]
    wanted = [first, *(matmul.rhs for matmul in found.matmuls), *prologue[1:]]
    wanted += [
        argument
        for number, piece in enumerate(rest)
        for argument in piece.arguments[len(found.accumulators(number)) :]
    ]
    return wanted == list(block.args)
