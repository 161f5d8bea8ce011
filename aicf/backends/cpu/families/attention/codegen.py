"""The code of attention: from a launch to the arguments of the template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_integer, read_number
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.attention.schedule import GUARDS, read_attention
from aicf.backends.cpu.families.attention.template import AttentionPointers, emit_attention
from aicf.backends.cpu.families.records import attention_spec, get_bool


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """Attention."""
    past = read_integer(launch.record, "past") if get_bool(launch.record, "causal") else None
    guards = {name: get_bool(launch.record, name) for name in GUARDS}
    problem = read_attention([strided(ref) for ref in launch.ins], strided(launch.outs[0]), past, **guards)
    spec = attention_spec(launch.record, problem, em.level.has_fma)
    require_workspace(launch, call, spec.workspace_bytes)
    mask = call.ins[3] if problem.mask is not None else None
    q, k, v = call.ins[:3]
    pointers = AttentionPointers(q, k, v, mask, call.outs[0], call.ws[0], call.tid, call.nthreads)
    emit_attention(em, spec, read_number(launch.record, "scale"), pointers)
