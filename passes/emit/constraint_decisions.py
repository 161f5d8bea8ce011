"""Constraints of instructions as decisions of a policy, where a policy can say them.

Logical IR has no instructions, so constraints that were written by hand do not survive on their own when programs are
raised or their decisions are extracted. What the other decisions imply is dropped, what a policy cannot say is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp

from aicf.dialects.emit import ResolvedOp, SlotOp
from aicf.dialects.emit_constraints import keeps_its_place, most_workspace, stream_group
from aicf.passes.analysis.alignment import aligned_operands
from aicf.passes.analysis.liveness import ARENA_ALIGN
from aicf.passes.support.identity import invalid
from aicf.passes.support.programs import programs


def refuse_unsaid(module: ModuleOp, records: bool) -> None:
    """Refuses constraints that no policy can say.

    `may_alias` follows from the kernel. An order and a stream follow from the decision for one stream in text order, a
    bound on the workspace from the kernel's record, an alignment from that of every slot.

    Args:
        module: The programs.
        records: Whether the policy gets the kernels' records.

    Raises:
        InvalidIR: an instruction has one, with the way out.
    """
    for program in programs(module):
        is_chain = all(op.stream is None or op.stream.value.data == 0 for op in program.instructions)
        for op in program.instructions:
            for key, why in _unsaid(op, is_chain, records):
                name = op.instruction.data
                raise invalid(
                    op, f"'{name}' has the constraint {key}, and {why}; take it out of constraints first"
                )


def _unsaid(op: ResolvedOp, is_chain: bool, records: bool) -> Iterator[tuple[str, str]]:
    """The constraints of an instruction that a policy cannot say, each with the reason."""
    constraints = op.constraints.data
    if keeps_its_place(constraints) and not is_chain:
        yield "no_reorder", "a policy can keep an order on one stream only"
    if stream_group(constraints) is not None and not is_chain:
        yield "same_stream", "a policy gives a number of streams, not the stream of an instruction"
    if most_workspace(constraints) is not None and not records:
        yield "max_workspace", "only a policy with the kernel's record keeps its workspace (pin=all)"
    for operand in aligned_operands(op):
        if operand.align > ARENA_ALIGN or not isinstance(operand.region.root, SlotOp):
            yield "align", "a policy says nothing of addresses"


def keeps_text_order(module: ModuleOp) -> bool:
    """Whether some instruction keeps its place, which the policy says as the order of the text."""
    return any(
        keeps_its_place(op.constraints.data) for program in programs(module) for op in program.instructions
    )
