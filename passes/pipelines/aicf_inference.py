"""`aicf-inference`: the whole way from logical IR to a final emit program, as one named pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.errors import PolicyError
from aicf.passes.emit.decide_inplace import DecideInplacePass
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.emit.plan_capture import PlanCapturePass
from aicf.passes.emit.plan_memory import PlanMemoryPass
from aicf.passes.emit.prepare_parameters import PrepareParametersPass
from aicf.passes.emit.schedule import SchedulePass
from aicf.passes.fusion.merges.fuse_moments import FuseMomentsPass
from aicf.passes.fusion.merges.fuse_multi_output import FuseMultiOutputPass
from aicf.passes.fusion.merges.sink_casts import SinkCastsPass
from aicf.passes.fusion.patterns import patterns
from aicf.passes.fusion.patterns.fuse_updates import FuseUpdatesPass
from aicf.passes.kernels.generate_kernels import GenerateKernelsPass
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.layout.elide_concats import ElideConcatsPass
from aicf.passes.layout.materialize_views import MaterializeViewsPass
from aicf.passes.layout.select_layouts import SelectLayoutsPass
from aicf.passes.layout.select_pitches import SelectPitchesPass
from aicf.passes.legalize.keep_whole import KeepWholePass
from aicf.passes.legalize.legalize_for_target import LegalizeForTargetPass
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.legalize.narrow_moves import NarrowMovesPass
from aicf.passes.legalize.narrow_products import NarrowProductsPass
from aicf.passes.logical.apply_policy import ApplyPolicyPass
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.fold_constants import FoldConstantsPass
from aicf.passes.logical.fold_masks import FoldMasksPass
from aicf.passes.logical.fold_rotations import FoldRotationsPass
from aicf.passes.logical.fold_transposes import FoldTransposesPass
from aicf.passes.logical.logical_canonicalize import LogicalCanonicalizePass
from aicf.passes.logical.logical_cse import LogicalCsePass
from aicf.passes.logical.logical_dce import LogicalDcePass
from aicf.passes.logical.lower_precision import LowerPrecisionPass
from aicf.passes.logical.merge_products import MergeProductsPass
from aicf.passes.logical.read_packed_weights import ReadPackedWeightsPass
from aicf.passes.logical.set_target import SetTargetPass
from aicf.passes.logical.specialize_shapes import SpecializeShapesPass
from aicf.passes.logical.to_evaluation import ToEvaluationPass
from aicf.passes.onnx.lower_onnx import LowerOnnxPass
from aicf.passes.pipelines.collector import collector_paused
from aicf.passes.pipelines.driver import drive
from aicf.passes.pipelines.named_pipeline import NamedPipeline
from aicf.passes.support.works_on import ANYTHING
from aicf.passes.verify.verify_capture_safe import VerifyCaptureSafePass
from aicf.passes.verify.verify_emit import VerifyEmitPass
from aicf.passes.verify.verify_logical import VerifyLogicalPass
from aicf.passes.verify.verify_order import VerifyOrderPass

STARTS = ("logical", "lowered")

Observer = Callable[[ModulePass, ModuleOp], None]

Extend = Callable[[str], tuple[ModulePass, ...]]
"""What else runs at an extension point, by its name."""


def nothing(_: str) -> tuple[ModulePass, ...]:
    """No pass at any point."""
    return ()


@dataclass(frozen=True)
class AicfInferencePass(NamedPipeline):
    """Runs every pass of the inference pipeline in order, with a check at each phase boundary.

    Options: `target` (`cpu:x86-64-v3`, `reference`), `policy` (file, inline JSON or `auto`), `dims`
    (`N=1,540`, sizes of symbolic dimensions), `values` (of inputs of an ONNX model that shapes follow from,
    `{"shape": [2, 3]}`), `strict` (a wrong declaration in an ONNX model is an error), `training` (whether dropouts
    and batch norms do what they do in training), `threads`, `tuning` (a table that `aicf tune` wrote: its path or
    inline JSON), and `start`: `logical`, or `lowered` for IR that is lowered already, such as `raise-emit` gives, or
    that has groups which were formed by hand. `until` is the pass to stop after, the last of its name.
    """

    name = "aicf-inference"
    works_on = ANYTHING

    target: str = ""
    policy: str = ""
    dims: str = ""
    threads: int = 1
    start: str = "logical"
    tuning: str = ""
    values: str = ""
    strict: bool = False
    training: bool = False

    def passes(self, extend: Extend = nothing) -> tuple[ModulePass, ...]:
        """The passes in order, with the options handed on, and with those of `extend` at the extension points."""
        if self.start not in STARTS:
            raise PolicyError(f"start: '{self.start}' is no stage to start from; legal: {', '.join(STARTS)}")
        if self.start == "lowered":
            checks = (AssignIdsPass(), VerifyLogicalPass(groups=True))
            return (
                *_settings(self.target, self.policy, self.threads),
                *checks,
                *decision_passes(self.tuning, extend, (FuseUpdatesPass(listed=True),)),
            )
        return (
            *front_passes(
                self.target,
                self.policy,
                self.dims,
                self.threads,
                self.values,
                strict=self.strict,
                training=self.training,
                extend=extend,
            ),
            LowerPrecisionPass(),
            *lowering_passes(),
            NarrowProductsPass(),
            MergeProductsPass(),
            LogicalDcePass(),
            *extend("lowered"),
            VerifyLogicalPass(),
            *decision_passes(self.tuning, extend),
        )


def _settings(target: str, policy: str, threads: int) -> tuple[ModulePass, ...]:
    """What later passes read from the module."""
    target_passes = (SetTargetPass(target, threads),) if target else ()
    policy_passes = (ApplyPolicyPass(policy),) if policy else ()
    return (*target_passes, *policy_passes)


def simplifications() -> tuple[ModulePass, ...]:
    """What makes logical IR smaller, wherever it stands."""
    return (LogicalCanonicalizePass(), LogicalCsePass(), LogicalDcePass())


def front_passes(
    target: str,
    policy: str,
    dims: str,
    threads: int,
    values: str = "",
    *,
    strict: bool = False,
    training: bool = False,
    extend: Extend = nothing,
) -> tuple[ModulePass, ...]:
    """From a model as it was given to logical IR of static sizes.

    Args:
        training: Whether the model is taken as in training; else in evaluation, unless it is a training step.
    """
    return (
        *_settings(target, policy, threads),
        AssignIdsPass(),
        VerifyLogicalPass(),
        *extend("model"),
        *(() if training else (ToEvaluationPass(),)),
        *simplifications(),
        FoldConstantsPass(),
        SpecializeShapesPass(dims, values),
        LowerOnnxPass(strict, training),
        FoldMasksPass(),
        *extend("static"),
        VerifyLogicalPass(),
    )


def lowering_passes() -> tuple[ModulePass, ...]:
    """From logical IR of static sizes to primitive ops."""
    return (
        KeepWholePass(),
        LowerLogicalPass(),
        *simplifications(),
        FoldRotationsPass(),
        FoldConstantsPass(),
        FoldTransposesPass(),
        ReadPackedWeightsPass(),
        LogicalDcePass(),
    )


def decision_passes(
    tuning: str = "", extend: Extend = nothing, updates: tuple[ModulePass, ...] = ()
) -> tuple[ModulePass, ...]:
    """From lowered logical IR to a final program.

    Args:
        updates: The passes that form groups of updates; after what is expanded, whose views join these groups.
    """
    return (
        PrepareParametersPass(),
        LegalizeForTargetPass(),
        *updates,
        *(pattern() for pattern in patterns("before_views")),
        NarrowMovesPass(),
        MaterializeViewsPass(),
        *(pattern() for pattern in patterns("after_views")),
        FuseMultiOutputPass(),
        SinkCastsPass(),
        ElideConcatsPass(),
        *extend("grouped"),
        SelectLayoutsPass(),
        FuseMomentsPass(),
        SelectPitchesPass(),
        SelectKernelsPass(tuning),
        GenerateKernelsPass(),
        LowerToEmitPass(),
        *emit_passes(extend),
    )


def instruction_passes(tuning: str = "", extend: Extend = nothing) -> tuple[ModulePass, ...]:
    """From emit programs of any phase, with instructions that may be open, to final ones."""
    return (VerifyEmitPass(), SelectKernelsPass(tuning), GenerateKernelsPass(), *emit_passes(extend))


def emit_passes(extend: Extend = nothing) -> tuple[ModulePass, ...]:
    """From an emit program of any phase whose instructions have kernels to a final one; a final one is only checked."""
    return (
        VerifyEmitPass(),
        *extend("emit"),
        SchedulePass(),
        VerifyOrderPass(),
        DecideInplacePass(),
        PlanMemoryPass(),
        PlanCapturePass(),
        *extend("final"),
        VerifyEmitPass(meaning=False),
        VerifyOrderPass(),
        VerifyCaptureSafePass(),
    )


def run(
    passes: tuple[ModulePass, ...], ctx: Context, module: ModuleOp, observer: Observer | None = None
) -> None:
    """Applies passes in order, see `drive`; `observer` sees each pass and the module after it."""

    def apply(step: ModulePass) -> None:
        step.apply(ctx, module)
        if observer is not None:
            observer(step, module)

    with collector_paused():
        drive(passes, module, apply)
