"""The code of generated kernels: from a launch to the loops of the template."""

from __future__ import annotations

from functools import partial

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.cpu.codegen.call import Call, thread_count
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.loops.schedule import LoopSpec
from aicf.backends.cpu.families.loops.template import LoopPointers, emit_loops
from aicf.backends.cpu.families.records import loop_spec
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The loops of the generated kernel."""
    if launch.code is None:
        raise PlanError(f"instruction '{launch.name}' has no generated code: run generate-kernels")
    refs = (*launch.ins, *launch.outs)
    nest = nest_of(launch.code, [ref.strides for ref in refs], [ref.dtype for ref in refs])
    spec = loop_spec(launch.record, nest)
    emit_loops(em, nest, spec, LoopPointers((*call.ins, *call.outs), call.tid, call.nthreads))


def emit_part(
    em: Emitter,
    launch: Launch,
    call: Call,
    nest: LoopNest,
    spec: LoopSpec,
    pointers: tuple[Value, ...],
) -> None:
    """The loops of one part of an instruction; in one thread where others of its parts have several."""
    emit = partial(emit_loops, em, nest, spec, LoopPointers(pointers, call.tid, call.nthreads))
    if thread_count(launch) > 1 and spec.threads == 1:
        em.when(em.b.icmp_signed("==", call.tid, em.index(0)), emit)
    else:
        emit()
