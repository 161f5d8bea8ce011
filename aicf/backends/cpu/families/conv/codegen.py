"""The code of convolutions: from a launch to the arguments of the template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.conv.pack.kernel import quads_layout
from aicf.backends.cpu.families.conv.problem import pixel_accesses, read_conv, result_sizes, turned
from aicf.backends.cpu.families.conv.record import read_conv_spec
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.template import emit_conv
from aicf.backends.cpu.families.conv.template_base import ConvPointers
from aicf.backends.cpu.families.conv.winograd.pack.kernel import has_layout
from aicf.backends.cpu.families.gemm.epilogue import make_epilogue
from aicf.backends.cpu.families.gemm.pack.kernel import PACKED_B
from aicf.backends.cpu.families.records import read_rounding
from aicf.dialects.emit_types import LayoutAttr
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """A convolution."""
    x, weight, *extras = (strided(ref) for ref in launch.ins)
    outs = [strided(ref) for ref in launch.outs]
    sizes, accesses = result_sizes(launch.code, outs), pixel_accesses(launch.code, extras, outs)
    problem = None if sizes is None else read_conv(launch.record, x, weight, sizes)
    spec = None if problem is None else read_conv_spec(launch.record, problem, em.level)
    if accesses is None or spec is None or not _has_weight(launch.ins[1].layout, spec):
        raise PlanError(
            f"instruction '{launch.name}': its operands do not lie as its kernel record says: run lower-to-emit again"
        )
    if spec.workspace_bytes:
        require_workspace(launch, call, spec.workspace_bytes)
    workspace = call.ws[0] if call.ws else None
    pointers = [(*call.ins[2:], *call.outs)]
    if spec.lanes_along == "channels":
        accesses = turned(accesses)
    epilogue = make_epilogue(em, launch.code, accesses, pointers, read_rounding(launch.record))
    pixels, weights = call.ins[:2]
    emit_conv(em, spec, ConvPointers(pixels, weights, workspace, call.tid, call.nthreads), epilogue)


def _has_weight(layout: LayoutAttr | None, spec: ConvSpec) -> bool:
    """Whether the weight of a convolution lies as its record says."""
    if layout is None or not spec.prepared:
        return layout is None and not spec.prepared
    if spec.winograd is not None:
        return has_layout(layout, spec.winograd)
    if spec.problem.quads:
        return layout == quads_layout(spec)
    return layout.layout.data == PACKED_B
