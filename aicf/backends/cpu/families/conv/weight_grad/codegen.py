"""The code of gradients of weights: from a launch to the arguments of the template of convolutions."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.conv.problem import turned
from aicf.backends.cpu.families.conv.template import emit_conv
from aicf.backends.cpu.families.conv.template_base import ConvPointers
from aicf.backends.cpu.families.conv.weight_grad.kernel import read_direct
from aicf.backends.cpu.families.conv.weight_grad.problem import read_weight_grad, result_access
from aicf.backends.cpu.families.gemm.epilogue import make_epilogue
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The gradient of a weight."""
    (x, grad), result = (strided(ref) for ref in launch.ins), strided(launch.outs[0])
    problem, access = read_weight_grad(launch.record, x, grad, result), result_access(result)
    if problem is None or access is None:
        raise PlanError(
            f"instruction '{launch.name}': its operands do not lie as its kernel record says: run lower-to-emit again"
        )
    spec = read_direct(launch.record, problem, em.level)
    if spec.workspace_bytes:
        require_workspace(launch, call, spec.workspace_bytes)
    workspace = call.ws[0] if call.ws else None
    accesses = turned([access]) if spec.lanes_along == "channels" else [access]
    epilogue = make_epilogue(em, None, accesses, [call.outs], "fused")
    images, weight = call.ins
    emit_conv(em, spec, ConvPointers(images, weight, workspace, call.tid, call.nthreads), epilogue)
