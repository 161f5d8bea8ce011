"""`plan-memory`: every slot gets its place in the arena; slots never alive together may share bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf.dialects.emit import BindOp, ProgramOp, SlotOp
from aicf.passes.analysis.accesses import accesses_by_root
from aicf.passes.analysis.alignment import aligned_operands, root_alignments
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.analysis.liveness import (
    ARENA_ALIGN,
    Interference,
    Lifetime,
    aligned,
    interfering,
    lower_bound,
    slot_lifetimes,
)
from aicf.passes.support.identity import invalid
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of
from aicf.passes.support.programs import advance, programs
from aicf.passes.support.works_on import until_phase


@dataclass(frozen=True)
class PlanMemoryPass(ModulePass):
    """Places slots one after the other, each at the lowest offset that no interfering slot covers: largest first, and
    again with what lay on top first as long as the arena is above its lower bound (`_TRIES` times at most).

    Lifetimes count over happens-before, so slots of unordered instructions never share bytes. The ledger gets the
    arena size beside the lower bound: the heaviest set of slots that are alive together. With `memory: separate` in
    the policy no two slots share bytes.

    Operands that instructions want aligned (`constraints {align = ...}`) put their slots at offsets of that kind, and
    raise the alignment that direct inputs and outputs state.
    """

    name = "plan-memory"
    works_on = until_phase("planned")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op):
            if advance(program, "inplace", "planned"):
                _plan(op, program, execution_of(op).memory == "shared")


def _plan(module: ModuleOp, program: ProgramOp, shared: bool) -> None:
    for slot in program.slots:
        if not slot.buffer.uses:
            Rewriter.erase_op(slot)
    _check_alignments(program)
    order, wanted = HappensBefore(program), root_alignments(program)
    _align_binds(program, wanted)
    lifetimes = [
        replace(life, align=max(ARENA_ALIGN, wanted.get(life.slot, 1)))
        for life in slot_lifetimes(accesses_by_root(program), order)
    ]
    bound = lower_bound(lifetimes, order)
    offsets = place(lifetimes, Interference(order), bound) if shared else _one_after_the_other(lifetimes)
    for life, offset in zip(lifetimes, offsets, strict=True):
        for key, value in (("offset", offset), ("size", life.size), ("align", life.align)):
            life.slot.properties[key] = IntegerAttr(value, i64)
    arena = _end(lifetimes, offsets)
    program.properties["arena_bytes"] = IntegerAttr(arena, i64)
    without = sum(life.size for life in lifetimes)
    because = f"lower bound {bound} bytes" if arena != bound else "equals the lower bound"
    record_decision(
        module,
        PlanMemoryPass.name,
        [program.sym_name.data],
        f"arena of {arena} bytes for {len(lifetimes)} slots",
        because if shared else f"the policy gives each slot bytes of its own; {because}",
        {"a slot each": f"{without} bytes"} if without > arena else {},
        {"arena_bytes": IntegerAttr(arena, i64), "lower_bound_bytes": IntegerAttr(bound, i64)},
    )


def _check_alignments(program: ProgramOp) -> None:
    """Raises InvalidIR for an operand that no placement aligns as its instruction wants."""
    for op in program.instructions:
        for operand in aligned_operands(op):
            if (why := operand.problem()) is not None:
                what = f"operand {operand.number} of '{op.instruction.data}' must be aligned to {operand.align} bytes"
                raise invalid(op, f"{what}, but {why}")


def _align_binds(program: ProgramOp, wanted: Mapping[BindOp | SlotOp, int]) -> None:
    """Raises what direct inputs and outputs state; callers' memory is checked against that when it is bound."""
    for bind in program.binds:
        if bind in wanted and bind.binding is not None and bind.binding.data == "direct":
            stated = 1 if bind.align is None else bind.align.value.data
            bind.properties["align"] = IntegerAttr(max(stated, wanted[bind]), i64)


def _one_after_the_other(lifetimes: Sequence[Lifetime]) -> list[int]:
    offsets, end = list[int](), 0
    for life in lifetimes:
        offsets.append(aligned(end, life.align))
        end = offsets[-1] + life.size
    return offsets


_TRIES = 32


def place(lifetimes: Sequence[Lifetime], interferes: Interference, bound: int = 0) -> list[int]:
    """Offsets in bytes, one a lifetime. Ties go to the earlier slot, so the result is deterministic.

    Args:
        bound: No placement ends below it, so one that ends there is taken.
    """
    neighbours = interfering(lifetimes, interferes)
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].size, lifetimes[i].first, i))
    best = offsets = _placed(lifetimes, neighbours, order)
    for _ in range(_TRIES):
        if _end(lifetimes, best) <= bound:
            break
        top = max(order, key=lambda i: (offsets[i] + lifetimes[i].size, -i))
        order = [top, *(i for i in order if i != top)]
        offsets = _placed(lifetimes, neighbours, order)
        best = min(best, offsets, key=lambda found: _end(lifetimes, found))
    return best


def _end(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> int:
    """Bytes of the arena."""
    return max((offset + life.size for life, offset in zip(lifetimes, offsets, strict=True)), default=0)


def _placed(
    lifetimes: Sequence[Lifetime], neighbours: Sequence[Collection[int]], order: Sequence[int]
) -> list[int]:
    """Offsets of slots that are placed in `order`, each at the lowest offset that is free."""
    offsets: dict[int, int] = {}
    for current in order:
        others = [other for other in neighbours[current] if other in offsets]
        taken = sorted((offsets[other], offsets[other] + lifetimes[other].size) for other in others)
        offsets[current] = _first_gap(taken, lifetimes[current])
    return [offsets[i] for i in range(len(lifetimes))]


def _first_gap(taken: Sequence[tuple[int, int]], life: Lifetime) -> int:
    """The lowest offset of a slot's alignment where it fits between the sorted ranges `taken`."""
    offset = 0
    for start, end in taken:
        if start - offset >= life.size:
            return offset
        offset = max(offset, aligned(end, life.align))
    return offset
