"""The ops that an attention, or its backward part, is made of, and who else reads what is between its products."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.passes.bodies.matching import computed_from, is_iota_like
from aicf.passes.bodies.outlining import id_of


def members(
    results: Iterable[SSAValue], operands: Iterable[SSAValue], position: Mapping[Operation, int]
) -> tuple[Operation, ...]:
    """The ops that compute `results` from `operands`, in text order, without those that every kernel makes for itself:
    constants, and what follows from coordinates."""
    ops = computed_from(results, set(operands), position)
    return tuple(op for op in ops if not (isinstance(op, logical.ConstantOp) or is_iota_like(op.results[0])))


def why_in_memory(inside: Collection[Operation], last: Collection[Operation]) -> str | None:
    """Who outside reads what an op inside gives, unless that is one of the `last`, as a reason against one kernel; None
    if nobody does."""
    among = set(inside)
    reads = (use.operation for op in inside if op not in last for use in op.results[0].uses)
    if (reader := next((reader for reader in reads if reader not in among), None)) is None:
        return None
    who = "the program returns" if isinstance(reader, ReturnOp) else f"'{id_of(reader)}' reads"
    return f"{who} what is computed between the products, so it has to be written to memory in any case"
