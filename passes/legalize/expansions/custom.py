"""Ops of packages become their formulas, and ops that were kept whole what they are in primitive ops."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from aicf.backends.common.user_kernel import CUSTOM, UserKernelBase
from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.passes.bodies.workload import target_of
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.logical.lowerings.custom import expanded, has_formula


def _kept(lower: Lowering, op: logical.CustomOp) -> SSAValue | None:
    """None for an op that some kernel of the target is for. A pointwise one, and one without a kernel, is written at
    once, so that its parts are simplified and folded with the rest of the program."""
    is_pointwise = op.definition is not None and op.definition.pointwise
    return None if not is_pointwise and _has_kernel(op) else expanded(lower, op)


def _has_kernel(op: logical.CustomOp) -> bool:
    module = op.get_toplevel_object()
    assert isinstance(module, ModuleOp)
    return any(
        CUSTOM in kernel.kinds and (not isinstance(kernel, UserKernelBase) or kernel.spec.runs == op.label)
        for kernel in get_kernels(target_of(module).backend.data).values()
    )


register(
    OpExpansion(
        logical.CustomOp,
        (CUSTOM,),
        expanded,
        "its formula",
        kept=_kept,
        copied=None,
        has_formula=has_formula,
    )
)
