"""The key of a piece of work in a tuning table: everything that decides how long a kernel takes, and no names."""

from __future__ import annotations

from math import gcd, prod

from xdsl.ir import Block, Operation, SSAValue

from aicf.backends.base import OperandInfo, Work
from aicf.dialects.plain_values import plain_value
from aicf.dialects.types import element_named
from aicf.policies.tuning_table import ALIGNMENT, OperandKey, WorkKey, text_digest

_OURS = "aicf."
"""Prefix of the attributes that name an op and where it comes from, and say nothing of what it computes."""


def key_of(work: Work) -> WorkKey:
    """The key of `work`: its body without ids, its operands without names."""
    return WorkKey(
        work.kind,
        {name: plain_value(value) for name, value in sorted(work.attrs.items())} | _arithmetic(work),
        text_digest(body_text(work.body)),
        tuple(_operand(info) for info in work.operands),
        tuple(_operand(info) for info in work.results),
    )


def _arithmetic(work: Work) -> dict[str, object]:
    """Kernels that round every value, or operands to TF32, are others; `fused` without TF32 is what a key means that
    says nothing."""
    said: dict[str, object] = {} if work.rounding == "fused" else {"rounding": work.rounding}
    return said | ({"tf32": True} if work.tf32 else {})


def _operand(info: OperandInfo) -> OperandKey:
    written = info.updated or info.role not in ("param", "const", "derived")
    role = "data" if written else "param" if info.role == "param" else "const"
    start = info.offset * element_named(info.dtype).bytes
    strides = info.strides if prod(info.shape) else tuple(0 for _ in info.shape)
    return OperandKey(role, info.dtype, info.shape, strides, gcd(start, ALIGNMENT) if start else ALIGNMENT)


def body_text(body: Block) -> str:
    """What a body computes, the same for bodies that differ only in ids, names of values and source locations."""
    numbers: dict[SSAValue, int] = {argument: place for place, argument in enumerate(body.args)}
    lines = [" ".join(str(argument.type) for argument in body.args)]
    for op in body.ops:
        lines.append(_op_text(op, numbers))
        for result in op.results:
            numbers[result] = len(numbers)
    return "\n".join(lines)


def _op_text(op: Operation, numbers: dict[SSAValue, int]) -> str:
    assert not op.regions  # bodies hold primitive ops, which have none
    entries = {**op.properties, **op.attributes}
    said = [f"{key}={value}" for key, value in sorted(entries.items()) if not key.startswith(_OURS)]
    operands = [f"%{numbers[operand]}" for operand in op.operands]
    types = [str(result.type) for result in op.results]
    return " ".join([op.name, *operands, *said, "->", *types])
