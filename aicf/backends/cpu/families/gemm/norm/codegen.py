"""The code of a product and the row program after it: that of both, one after the other."""

from __future__ import annotations

from dataclasses import replace

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import read_integer, read_part
from aicf.backends.cpu.codegen.call import Call, require_workspace
from aicf.backends.cpu.codegen.ir_builder import I8, Emitter
from aicf.backends.cpu.families.gemm.codegen import emit as emit_product
from aicf.backends.cpu.families.gemm.problem import contiguous
from aicf.backends.cpu.families.loops.codegen import emit as emit_rows
from aicf.backends.cpu.target import ACCUMULATORS


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The product into workspace, then the loops of the row program, as if they were two instructions."""
    require_workspace(launch, call)
    shape = launch.outs[0].shape
    sums = BufferRef(0, 0, shape, contiguous(shape), ACCUMULATORS[launch.ins[0].dtype])
    rest = em.b.gep(call.ws[0], [em.index(read_integer(launch.record, "sums_bytes"))], source_etype=I8)
    product = replace(
        launch,
        kind="gemm",
        record=read_part(launch.record, "product"),
        ins=launch.ins[:2],
        outs=(sums,),
        code=None,
    )
    emit_product(em, product, replace(call, ins=call.ins[:2], outs=call.ws[:1], ws=(rest,)))
    rows = replace(launch, record=read_part(launch.record, "rows"), ins=(sums, *launch.ins[2:]))
    emit_rows(em, rows, replace(call, ins=(call.ws[0], *call.ins[2:])))
