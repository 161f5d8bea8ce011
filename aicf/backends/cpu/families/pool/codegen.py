"""The code of poolings: from a launch to the arguments of the template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.pool.schedule import read_pool, read_pool_spec
from aicf.backends.cpu.families.pool.template import emit_pool
from aicf.backends.cpu.families.pool.windows import PoolPointers


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """A pooling."""
    problem = read_pool(launch.record, strided(launch.ins[0]), strided(launch.outs[0]))
    pointers = PoolPointers(call.ins[0], call.outs[0], call.tid, call.nthreads)
    emit_pool(em, read_pool_spec(launch.record, problem), pointers)
