"""The code of products with blocks: from a launch to the template's arguments."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.packed_weights import unexpected_layout
from aicf.backends.common.record import RecordCodec, read_text
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided, threads_given
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.blocks.pack.kernel import panels
from aicf.backends.cpu.families.blocks.problem import PanelLayout, problem_of
from aicf.backends.cpu.families.blocks.schedule import BlocksSchedule, thread_bytes
from aicf.backends.cpu.families.blocks.template import BlocksPointers, BlocksProduct


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The product of a launch."""
    x, weight, *indices = launch.ins
    scheme = read_text(launch.record, "scheme")
    problem = problem_of(scheme, strided(x), strided(launch.outs[0]), weight.shape, *map(strided, indices))
    schedule = RecordCodec(BlocksSchedule).read(launch.record)
    if weight.layout != panels(PanelLayout(problem.scheme, schedule.lanes), weight.shape):
        raise unexpected_layout(launch, 1)
    own_bytes = thread_bytes(problem, schedule)
    require_workspace(launch, call, schedule.threads * own_bytes)
    workspace = em.part_of(call.ws[0], call.tid, schedule.threads, own_bytes)
    tid, nthreads = threads_given(em, launch, call)
    chosen = call.ins[2] if indices else None
    pointers = BlocksPointers(call.ins[0], call.ins[1], call.outs[0], workspace, tid, nthreads, chosen)
    BlocksProduct(em, problem, schedule).emit(pointers)
