"""When which bytes of the arena are taken: the slots of a final program, with the instructions that touch them."""

from __future__ import annotations

from aicf.dialects.emit import ProgramOp, SlotOp, buffer_of
from aicf.passes.analysis.accesses import accesses_by_root
from aicf.report.contents import ArenaBuffer
from aicf.runtime.tensors import describe


def arena_buffers(program: ProgramOp) -> tuple[ArenaBuffer, ...]:
    """The slots of a final program that instructions touch, in text order."""
    positions = {op: position for position, op in enumerate(program.instructions)}
    found: list[ArenaBuffer] = []
    for root, accesses in accesses_by_root(program).items():
        if isinstance(root, SlotOp) and accesses and root.offset is not None and root.size is not None:
            touches = tuple(sorted({positions[access.instruction] for access in accesses}))
            type_ = buffer_of(root.buffer)
            tensor = describe(type_.get_shape(), str(type_.element_type))
            found.append(ArenaBuffer(root.offset.value.data, root.size.value.data, touches, tensor))
    return tuple(found)
