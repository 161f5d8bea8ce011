"""The values that a training step saves: which memory each is in, and which ops recompute it.

Fusing passes use it too, as they see a program before and after values are recomputed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.passes.bodies.views import is_view


def root_of(value: SSAValue) -> SSAValue:
    """The value in whose memory the elements of `value` lie, found through views and saves."""
    while isinstance(value, OpResult) and (is_view(value.op) or isinstance(value.op, logical.SaveOp)):
        value = value.op.operands[0]
    return value


def is_always_in_memory(root: SSAValue) -> bool:
    """Whether a value is in memory whatever is saved: arguments, constants, and what the function returns."""
    if isinstance(root, BlockArgument):
        return True
    assert isinstance(root, OpResult)
    return isinstance(root.op, logical.ConstantOp) or any(
        isinstance(use.operation, ReturnOp) for use in root.uses
    )


@dataclass(frozen=True)
class SavedMemory:
    """A value that is saved as it is, or through views: one piece of memory, kept or computed again as a whole.

    Args:
        root: What is in memory.
        saves: The saves of it and of views of it, in text order.
    """

    root: SSAValue
    saves: tuple[logical.SaveOp, ...]


def saves_in(block: Block) -> list[logical.SaveOp]:
    """All saves of a function, in text order."""
    return [op for op in block.ops if isinstance(op, logical.SaveOp)]


def saved_memory(saves: Sequence[logical.SaveOp]) -> list[SavedMemory]:
    """What the saves keep, in the order of the first save of each; given memory too."""
    by_root: dict[SSAValue, list[logical.SaveOp]] = {}
    for save in saves:
        by_root.setdefault(root_of(save.operand), []).append(save)
    return [SavedMemory(root, tuple(found)) for root, found in by_root.items()]


def computing(value: SSAValue, held: Collection[SSAValue]) -> list[Operation]:
    """The ops that compute `value` again from what is given and what is `held` in memory, each after what it reads.

    Views are among them where they are between, saves are not.
    """
    order: list[Operation] = []
    done: set[Operation] = set()
    stack = [(value, False)]
    while stack:
        current, ready = stack.pop()
        if isinstance(current, OpResult) and isinstance(current.op, logical.SaveOp):
            stack.append((current.op.operand, False))
        elif not isinstance(current, OpResult) or current.op in done or in_memory(current, held):
            continue
        elif ready:
            done.add(current.op)
            order.append(current.op)
        else:
            stack.append((current, True))
            stack.extend((operand, False) for operand in reversed(current.op.operands))
    return order


def in_memory(value: SSAValue, held: Collection[SSAValue]) -> bool:
    """Whether a value can be read where the backward part is."""
    root = root_of(value)
    return root in held or is_always_in_memory(root)
