"""The code of products of blocks with rounded numbers: from a launch to the template's arguments."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.packed_weights import unexpected_layout
from aicf.backends.common.record import RecordCodec, read_text
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided, threads_given
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.blocks.pack.kernel import panels
from aicf.backends.cpu.families.blocks.problem import BlocksProblem, PanelLayout
from aicf.backends.cpu.families.blocks.rounded.schedule import RoundedSchedule, thread_bytes
from aicf.backends.cpu.families.blocks.rounded.template import RoundedProduct
from aicf.backends.cpu.families.blocks.template import BlocksPointers


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The product of a launch."""
    x, weight = launch.ins
    problem = BlocksProblem(read_text(launch.record, "scheme"), strided(x), strided(launch.outs[0]))
    schedule = RecordCodec(RoundedSchedule).read(launch.record)
    if weight.layout != panels(PanelLayout(problem.scheme, schedule.lanes), weight.shape):
        raise unexpected_layout(launch, 1)
    own_bytes = thread_bytes(problem, schedule)
    require_workspace(launch, call, schedule.threads * own_bytes)
    workspace = em.part_of(call.ws[0], call.tid, schedule.threads, own_bytes)
    tid, nthreads = threads_given(em, launch, call)
    pointers = BlocksPointers(call.ins[0], call.ins[1], call.outs[0], workspace, tid, nthreads)
    RoundedProduct(em, problem, schedule.blocks, schedule.prefetch_ahead).emit(pointers)
