"""The code of non-maximum suppression."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided, threads_given
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.nms.schedule import suppression_spec
from aicf.backends.cpu.families.nms.template import Suppression, SuppressionPointers
from aicf.backends.cpu.families.records import get_bool


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The boxes that are kept of each class."""
    require_workspace(launch, call)
    boxes, scores = (strided(ref) for ref in launch.ins[:2])
    kept = strided(launch.outs[0])
    spec = suppression_spec(launch.record, scores.shape[2], kept.shape[2], scores.dtype)
    suppression = Suppression(boxes, scores, kept, get_bool(launch.record, "centred"), spec)
    overlap, *floor = call.ins[2:]
    pointers = SuppressionPointers(
        call.ins[0], call.ins[1], overlap, floor[0] if floor else None, call.outs[0], call.ws[0]
    )
    tid, nthreads = threads_given(em, launch, call)
    suppression.emit(em, pointers, tid, nthreads)
