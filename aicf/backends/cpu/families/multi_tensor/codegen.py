"""The code of updates of many tensors: loops for each part."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.loops.codegen import emit_part
from aicf.backends.cpu.families.multi_tensor.kernel import part_nests
from aicf.backends.cpu.families.records import read_loops
from aicf.dialects.emit_updates import update_of
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The update of each part."""
    if launch.code is None:
        raise PlanError(f"instruction '{launch.name}' has no generated code: run generate-kernels")
    update = update_of(launch.code, len(launch.ins), len(launch.outs))
    dtypes = ([ref.dtype for ref in refs] for refs in (launch.ins, launch.outs))
    nests = part_nests(launch.code, update, *dtypes)
    specs = read_loops(launch.record, nests)
    numbers = [call.ins[number] for number in update.scalars]
    for part, nest, spec in zip(update.parts, nests, specs, strict=True):
        read = [call.ins[number] for number in part.operands]
        pointers = (*numbers, *read, *(call.outs[number] for number in part.results))
        emit_part(em, launch, call, nest, spec, pointers)
