"""Another order for the instructions of a program: what each touches of its buffers, and the move."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult

from aicf.dialects.emit import BindOp, BodyOp, ProgramOp, ResolvedOp, symbols
from aicf.dialects.emit_kernels import KernelOp
from aicf.passes.analysis.accesses import Access, region_of
from aicf.passes.bodies.workload import symbol_name
from aicf.passes.emit.reuse import Step


def footprint(accesses: Sequence[Access]) -> Step:
    """The buffers that an instruction touches, as a whole where it touches parts."""
    reads: dict[Hashable, int] = {}
    writes: dict[Hashable, int] = {}
    for access in accesses:
        root = access.region.root
        touched = reads if access.reads and not access.writes else writes
        touched[root] = region_of(root.results[0]).size
    return Step(reads, writes)


def move(module: ModuleOp, program: ProgramOp, order: Sequence[ResolvedOp]) -> None:
    """Puts the instructions of `program` into `order`, slots and views before the first one that needs them.

    Bodies and generated kernels follow: the text is that of a module whose ops were written in this order.
    """
    _move_instructions(program, order)
    table = symbols(module)
    rank: dict[Operation, int] = {}
    for position, instruction in enumerate(order):
        for symbol in (instruction.body, instruction.code, instruction.prologue):
            if symbol is not None:
                rank.setdefault(table[symbol_name(symbol)], position)
    for kind in (BodyOp, KernelOp):
        _sort(module, {op: position for op, position in rank.items() if isinstance(op, kind)})


def _sort(module: ModuleOp, rank: Mapping[Operation, int]) -> None:
    """Sorts the ops of `rank` by it, in the places that they have together."""
    block = module.body.block
    ops = list(block.ops)
    by_rank = iter(sorted((op for op in ops if op in rank), key=lambda op: rank[op]))
    for op in [next(by_rank) if op in rank else op for op in ops]:
        op.detach()
        block.add_op(op)


def _move_instructions(program: ProgramOp, order: Sequence[ResolvedOp]) -> None:
    block = program.body.block
    moved: set[Operation] = {op for op in block.ops if isinstance(op, BindOp)}
    for instruction in order:
        for op in _needed(instruction, moved):
            op.detach()
            block.add_op(op)
            moved.add(op)


def _needed(op: Operation, moved: set[Operation]) -> list[Operation]:
    """`op`, after everything that it is computed from and that is not `moved`."""
    found: list[Operation] = []
    for operand in op.operands:
        if isinstance(operand, OpResult) and operand.op not in moved and operand.op not in found:
            found += [source for source in _needed(operand.op, moved) if source not in found]
    return [*found, op]
