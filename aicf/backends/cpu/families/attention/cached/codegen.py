"""The code of attention over a cache: from a launch to the arguments of the template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_number
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.attention.cached.records import cached_spec
from aicf.backends.cpu.families.attention.cached.schedule import read_cached
from aicf.backends.cpu.families.attention.cached.template import CachedPointers, emit_cached


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """Attention over a cache."""
    problem = read_cached([strided(ref) for ref in launch.ins], strided(launch.outs[0]), launch.record)
    spec = cached_spec(launch.record, problem, em.level.has_fma)
    require_workspace(launch, call, spec.workspace_bytes)
    q, k, v = call.ins[:3]
    position = None if problem.position is None else call.ins[3]
    pointers = CachedPointers(q, k, v, position, call.outs[0], call.ws[0], call.tid, call.nthreads)
    emit_cached(em, spec, read_number(launch.record, "scale"), pointers)
