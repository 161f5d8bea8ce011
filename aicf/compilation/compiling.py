"""From a model that was read, and options, to an executable: the passes of the pipeline and the code generator.

`compiler` and whoever compiles one model several times, as sessions and calibration do, end here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf.backends.base import MachineBackend
from aicf.backends.registry import get_backend, resolve_target, target_spec
from aicf.compilation.compiled import CompiledModel, SharedWeights
from aicf.compilation.extensions import Extension
from aicf.compilation.record import Options, Record
from aicf.compilation.sources import Source
from aicf.compilation.stages import build_native, passes_of, print_module, read_decisions
from aicf.dialects.emit import find_ledger
from aicf.errors import InvalidIR, PolicyError, UnsupportedOp
from aicf.frontends.text import make_context, verify_module
from aicf.passes.kernels.select_kernels import TUNING_KEY
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.to_evaluation import drawing_metas, trains
from aicf.passes.pipelines.collector import collector_paused
from aicf.passes.pipelines.driver import drive
from aicf.passes.pipelines.text import apply_pass
from aicf.passes.support.identity import op_id, position_of
from aicf.passes.support.interface import functions
from aicf.policies.tuning_table import Header, remeasure, resolve_tuning
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.plan_from_ir import TARGET, read_module, target_of
from aicf.runtime.tensors import Array
from aicf.runtime.weights import bind_weights
from aicf.saving.artifact import toolchain_lock
from aicf.support.progress import Step, progress

DEFAULT_TARGET = "cpu"


def compile_source(
    source: Source,
    weights: Mapping[str, Array],
    requested: Options,
    shared: SharedWeights,
    passes: Sequence[Extension] = (),
) -> CompiledModel:
    """Compiles a model that was read, and leaves it as it is. Raises as `aicf.compile`.

    Args:
        passes: Those that `requested` names.
        shared: What other executables of the model have already.
    """
    with progress("compiling") as step, collector_paused():
        own = replace(source, module=source.module.clone())
        return compile_own(own, weights, requested, passes, source.name, step, shared)


def compile_own(
    source: Source,
    weights: Mapping[str, Array],
    requested: Options,
    passes: Sequence[Extension],
    name: str,
    step: Step,
    shared: SharedWeights | None = None,
) -> CompiledModel:
    """Compiles a model that nobody else reads: its module becomes the program. Raises as `aicf.compile`."""
    context = make_context()
    logical = None if source.is_emit else _with_ids(source.module, context)
    locations = _locations(source.module)
    unread = set[str]() if requested.training else _unread(source.module)
    given = {name: array for name, array in weights.items() if name not in unread}
    options = decide(source, requested, passes, context, step)
    plan = read_module(source.module)
    arrays = bind_weights(plan.weights, _weights_of(source, plan, given))
    step("generating code")
    native = build_native(source.module)
    record = Record(
        name,
        _with_tuning_read(options, source.module),
        logical,
        print_module(source.module),
        read_decisions(source.module),
        toolchain_lock(),
        locations,
        passes=tuple(passes),
    )
    step("preparing weights")
    if shared is None:
        return CompiledModel(record, plan, native, arrays)
    return CompiledModel(record, plan, native, arrays, shared.packed(plan), shared.on_device)


def decide(
    source: Source, requested: Options, passes: Sequence[Extension], context: Context, step: Step
) -> Options:
    """Runs all passes, after which the module is the final program. The options, with the target resolved.

    Raises as `aicf.compile`.
    """
    options = resolve_options(source, requested)
    try:
        _run(passes_of(source, options, passes), source.module, context, step)
    except (InvalidIR, UnsupportedOp) as error:
        if source.path is not None and error.location is None:
            error.locate(source.path)
        raise
    verify_module(source.module)
    return options


def check_strict(source: Source, strict: bool) -> None:
    """Raises PolicyError if the option `strict` is given and has no effect on the model."""
    if strict and not source.is_onnx:
        raise PolicyError("strict: only ONNX models declare types that follow anyway; leave the option out")


def _unread(module: ModuleOp) -> set[str]:
    """Metas that a model has no use for in evaluation. They may be given all the same, as a training step has them."""
    models = [function for function in functions(module) if not trains(function)]
    return {name for function in models for name in drawing_metas(function)}


def _weights_of(source: Source, plan: ModulePlan, given: Mapping[str, Array]) -> dict[str, Array]:
    """What was given, and for the rest what came with the model and the program reads."""
    read = {bind.name for bind in plan.weights}
    return {**{name: array for name, array in source.weights.items() if name in read}, **given}


def resolve_options(source: Source, requested: Options) -> Options:
    """What was asked for, with the target resolved; empty if the program names it itself.

    Raises PolicyError for a target that is not legal, and for options that an emit program cannot follow.
    """
    own = TARGET in source.module.attributes
    check_strict(source, requested.strict)
    if source.is_emit:
        _reject_options(source, own, requested)
    if source.has_groups and requested.dims:
        raise PolicyError("dims: a program with groups is lowered, its sizes are fixed; leave the option out")
    if source.has_groups and requested.training:
        raise PolicyError(
            "training: a program with groups is lowered, its mode is fixed; leave the option out"
        )
    if not requested.target and own:
        return replace(requested, threads=_own_threads(source.module, requested.threads))
    target = requested.target or DEFAULT_TARGET
    resolved = resolve_target(target, requested.threads)
    if requested.tuning and ":" not in target:
        _check_machine(target, resolve_tuning(requested.tuning).header)
    return replace(requested, target=target_spec(resolved))


def _check_machine(backend: str, header: Header) -> None:
    """Raises PolicyError if a program for this machine is given what was measured on another one of its level."""
    executor = get_backend(backend)
    if not isinstance(executor, MachineBackend) or header.backend != backend:
        return
    if header.device != (machine := executor.machine()):
        raise PolicyError(
            f"tuning: the table was measured on {header.device}, this machine is {machine}; {remeasure(header)}, or "
            f"name the level, --target {backend}:{header.arch}, to compile for that machine"
        )


def _with_tuning_read(options: Options, module: ModuleOp) -> Options:
    """The options with only those works of the tuning table that a decision read: the rest changes nothing."""
    if not options.tuning:
        return options
    ledger = find_ledger(module)
    costs = [] if ledger is None else [op.cost.data.get(TUNING_KEY) for op in ledger.decisions]
    read = {key.data for key in costs if isinstance(key, StringAttr)}
    return replace(options, tuning=resolve_tuning(options.tuning).only(read).to_line())


def _own_threads(module: ModuleOp, threads: int) -> int:
    own = target_of(module).threads
    if threads not in (1, own):
        raise PolicyError(f"threads={threads}, but the program is for {own}; give the target too")
    return own


def _reject_options(source: Source, own: bool, requested: Options) -> None:
    """What an emit program states is decided: options that could only change it are not ignored.

    One that is not final may have open instructions; it takes a policy and a tuning table for them, and a target if it
    names none.
    """
    followed = {"threads", "strict", "passes"}  # as far as they can be, which is checked elsewhere
    if source.is_open:
        followed |= {"policy", "tuning"} if own else {"policy", "tuning", "target"}
    if requested.saved_share == 1:
        followed |= {"saved_share"}
    if wrong := [option for option, value in vars(requested).items() if value and option not in followed]:
        raise PolicyError(
            f"{wrong[0]}= has no effect on an emit program, which is decided; "
            "run raise-emit to get its logical IR, and compile that"
        )
    if not own and not requested.target:
        raise PolicyError(
            'the emit program names no target; write aicf.target = #emit.target<"cpu", ...> on it'
        )


def logical_text(module: ModuleOp) -> str:
    """The text of a module as executables keep it, see `Record.logical`. The module is left as it is."""
    return _with_ids(module.clone(), make_context())


def _with_ids(module: ModuleOp, context: Context) -> str:
    """The program as it was given, with the ids that the ledger speaks of."""
    AssignIdsPass().apply(context, module)
    return print_module(module)


def _locations(module: ModuleOp) -> dict[str, str]:
    """Where the ops of the model are written, by id."""
    ops = ((op_id(op), position_of(op)) for op in module.walk())
    return {id_: location for id_, location in ops if id_ is not None and location is not None}


def _run(passes: Sequence[ModulePass], module: ModuleOp, context: Context, step: Step) -> None:
    def apply(module_pass: ModulePass) -> None:
        step(module_pass.name)
        apply_pass(module_pass, context, module)

    drive(passes, module, apply)
