"""The code of copies and concatenations: loops that move elements."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.copy import moves
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.codegen.call import Call, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.loops.codegen import emit_part
from aicf.backends.cpu.families.records import read_loops


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The elements, moved."""
    target = strided(launch.outs[0])
    found = moves(
        launch.body, [strided(ref) for ref in launch.ins], target, read_integer(launch.record, "axis")
    )
    assert found is not None, "verify-emit asks the kernel whether it moves elements"
    specs = read_loops(launch.record, [move.nest for move in found])
    for move, spec in zip(found, specs, strict=True):
        result = em.address(call.outs[0], move.offset, target.dtype)
        sources = () if move.operand is None else (call.ins[move.operand],)
        emit_part(em, launch, call, move.nest, spec, (*sources, result))
