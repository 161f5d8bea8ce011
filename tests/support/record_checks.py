"""What a kernel says of a record that was edited by hand."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Attribute

from aicf.backends.base import KernelDescriptor, Work
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PlanError


def record_reason(
    kernel: KernelDescriptor, work: Work, record: Mapping[str, Attribute], target: TargetAttr
) -> str | None:
    """Why a record cannot run `work`, None if it can."""
    try:
        kernel.checked_record(work, record, target)
    except PlanError as error:
        return error.message
    return None
