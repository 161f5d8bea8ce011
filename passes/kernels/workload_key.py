"""The key of a piece of work in a tuning table: everything that decides how long a kernel takes, and no names."""

from __future__ import annotations

from math import gcd, prod

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.dialects.body_text import body_text
from aicf.dialects.json_values import json_value
from aicf.dialects.types import element_named
from aicf.policies.tuning_table import ALIGNMENT, OperandKey, WorkloadKey, text_digest


def key_of(work: Workload) -> WorkloadKey:
    """The key of `work`: its body without ids, its operands without names."""
    return WorkloadKey(
        work.kind,
        {name: json_value(value) for name, value in sorted(work.attrs.items())} | _arithmetic(work),
        text_digest(body_text(work.body)),
        tuple(_operand(info) for info in work.operands),
        tuple(_operand(info) for info in work.results),
    )


def _arithmetic(work: Workload) -> dict[str, object]:
    """Kernels that round every value, or operands to TF32, are others; `fused` without TF32 is what a key means that
    says nothing."""
    said: dict[str, object] = {} if work.rounding == "fused" else {"rounding": work.rounding}
    return said | ({"tf32": True} if work.tf32 else {})


def _operand(info: OperandInfo) -> OperandKey:
    written = info.updated or info.role not in ("param", "const", "derived")
    role = "data" if written else "param" if info.is_weight else "const"
    start = info.offset * element_named(info.dtype).bytes
    strides = info.strides if prod(info.shape) else tuple(0 for _ in info.shape)
    return OperandKey(role, info.dtype, info.shape, strides, gcd(start, ALIGNMENT) if start else ALIGNMENT)
