"""What a kernel says of a record that was edited by hand."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Attribute

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.workload import Workload
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PlanError


def record_reason(
    kernel: AnyKernel, work: Workload, record: Mapping[str, Attribute], target: TargetAttr
) -> str | None:
    """Why a record cannot run `work`, None if it can."""
    try:
        kernel.checked_record(work, record, target)
    except PlanError as error:
        return error.message
    return None
