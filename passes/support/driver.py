"""Runs the passes of a pipeline in order, and goes back to `eliminate-saves` where a memory budget is exceeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.errors import PlanError
from aicf.passes.check_budget import CheckBudgetPass, OverBudget
from aicf.passes.eliminate_saves import EliminateSavesPass

BACK = 4
"""How often at most."""


def drive(passes: Sequence[ModulePass], module: ModuleOp, apply: Callable[[ModulePass], None]) -> None:
    """Applies every pass to `module`, by `apply`.

    Where `check-budget` says that a memory plan takes too much, everything since `eliminate-saves` is undone, and that
    pass is asked to free so much more.

    Raises PlanError if that does not help either; the message has the least that was found.
    """
    first = _first(passes, EliminateSavesPass)
    if first is None or _first(passes, CheckBudgetPass) is None:
        first = len(passes)
    for each in passes[:first]:
        apply(each)
    if first < len(passes):
        _within_budget(passes[first:], module, apply)


def _first(passes: Sequence[ModulePass], kind: type[ModulePass]) -> int | None:
    return next((place for place, each in enumerate(passes) if isinstance(each, kind)), None)


def _within_budget(
    passes: Sequence[ModulePass], module: ModuleOp, apply: Callable[[ModulePass], None]
) -> None:
    saves, *rest = passes
    assert isinstance(saves, EliminateSavesPass)
    found: list[OverBudget] = []
    while len(found) <= BACK:
        before = module.clone()
        try:
            for each in (saves, *rest):
                apply(each)
            return
        except OverBudget as over:
            found.append(over)
            saves = replace(saves, less=saves.less + over.excess)
            _restore(module, before)
    least = min(found, key=lambda over: over.taken)
    raise PlanError(
        f"memory budget of {least.budget} bytes: @{least.program} takes {least.taken} bytes at least with all saved "
        "values computed again that help; give as much, or make the batch smaller"
    )


def _restore(module: ModuleOp, before: ModuleOp) -> None:
    """Makes `module` what it was; `before` is used up."""
    for op in reversed(list(module.body.block.ops)):
        op.detach()
        op.erase()
    for op in list(before.body.block.ops):
        op.detach()
        module.body.block.add_op(op)
    module.attributes = before.attributes
