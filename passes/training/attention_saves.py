"""Weights of attention that are not kept, because the kernel of the backward part computes them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.emit_types import TargetAttr
from aicf.passes.bodies.matching import without_casts
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.fusion.patterns.fuse_attention_backward import (
    KIND,
    Match,
    backward_matches,
    candidates_of,
    obstacle_of,
)
from aicf.passes.logical.recompute import AGAIN, eliminate
from aicf.passes.logical.saved_values import root_of, saves_in
from aicf.passes.support.identity import IdTable, derived_id, op_id
from aicf.passes.support.policy import policy_of
from aicf.passes.training.save_choice import Pin

BECAUSE = (
    "the kernel of attention's backward part computes it again from queries and keys, and never writes it"
)


def attention_pins(
    module: ModuleOp, function: FuncOp, target: TargetAttr, saves: Sequence[logical.SaveOp]
) -> Mapping[logical.SaveOp, Pin]:
    """The saves of weights whose attention's backward part would be one kernel if they were computed again.

    It is tried on a copy of the function, so that the kernels themselves say what they take.
    """
    policy = policy_of(module)
    context = FusionContext(module, function, target, policy)
    weights = [number for number, save in enumerate(saves) if _is_quotient(save)]
    if not weights or policy.forbids_fusion("attention") or context.why_none_of((KIND,)) is not None:
        return {}
    trial = function.clone()
    copies = saves_in(trial.body.block)
    dropped = {root_of(copies[number].operand) for number in weights}
    eliminate(trial.body.block, {root_of(save.operand) for save in copies} - dropped, IdTable(module))
    context = FusionContext(module, trial, target, policy)
    formed = {_weights_id(match) for match in backward_matches(context) if _is_formed(match, context)}
    again = {number: derived_id(op_id(_computing(saves[number])) or "", AGAIN) for number in weights}
    return {saves[number]: Pin(False, BECAUSE) for number in weights if again[number] in formed}


def _computing(save: logical.SaveOp) -> Operation:
    owner = root_of(save.operand).owner
    assert isinstance(owner, Operation)
    return owner


def _is_quotient(save: logical.SaveOp) -> bool:
    """Whether a division gives what is saved, as the last step of a softmax does."""
    return isinstance(without_casts(root_of(save.operand)).owner, logical.DivOp)


def _weights_id(match: Match) -> str | None:
    owner = match.backward.values_gradient.lhs.owner
    return op_id(owner) if isinstance(owner, Operation) else None


def _is_formed(match: Match, context: FusionContext) -> bool:
    if obstacle_of(match, context) is not None:
        return False
    return any(candidate.refusal(context) is None for candidate in candidates_of(match, context))
