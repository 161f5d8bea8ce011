"""What a kernel that embeds addresses costs besides its own time: callers' memory is copied to it, and back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from aicf.backends.base import BoundaryBackend
from aicf.backends.common.workload import Workload
from aicf.backends.registry import get_backend
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.dialects.types import element_named
from aicf.passes.bodies.views import is_view


def staging_us(record: KernelAttr, work: Workload, op: Operation, target: TargetAttr) -> float:
    """Predicted microseconds of copying the inputs and outputs whose addresses the record's kernel embeds.

    0 on a target that uses callers' memory where it is.

    Args:
        record: Whose `fixed_addresses` number the operands of `work`, then its results.
        op: The group or instruction that the work is of.
    """
    fixed = record.record.data.get("fixed_addresses")
    backend = get_backend(target.backend.data)
    if not isinstance(fixed, ArrayAttr) or not isinstance(backend, BoundaryBackend):
        return 0.0
    infos = (*work.operands, *work.results)
    total = 0.0
    for entry in cast("ArrayAttr[IntegerAttr]", fixed):
        index = entry.value.data
        result = index - len(work.operands)
        crosses = infos[index].role == "input" if result < 0 else _is_output(op.results, result)
        if crosses:
            info = infos[index]
            total += backend.copy_us(prod(info.shape) * element_named(info.dtype).bytes, target)
    return total


def _is_output(results: Sequence[SSAValue], index: int) -> bool:
    """Whether a result, or a view of it, is given back. An instruction that was written open has no results: what it
    writes to a bind is not counted.
    """
    return index < len(results) and _is_returned(results[index])


def _is_returned(value: SSAValue) -> bool:
    readers = (use.operation for use in value.uses)
    return any(
        isinstance(reader, func.ReturnOp) or (is_view(reader) and _is_returned(reader.results[0]))
        for reader in readers
    )
