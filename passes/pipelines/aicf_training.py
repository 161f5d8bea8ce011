"""`aicf-training`: the whole way from a training step in logical IR to a final emit program, as one named pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects.traits import TrainingOnly
from aicf.errors import PolicyError
from aicf.passes.fusion.patterns import patterns
from aicf.passes.logical.logical_dce import LogicalDcePass
from aicf.passes.logical.lower_precision import LowerPrecisionPass
from aicf.passes.pipelines.aicf_inference import (
    Extend,
    decision_passes,
    front_passes,
    lowering_passes,
    nothing,
    simplifications,
)
from aicf.passes.pipelines.named_pipeline import NamedPipeline
from aicf.passes.support.works_on import ANYTHING
from aicf.passes.training.check_budget import CheckBudgetPass
from aicf.passes.training.check_finite import CheckFinitePass
from aicf.passes.training.differentiate import DifferentiatePass
from aicf.passes.training.eliminate_saves import EliminateSavesPass
from aicf.passes.training.lower_optimizers import LowerOptimizersPass
from aicf.passes.training.merge_linears import MergeLinearsPass
from aicf.passes.training.separate_meta import SeparateMetaPass
from aicf.passes.verify.verify_logical import VerifyLogicalPass


@dataclass(frozen=True)
class AicfTrainingPass(NamedPipeline):
    """Runs every pass of the training pipeline in order: that of inference, with gradients, optimizers and saves.

    Options: `target`, `policy`, `dims`, `threads`, `tuning` and `until` of `aicf-inference`; `meta` (`device` or
    `host`: who computes counters and rates, see `separate-meta`) and `check-finite` (a step that is not finite changes
    nothing); `memory-budget`, the bytes that the arena of a program may take: what is saved is computed again where it
    takes more. 0 sets no bound. `saved-share`, from 0 to 1, is the part of what would be saved that stays; the arena
    takes less by about the rest, as far as that goes. `training` is for a model without gradients: a training step is
    taken as in training anyway.

    Raises PlanError if no choice is found that stays within the budget.
    """

    name = "aicf-training"
    works_on = ANYTHING

    target: str = ""
    policy: str = ""
    dims: str = ""
    threads: int = 1
    tuning: str = ""
    meta: str = "device"
    check_finite: bool = False
    memory_budget: int = 0
    training: bool = False
    saved_share: float = 1.0

    def passes(self, extend: Extend = nothing) -> tuple[ModulePass, ...]:
        """The passes in order, with the options handed on, and with those of `extend` at the extension points."""
        if self.memory_budget < 0:
            raise PolicyError(f"memory-budget: must be at least 0 bytes, got {self.memory_budget}")
        check = (CheckBudgetPass(self.memory_budget),) if self.memory_budget else ()
        return (
            *front_passes(
                self.target, self.policy, self.dims, self.threads, training=self.training, extend=extend
            ),
            LowerPrecisionPass(),
            MergeLinearsPass(),
            DifferentiatePass(),
            *([CheckFinitePass()] if self.check_finite else []),
            LowerOptimizersPass(),
            SeparateMetaPass(self.meta),
            *simplifications(),
            *lowering_passes(),
            # Saves keep equal ops of the two parts apart: merged, they would tear fusions. So no cse from here.
            EliminateSavesPass(share=self.saved_share),
            LogicalDcePass(),
            *extend("lowered"),
            VerifyLogicalPass(),
            *decision_passes(self.tuning, extend, tuple(pattern() for pattern in patterns("updates"))),
            *check,
        )


def is_training(module: ModuleOp) -> bool:
    """Whether the module has ops that only the training pipeline lowers."""
    return any(op.has_trait(TrainingOnly) for op in module.walk())
