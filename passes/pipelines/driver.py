"""Runs the passes of a pipeline in order, and goes back to `eliminate-saves` where a memory budget is exceeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf.errors import PlanError
from aicf.passes.training.check_budget import CheckBudgetPass, OverBudget
from aicf.passes.training.eliminate_saves import EliminateSavesPass, write_less

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
    return next((index for index, each in enumerate(passes) if isinstance(each, kind)), None)


def _within_budget(
    passes: Sequence[ModulePass], module: ModuleOp, apply: Callable[[ModulePass], None]
) -> None:
    saves, *rest = passes
    assert isinstance(saves, EliminateSavesPass)
    less: Counter[str] = Counter()
    least: dict[str, int] = {}
    for left in reversed(range(BACK + 1)):
        before = module.clone()
        try:
            for each in (saves, *rest):
                apply(each)
            return
        except OverBudget as over:
            for name, arena in over.taken.items():
                less[name] += arena - over.budget
                least[name] = min(arena, least.get(name, arena))
            if not left:
                raise _too_small(over, least) from over
            saves = replace(saves, less=write_less(less))
            _restore(module, before)


def _too_small(over: OverBudget, least: Mapping[str, int]) -> PlanError:
    name = max(over.taken, key=lambda name: least[name])
    return PlanError(
        f"memory budget of {over.budget} bytes: @{name} takes {least[name]} bytes with all computed again that helps; "
        "give as much, or make the batch smaller"
    )


def _restore(module: ModuleOp, before: ModuleOp) -> None:
    """Makes `module` what it was; `before` is used up."""
    for op in reversed(list(module.body.block.ops)):
        Rewriter.erase_op(op)
    for op in list(before.body.block.ops):
        op.detach()
        module.body.block.add_op(op)
    module.attributes = before.attributes
