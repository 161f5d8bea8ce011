"""The code that combines updates into rows: from a launch to the arguments of the template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_text
from aicf.backends.common.scatter import Scatter
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.loops.template import LoopPointers, emit_loops
from aicf.backends.cpu.families.records import read_loops
from aicf.backends.cpu.families.scatter.kernel import scatter_parts, summed_apart
from aicf.backends.cpu.families.scatter.template import emit_scatter


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The updates, combined into their rows."""
    operands = (strided(ref) for ref in (*launch.ins, *launch.outs))
    scatter = Scatter(*operands, mode=read_text(launch.record, "mode"))
    nests, sums = scatter_parts(scatter), summed_apart(scatter)
    if sums is not None:
        require_workspace(launch, call)
    copy, row, *back = read_loops(launch.record, nests)
    if sums is None:
        emit_scatter(em, scatter, (copy, row), call.ins, call.outs[0])
        return
    emit_scatter(em, sums, (copy, row), call.ins, call.ws[0])
    pointers = LoopPointers((call.ws[0], call.outs[0]), em.index(0), em.index(1))
    emit_loops(em, nests[-1], back[0], pointers)
