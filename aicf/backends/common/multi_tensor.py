"""Updates of many tensors: the generated program of one part, and of the numbers for all. Imports no code generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import overwritable
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.dialects.emit_kernels import IndexOp, KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.emit_updates import Update, is_update, program_phases, scalar_phase, update_of


def update_of_work(work: Workload) -> Update:
    """The parts of a work whose code is an update."""
    assert work.code is not None
    return update_of(work.code, len(work.operands), len(work.results))


def update_reason(work: Workload, turns: bool = False) -> str | None:
    """Why a work is not the update of several tensors, whose elements are one row of memory each; None if it is.

    Args:
        turns: Whether the results of a part may lie channels-last, see `turn_of`.
    """
    if work.code is None or not is_update(work.code):
        return "it is not the update of several tensors"
    for number, part in enumerate(update_of_work(work).parts):
        results = [work.results[i] for i in part.results]
        if turns and turn_of(results) is not None:
            results = []
        if not all(map(is_row, [*(work.operands[i] for i in part.operands), *results])):
            return f"an operand of part {number} is no contiguous memory"
    return None


@dataclass(frozen=True)
class Turn:
    """How a part is brought from row-major to channels-last memory.

    Args:
        channels: Elements of the second dim, which are innermost in the results.
        window: Elements of all dims after it, which are innermost in the operands.
    """

    channels: int
    window: int


def turn_of(results: Sequence[OperandInfo | BufferRef]) -> Turn | None:
    """How a part is turned on the way to its results; None if not all of them lie contiguous with their second dim
    innermost, or are rows as well."""
    turns = {_turn(result.shape, result.strides) for result in results}
    return turns.pop() if len(turns) == 1 else None


def _turn(shape: Sequence[int], strides: Sequence[int]) -> Turn | None:
    if len(shape) < 3 or shape[1] == 1 or prod(shape[2:]) == 1:
        return None
    order = (0, *range(2, len(shape)), 1)
    if not is_contiguous([shape[dim] for dim in order], [strides[dim] for dim in order]):
        return None
    return Turn(shape[1], prod(shape[2:]))


def is_row(operand: OperandInfo) -> bool:
    """Whether the elements are contiguous and in order."""
    return is_contiguous(operand.shape, operand.strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements of these strides are contiguous, the last dim innermost."""
    step = 1
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def program_code(code: KernelOp, update: Update, program: int, elements: int, *, apart: bool) -> KernelOp:
    """The kernel of one program over so many elements: operands of rank 0 first, then those of a part.

    Args:
        apart: Whether the elements are the reduce space of a single point: then what is computed of numbers alone does
            not vary, and is known before the sweep. Else they are the parallel space.
    """
    arguments = [*range(len(update.scalars)), *update.arguments(program)]
    writer = _Writer(code, arguments)
    if (numbers := scalar_phase(code)) is not None:
        writer.compute(numbers)
    first = update.outputs(program).start
    writer.compute(program_phases(code)[program], first)
    count = len(update.scalars)
    row = (AffineExpr.dimension(0),)
    ins = [AffineMap(1, 0, () if index < count else row) for index in range(len(arguments))]
    outs = [AffineMap(1, 0, row) for _ in update.outputs(program)]
    parallel, reduce = (0, 1) if apart else (1, 0)
    return KernelOp("program", [elements] * parallel, [elements] * reduce, ins, outs, writer.finish())


def numbers_code(code: KernelOp, update: Update) -> KernelOp | None:
    """The kernel that computes the results of rank 0 from the operands of rank 0; None if there are none."""
    phase = scalar_phase(code)
    if phase is None or not update.scalar_results:
        return None
    writer = _Writer(code, range(len(update.scalars)))
    writer.compute(phase, 0)
    ins, outs = ([AffineMap(0, 0, ()) for _ in each] for each in (update.scalars, update.scalar_results))
    return KernelOp("numbers", [], [], ins, outs, writer.finish())


class _Writer:
    """Copies phases of an update's code into one phase of a kernel of its own."""

    def __init__(self, code: KernelOp, arguments: Iterable[int]):
        own = [code.body.block.args[number] for number in arguments]
        self.block = Block(arg_types=[argument.type for argument in own])
        self.values: dict[SSAValue, SSAValue] = dict(zip(own, self.block.args, strict=True))
        self.ops: list[Operation] = []

    def compute(self, phase: PhaseOp, first_output: int | None = None) -> None:
        """Adds the ops of a phase, and its stores if the first output is given, which they are counted from."""
        for op in phase.body.block.ops:
            if isinstance(op, StoreOp):
                if first_output is not None:
                    self.ops.append(StoreOp(self.values[op.value], op.output.value.data - first_output))
            elif isinstance(op, IndexOp):
                count = IndexOp(0, op.result.type)
                self.values[op.result] = count.result
                self.ops.append(count)
            elif not isinstance(op, YieldOp):
                self.ops.append(op.clone(self.values))
        for result, value in zip(phase.results, phase.terminator.operands, strict=True):
            self.values[result] = self.values[value]

    def finish(self) -> Region:
        """The body of the kernel."""
        stores = [op for op in self.ops if isinstance(op, StoreOp)]
        others = [op for op in self.ops if not isinstance(op, StoreOp)]
        self.block.add_op(PhaseOp(Region(Block([*others, *stores, YieldOp()]))))
        return Region(self.block)


def overwritten(code: KernelOp, update: Update) -> list[tuple[int, int]]:
    """The (result, operand) pairs of an update whose elements may share memory: those of one part, at one place, where
    no other part reads the operand."""
    readers = Counter(number for part in update.parts for number in part.operands)
    found: list[tuple[int, int]] = []
    pairs = [overwritable(program_code(code, update, k, 2, apart=False)) for k in range(update.programs)]
    for part in update.parts:
        for output, argument in pairs[part.program]:
            operand = (
                part.operands[argument - len(update.scalars)] if argument >= len(update.scalars) else None
            )
            if operand is not None and readers[operand] == 1:
                found.append((part.results[output], operand))
    return found


def same_type(pairs: Sequence[tuple[int, int]], work: Workload) -> list[tuple[int, int]]:
    """Those of (result, operand) pairs that have one element type."""
    return [(out, in_) for out, in_ in pairs if work.results[out].dtype == work.operands[in_].dtype]
