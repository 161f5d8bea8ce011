"""The code of products: from a launch to the microkernel's arguments."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import LoopNest, one_row
from aicf.backends.common.packed_weights import unexpected_layout
from aicf.backends.common.record import read_integer, read_part, read_text
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.gemm.epilogue import make_epilogue
from aicf.backends.cpu.families.gemm.operands import GemmPointers, RowProgram
from aicf.backends.cpu.families.gemm.problem import GemmWorkload, read_gemm
from aicf.backends.cpu.families.gemm.row_program import make_rows
from aicf.backends.cpu.families.gemm.spec import GemmSpec
from aicf.backends.cpu.families.gemm.template import emit_gemm
from aicf.backends.cpu.families.records import gemm_spec, get_bool, loop_spec, read_rounding
from aicf.dialects.emit_types import LayoutAttr
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The products, with what comes before and after them."""
    work = read_products(launch)
    spec = gemm_spec(launch.record, work.problem, em.level.has_fma, any_units=True)
    _check_layouts(launch, spec, work.roles.rights)
    if spec.workspace_bytes:
        require_workspace(launch, call, spec.workspace_bytes)
    workspace = call.ws[0] if call.ws else None
    outs = [call.outs] if len(work.roles.extras) == 1 else [(out,) for out in call.outs]
    pointers = [
        (*(call.ins[index] for index in extras), *own)
        for extras, own in zip(work.roles.extras, outs, strict=True)
    ]
    epilogue = make_epilogue(em, launch.code, work.accesses[0], pointers, read_rounding(launch.record))
    a = call.ins[0] if work.rows is None else None
    rights = tuple(call.ins[index] for index in work.roles.rights)
    rows = None if work.rows is None else _row_program(launch, call, work.rows, work.roles.rows)
    emit_gemm(em, spec, GemmPointers(a, rights, workspace, call.tid, call.nthreads), epilogue, rows)


def read_products(launch: Launch) -> GemmWorkload:
    """The products of a GEMM instruction, checked against its record."""
    transposed = (get_bool(launch.record, "transpose_a"), get_bool(launch.record, "transpose_b"))
    operands, results = ([strided(ref) for ref in refs] for refs in (launch.ins, launch.outs))
    packed = launch.ins[1].layout is not None
    work = read_gemm(launch.kind, operands, results, transposed, launch.code, launch.prologue, packed)
    if work.batch_in_rows != read_integer(launch.record, "batch_in_rows"):
        raise PlanError(
            f"instruction '{launch.name}': its buffers let {work.batch_in_rows} batch dims become rows, its kernel "
            "record was made for another number: run select-kernels again"
        )
    return work


def _check_layouts(launch: Launch, spec: GemmSpec, rights: Sequence[int]) -> None:
    """Refuses right operands that do not lie as the record says."""
    for index in rights:
        layout = launch.ins[index].layout
        if (spec.b_source == "packed") != (layout is not None) or (
            layout is not None and _panels(layout, launch.ins[index].dtype) != _asked_for(spec)
        ):
            raise unexpected_layout(launch, index)


def _panels(layout: LayoutAttr, dtype: str) -> tuple[object, ...]:
    """Columns of a panel of a packed weight of type `dtype`, the type of its elements, how far apart the terms of pairs
    and of quads lie, 0 without those, and the shift of the left factor."""
    entries = layout.parameters_.data
    element = read_text(entries, "element") if "element" in entries else dtype
    others = (read_integer(entries, key) if key in entries else 0 for key in ("pairs", "quads", "shift"))
    return read_integer(entries, "nr"), element, *others


def _asked_for(spec: GemmSpec) -> tuple[object, ...]:
    """What `_panels` gives of the panels that a product reads."""
    problem = spec.problem
    return spec.nr, spec.b_element, int(problem.terms == 2), int(problem.quads), problem.shift


def _row_program(launch: Launch, call: Call, nest: LoopNest, operands: Sequence[int]) -> RowProgram:
    """The row program before the products, with the decisions of the record."""
    row = one_row(nest)
    spec = loop_spec(read_part(launch.record, "rows"), row.nest)
    return make_rows(row, spec, [call.ins[index] for index in operands])
