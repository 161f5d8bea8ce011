"""The code of attention over a cache: from a launch to the arguments of the template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_number
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.attention.cached.problem import FACTORS, INDEX, NEW_VALUE, read_cached
from aicf.backends.cpu.families.attention.cached.records import cached_spec
from aicf.backends.cpu.families.attention.cached.template import CachedPointers, RowPointers, emit_cached


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """Attention over a cache."""
    operands, results = ([strided(ref) for ref in refs] for refs in (launch.ins, launch.outs))
    problem = read_cached(operands, results, launch.record)
    spec = cached_spec(launch.record, problem, em.level.has_fma)
    require_workspace(launch, call, spec.workspace_bytes)
    q, old_keys, old_values = call.ins[:3]
    position = None if problem.position is None else call.ins[-1]
    k, v, row = old_keys, old_values, None
    if problem.writes is not None:
        k, v = call.outs[1:]
        index, key, value = call.ins[INDEX : NEW_VALUE + 1]
        row = RowPointers(index, key, value, old_keys, old_values)
    factors = call.ins[FACTORS] if problem.rotation is not None else ()
    pointers = CachedPointers(
        q, k, v, position, call.outs[0], call.ws[0], call.tid, call.nthreads, row, factors
    )
    emit_cached(em, spec, read_number(launch.record, "scale"), pointers)
