"""`compile`: a model to an executable, by the passes of the pipeline and the code generator of the target.

It reads the model, resolves what "this machine" means once, runs the passes and hands the final program to the backend.
It decides nothing itself. Loading what it made is in `compiled`, which imports none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf.arguments import flag_from, text_from
from aicf.artifact import toolchain_lock
from aicf.backends.base import MachineBackend
from aicf.backends.registry import get_backend, resolve_target, target_spec
from aicf.compiled import CompiledModel, Options, Record, SharedWeights
from aicf.dialects.emit import find_ledger
from aicf.errors import InvalidIR, PolicyError, UnsupportedOp, quoted
from aicf.explain import warning_of, wrong_declarations
from aicf.extensions import Extension, Passes, flattened
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
from aicf.progress import Step, progress
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.plan_from_ir import TARGET, read_module, target_of
from aicf.runtime.tensors import Array
from aicf.runtime.weights import bind_weights
from aicf.sources import (
    Dims,
    Model,
    Policy,
    Source,
    Tuning,
    Values,
    dims_text,
    policy_text,
    read_weighted,
    tuning_text,
    values_text,
)
from aicf.stages import build_native, passes_of, print_module, read_decisions
from aicf.weight_arrays import Weights, read_weights
from aicf.whole_numbers import is_whole

DEFAULT_TARGET = "cpu"
_LOGGER = logging.getLogger("aicf.compiler")


def compile(
    model: Model,
    weights: Weights | None = None,
    target: str | None = None,
    *,
    dims: Dims | None = None,
    values: Values | None = None,
    policy: Policy | None = None,
    tuning: Tuning | None = None,
    threads: int = 1,
    meta: Literal["device", "host"] | None = None,
    check_finite: bool = False,
    memory_budget: int = 0,
    strict: bool = False,
    passes: Passes = (),
    training: bool = False,
    name: str | None = None,
) -> CompiledModel:
    """Compiles a model.

    Args:
        model: Path of an `.mlir` file, program text, a module (left as it is) or a builder graph; logical IR, or emit
            IR of any phase. Or an ONNX model: the path of an `.onnx` file, its bytes, or an `onnx.ModelProto`. Or what
            `torch.export.export` gives, or the path of a `.pt2` file.
        weights: Path of a `.safetensors` file, or arrays by name: every param, state and meta of the program. An ONNX
            model brings its own, of which these take the place.
        target: `cpu`, `cpu:x86-64-v3`, `reference`, ...; a missing level is this machine's. None takes the target that
            the program names, else `cpu` (an emit program must have one of the two).
        dims: Sizes of the symbolic dimensions, `"N=1,540"` or `{"N": [1, 540]}`; one program is made for each.
        values: Elements of inputs of an ONNX model that shapes of it follow from, `{"shape": [2, 3]}`: such an input is
            fixed, and no input of the executable.
        policy: `"auto"`, the path of a JSON or YAML file, inline JSON, a dict, or a `Policy`, `KernelPolicy`,
            `ExecutionPolicy` or `PrecisionPolicy`.
        tuning: What `aicf tune` measured for the target: the path of its file, inline JSON or a `TuningTable`. None
            chooses kernels by predicted times.
        threads: Threads that run the program together.
        meta: Who computes the counters, rates and corrections of a training step: the program (`device`, the default),
            or the executable before each run (`host`). Both give the same numbers.
        check_finite: Whether a training step whose loss or gradients are not all finite changes nothing; its number is
            `Executable.bad_step`.
        memory_budget: Bytes that the arena of a training step may take; where it takes more, what the backward part
            reads of the forward part is computed again instead of kept. 0 sets no bound.
        strict: Whether an ONNX model whose `value_info` or outputs declare what is not so is refused. If not, what its
            nodes compute holds, the logger `aicf.compiler` warns, and `CompiledModel.warnings` has each.
        passes: The caller's passes at extension points of the pipeline, `[aicf.at("lowered", MyPass())]`. The module
            is verified after each.
        training: Whether dropouts drop elements, and batch norms of ONNX models in training mode take the statistics of
            the batch, as in `model.train()` of PyTorch. By default they do not, as in `model.eval()`. A training step
            is one in any case.
        name: Name of the model; its file's or function's if None.

    Raises:
        InvalidIR: the program does not parse or verify, or declares with `strict` what is not so.
        UnsupportedOp: no kernel of the target runs an op.
        PolicyError: target, dims, policy, threads or passes are not legal, or the tuning table is for another target.
        PlanError, CaptureError: an emit program is undecided or contradictory, or a training step does not fit into its
            memory budget.
        InputMismatch: weights are missing, too many, or of another shape or dtype.
    """
    budget = checked_budget(memory_budget)
    check_options(target, meta, name, check_finite)
    strict, training = flag_from(strict, PolicyError, "strict"), flag_from(training, PolicyError, "training")
    texts = policy_text(policy), dims_text(dims), threads, tuning_text(tuning)
    bound = values_text(values)
    own = flattened(passes)
    named = tuple(each.text for each in own)
    modes = meta or "", bool(check_finite), budget, bound, strict, named, training
    requested = Options(target or "", *texts, *modes)
    with progress("compiling") as step, collector_paused():
        step("reading")
        source, given = read_weighted(model, read_weights(weights), make_context(), requested.dims)
        if source.has_sizes:
            requested = replace(requested, dims="")
        compiled = _compiled(source, given, requested, own, name or source.name, step)
    if wrong := wrong_declarations(compiled.decisions):
        _LOGGER.warning("%s: %s", compiled.name, warning_of(wrong))
    return compiled


def check_strict(source: Source, strict: bool) -> None:
    """Raises PolicyError if the option `strict` is given and has no effect on the model."""
    if strict and not source.is_onnx:
        raise PolicyError("strict: only ONNX models declare types that follow anyway; leave the option out")


def checked_budget(memory_budget: int) -> int:
    """The option `memory_budget`. Raises PolicyError for what is no number of bytes."""
    if not is_whole(memory_budget, least=0):
        raise PolicyError(
            f"memory_budget: {quoted(memory_budget)} is no number of bytes; give 0 or more, whole"
        )
    return int(memory_budget)


def check_options(target: object, meta: object, name: object, check_finite: object) -> None:
    """Raises PolicyError for options of another type than `compile` says."""
    for option, given in (("target", target), ("meta", meta), ("name", name)):
        if given is not None:
            text_from(given, PolicyError, option)
    flag_from(check_finite, PolicyError, "check_finite")


def compile_source(
    source: Source,
    weights: Mapping[str, Array],
    requested: Options,
    shared: SharedWeights,
    passes: Sequence[Extension] = (),
) -> CompiledModel:
    """Compiles a model that was read, and leaves it as it is. Raises as `compile`.

    Args:
        passes: Those that `requested` names.
        shared: What other executables of the model have already.
    """
    with progress("compiling") as step, collector_paused():
        own = replace(source, module=source.module.clone())
        return _compiled(own, weights, requested, passes, source.name, step, shared)


def _compiled(
    source: Source,
    weights: Mapping[str, Array],
    requested: Options,
    passes: Sequence[Extension],
    name: str,
    step: Step,
    shared: SharedWeights | None = None,
) -> CompiledModel:
    context = make_context()
    options = resolve_options(source, requested)
    logical = None if source.is_emit else _with_ids(source.module, context)
    locations = _locations(source.module)
    unread = set[str]() if options.training else _unread(source.module)
    given = {name: array for name, array in weights.items() if name not in unread}
    try:
        _run(passes_of(source, options, passes), source.module, context, step)
    except (InvalidIR, UnsupportedOp) as error:
        if source.path is not None and error.location is None:
            error.locate(source.path)
        raise
    verify_module(source.module)
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
