"""From a source to the passes of its pipeline, and from final emit IR to native code: what `compile` needs, and an
executable that is asked for a stage or loaded on another machine. Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf.backends.native import NativeCode
from aicf.backends.registry import get_backend
from aicf.compilation.extensions import Extension, Extensions, from_texts
from aicf.compilation.sources import Source
from aicf.dialects.emit import find_ledger
from aicf.dialects.json_values import json_value
from aicf.dialects.logical import ROLE_ATTR
from aicf.dialects.printing import text_of
from aicf.errors import ArtifactError, InputMismatch, PolicyError
from aicf.frontends.text import make_context, parse_module
from aicf.inspection.explain import Decision
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.logical.apply_policy import ApplyPolicyPass
from aicf.passes.logical.set_target import SetTargetPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, Extend, emit_passes, instruction_passes
from aicf.passes.pipelines.aicf_training import AicfTrainingPass, is_training
from aicf.passes.pipelines.collector import collector_paused
from aicf.passes.pipelines.driver import drive
from aicf.passes.pipelines.text import apply_pass
from aicf.passes.support.interface import functions
from aicf.policies.policy import resolve_policy
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.plan_from_ir import code_units, program_needs, read_module, target_of

if TYPE_CHECKING:
    from aicf.compilation.record import Options, Record


LOWERED = "lowered"
"""Stage name of the program in primitive ops, before anything is decided."""
_LOWERED_PASS = "verify-logical"
"""Its last run is the boundary that `LOWERED` names."""


def passes_of(
    source: Source, options: Options, extensions: Sequence[Extension] = ()
) -> tuple[ModulePass, ...]:
    """The passes that make a final program of `source`, with those of the caller at their points.

    Raises PolicyError for options that do not fit the program.
    """
    extend = Extensions(extensions)
    passes = _pipeline(source, options, extend.at)
    extend.check_reached()
    return passes


def _pipeline(source: Source, options: Options, extend: Extend) -> tuple[ModulePass, ...]:
    if options.memory_budget and not is_training(source.module):
        raise PolicyError("memory_budget: the program saves nothing for gradients; leave the option out")
    if options.values and not source.is_onnx:
        raise PolicyError("values: only inputs of ONNX models are bound to values; leave the option out")
    if options.meta and not _has_metas(source.module):
        raise PolicyError("meta: the program has no counter or other meta; leave the option out")
    if source.is_emit:
        start = (SetTargetPass(options.target, options.threads),) if options.target else ()
        policy = (ApplyPolicyPass(options.policy),) if options.policy else ()
        return (*start, *policy, *instruction_passes(options.tuning, extend))
    given = (options.target, options.policy, options.dims, options.threads)
    if options.meta or options.check_finite or is_training(source.module):
        meta, budget = options.meta or "device", options.memory_budget
        checks = (options.check_finite, budget)
        training, share = options.training, options.saved_share
        pipeline = AicfTrainingPass(
            *given, options.tuning, meta, *checks, training=training, saved_share=share
        )
        return pipeline.passes(extend)
    if options.policy and not source.has_groups:
        resolve_policy(options.policy).execution.check_saves(())
    stage = "lowered" if source.has_groups else "logical"
    modes = options.values, options.strict, options.training
    return AicfInferencePass(*given, stage, options.tuning, *modes).passes(extend)


def _has_metas(module: ModuleOp) -> bool:
    """Whether a function takes a meta."""
    return any(
        argument_attrs(function, argument.index).get(ROLE_ATTR) == StringAttr("meta")
        for function in functions(module)
        for argument in function.body.block.args
    )


def build_native(module: ModuleOp) -> NativeCode:
    target = target_of(module)
    native = get_backend(target.backend.data).build(module, code_units(module), target)
    return replace(native, programs=program_needs(module))


def print_module(module: ModuleOp) -> str:
    """The text of a module, which parses back to it."""
    return text_of(module) + "\n"


def read_decisions(module: ModuleOp) -> tuple[Decision, ...]:
    """The ledger of a module as plain data."""
    ledger = find_ledger(module)
    if ledger is None:
        return ()
    return tuple(
        Decision(
            op.pass_name.data,
            tuple(subject.data for subject in op.subjects),
            op.choice.data,
            op.because.data,
            {key: json_value(value) for key, value in op.rejected.data.items()},
            {key: json_value(value) for key, value in op.cost.data.items()},
        )
        for op in ledger.decisions
    )


def stage_text(record: Record, stage: str) -> str:
    """The program of `record` after the last run of pass `stage` (or at `LOWERED`), made again.

    Raises:
        InputMismatch: there is no such stage.
        PolicyError: a pass of the caller is not installed here.
        ArtifactError: the passes of this installation make another program.
    """
    wanted = _LOWERED_PASS if stage == LOWERED else stage
    text, names = None, dict.fromkeys(["logical", LOWERED, "emit"])

    def look(name: str, module: ModuleOp) -> None:
        nonlocal text
        names[name] = None
        if name == wanted:
            text = print_module(module)

    run_again(record, look)
    if text is None:
        raise InputMismatch(f"there is no IR stage '{stage}'; it has {', '.join(names)}")
    return text


def run_again(record: Record, look: Callable[[str, ModuleOp], None]) -> None:
    """Makes the program of `record` again from its logical IR, as its passes did.

    Args:
        record: It has logical IR.
        look: Called after each pass with its name and the program as it is then, which it must not change.

    Raises:
        PolicyError: a pass of the caller is not installed here.
        ArtifactError: the passes of this installation make another program.
    """
    assert record.logical is not None
    context = make_context()
    source = Source(parse_module(record.logical, f"<{record.name}>", context=context), record.name)

    def apply(module_pass: ModulePass) -> None:
        apply_pass(module_pass, context, source.module)
        look(module_pass.name, source.module)

    extensions = record.passes or from_texts(record.options.passes)
    drive(passes_of(source, record.options, extensions), source.module, apply)
    if print_module(source.module) != record.emit:
        made_by = record.toolchain.get("aicf", "another version")
        raise ArtifactError(
            f"this AICF makes another program from the logical IR than the one here (made by aicf {made_by}); "
            "compile the model again to see its stages"
        )


def rebuild_native(emit: str, path: str) -> tuple[ModulePlan, tuple[Decision, ...], NativeCode]:
    """Plan, ledger and code for this machine from final emit IR, whatever machine it was compiled for.

    Raises:
        ArtifactError: the text is no final program.
    """
    with collector_paused():
        module = parse_module(emit, f"{path}:emit")
        for module_pass in emit_passes():
            apply_pass(module_pass, make_context(), module)
        return read_module(module), read_decisions(module), build_native(module)
