"""Updates that are added to few rows become sums under a mask, a row of results each."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.logical.lowerings.indexing import from_the_end

_MOST_ROWS, _LEAST_UPDATES = 8, 64
"""Every row reads all updates: of more rows, or with fewer updates of each, no kernel is asked for its opinion."""


def _is_requested(op: logical.ScatterCombineOp) -> bool:
    indices = tensor_info(op.indices.type)
    if op.mode.data != "add" or not op.info.is_static or not indices.is_static:
        return False
    rows, count = op.info.shape[0], indices.shape[0]
    return rows <= _MOST_ROWS and count >= _LEAST_UPDATES * rows


def _masked_sums(lower: Lowering, op: logical.ScatterCombineOp) -> SSAValue:
    """The sum over all updates of those whose index is the row's."""
    rows, *inner = op.info.shape
    (count,) = tensor_info(op.indices.type).shape
    indices = from_the_end(lower, op.indices, rows)
    spread = lower.broadcast(indices, [1], [rows, count], "spread")
    row = lower.add(logical.IotaOp(0, [rows, count], tensor_info(op.indices.type).element), "row")
    here = lower.add(logical.CompareOp("eq", spread, row), "here")
    sizes = [rows, count, *inner]
    mask = lower.broadcast(here, [0, 1], sizes, "mask")
    updates = lower.broadcast(op.updates, range(1, len(sizes)), sizes, "updates")
    masked = lower.add(logical.SelectOp(mask, updates, lower.splat(0, updates, "zero")), "masked")
    total = lower.add(logical.ReduceSumOp(masked, [1], keepdims=False), "sum")
    return lower.add(logical.AddOp(op.operand, total), "")


register(
    OpExpansion(
        logical.ScatterCombineOp,
        ("scatter_combine",),
        _masked_sums,
        "as sums under a mask",
        is_requested=_is_requested,
        copied=(0, 1, 2),
    )
)
