"""TF32, the f32 of tensor cores with 10 bits of mantissa: when products may use it, and what records say of it."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload

_MATH = {"f32": "tf32"}


def math_of(dtype: str) -> str:
    """The type in which tensor cores multiply operands of `dtype`."""
    return _MATH.get(dtype, dtype)


def math_entries(dtype: str) -> dict[str, Attribute]:
    """What a record says of operands that are multiplied in another type than their own."""
    return {"math": StringAttr(_MATH[dtype])} if dtype in _MATH else {}


def tf32_reason(work: Workload) -> str | None:
    """Why the operands of a work may not be rounded to TF32, None if they may."""
    if (dtype := work.operands[0].dtype) != "f32":
        return f"only f32 is rounded to TF32, A is {dtype}"
    return (
        None if work.tf32 else "it rounds f32 operands to TF32, the policy has not allowed that (tf32: true)"
    )
