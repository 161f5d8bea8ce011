"""What a body computes as text, the same for bodies that differ only in names: to be hashed, not parsed."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

_OURS = "aicf."
"""Prefix of the attributes that name an op and where it comes from, and say nothing of what it computes."""


def body_text(body: Block) -> str:
    """What a body computes, the same for bodies that differ only in ids, names of values and source locations."""
    numbers: dict[SSAValue, int] = {argument: index for index, argument in enumerate(body.args)}
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
