"""The code of products with packed weights and what is before and after them: from a launch to the template's
arguments."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import one_row
from aicf.backends.common.packed_weights import unexpected_layout
from aicf.backends.common.record import RecordCodec, read_part
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided, threads_given
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.blocks.fused.problem import FusedProblem, read_fused
from aicf.backends.cpu.families.blocks.fused.schedule import fused_bytes, rows_bytes
from aicf.backends.cpu.families.blocks.fused.template import FusedProduct
from aicf.backends.cpu.families.blocks.pack.kernel import panels
from aicf.backends.cpu.families.blocks.problem import PanelLayout
from aicf.backends.cpu.families.blocks.schedule import BlocksSchedule
from aicf.backends.cpu.families.blocks.template import BlocksPointers
from aicf.backends.cpu.families.gemm.epilogue import make_epilogue
from aicf.backends.cpu.families.gemm.operands import RowProgram
from aicf.backends.cpu.families.gemm.row_program import make_rows
from aicf.backends.cpu.families.records import loop_spec, read_rounding
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The products of a launch, with what comes before and after them."""
    if launch.code is None:
        raise PlanError(f"instruction '{launch.name}': it has no epilogue: run generate-kernels again")
    operands, result = [strided(ref) for ref in launch.ins], strided(launch.outs[0])
    problem = read_fused(operands, result, launch.record, launch.code, launch.prologue)
    schedule = RecordCodec(BlocksSchedule).read(launch.record)
    _check_layouts(launch, problem, schedule)
    own_bytes = fused_bytes(problem, schedule)
    require_workspace(launch, call, schedule.threads * own_bytes)
    workspace = em.part_of(call.ws[0], call.tid, schedule.threads, own_bytes)
    prepared = em.address(workspace, rows_bytes(problem, schedule), "u8")
    read = [*(call.ins[index] for index in problem.extras), call.outs[0]]
    epilogue = make_epilogue(em, launch.code, problem.accesses, [read], read_rounding(launch.record))
    weights = tuple(call.ins[index] for index in problem.rights)
    tid, nthreads = threads_given(em, launch, call)
    rows = _rows(launch, call, problem)
    pointers = BlocksPointers(
        call.ins[0] if rows is None else workspace, weights[0], call.outs[0], prepared, tid, nthreads
    )
    FusedProduct(em, problem.product, schedule, weights, rows, epilogue(None)).emit(pointers)


def _check_layouts(launch: Launch, problem: FusedProblem, schedule: BlocksSchedule) -> None:
    """Refuses weights that do not lie as the record says."""
    for index in problem.rights:
        weight = launch.ins[index]
        if weight.layout != panels(PanelLayout(problem.product.scheme, schedule.lanes), weight.shape):
            raise unexpected_layout(launch, index)


def _rows(launch: Launch, call: Call, problem: FusedProblem) -> RowProgram | None:
    """The row program before the products, with the decisions of the record."""
    if problem.rows is None:
        return None
    row = one_row(problem.rows)
    spec = loop_spec(read_part(launch.record, "rows"), row.nest)
    return make_rows(row, spec, [call.ins[index] for index in problem.row_operands])
