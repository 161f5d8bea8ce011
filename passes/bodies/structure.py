"""What a body, a generated program or a piece of work computes, as a value to look things up by.

Networks repeat their blocks. What follows from a body alone (its kind, which kernels run it and what they would cost,
whether a program is the code of it) is worked out once for all that are alike, by passes that keep a table of it while
they run. Two have the same structure if they differ only in ids, names of values and source locations. The keys of
tuning tables say the same as text that outlives the process: `kernels/workload_key.py`.
"""

from __future__ import annotations

from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from aicf.backends.common.workload import Workload
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.logical import ID_ATTR, SRC_ATTR

Structure: TypeAlias = tuple[object, ...]
"""To be compared and hashed; what is in it is nobody's business."""

_NAMES = frozenset({ID_ATTR, SRC_ATTR})
"""Attributes that say what an op is called and where it comes from, and nothing of what it computes."""


def structure_of_body(body: Block) -> Structure:
    """What a body computes."""
    return _structure(body, {}, _NAMES)


def structure_of_code(code: KernelOp | None) -> Structure:
    """A generated program without its symbol."""
    if code is None:
        return ()
    space = (code.parallel, code.reduce, code.ins, code.outs)
    return *space, *code.attributes.items(), _structure(code.body.block, {}, frozenset())


def structure_of_workload(work: Workload) -> Structure:
    """All that kernels are told of a piece of work but its id; its code is what the body has to have."""
    numerics = (work.rounding, work.batch_invariant, work.tf32)
    return (
        work.kind,
        tuple(work.attrs.items()),
        work.operands,
        work.results,
        structure_of_body(work.body),
        *numerics,
    )


def _structure(block: Block, numbers: dict[SSAValue, int], names: frozenset[str]) -> Structure:
    """The ops of a block, values by the order in which they are met; `names` are attributes to leave out."""
    for argument in block.args:
        numbers[argument] = len(numbers)
    lines: list[object] = [tuple(argument.type for argument in block.args)]
    for op in block.ops:
        lines.append(_line(op, numbers, names))
        for result in op.results:
            numbers[result] = len(numbers)
    return tuple(lines)


def _line(op: Operation, numbers: dict[SSAValue, int], names: frozenset[str]) -> Structure:
    return (
        op.name,
        tuple(numbers[operand] for operand in op.operands),
        tuple(op.properties.items()),
        tuple(entry for entry in op.attributes.items() if entry[0] not in names),
        tuple(result.type for result in op.results),
        *(_structure(block, numbers, names) for region in op.regions for block in region.blocks),
    )
