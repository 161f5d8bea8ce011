"""`compile`: a model to an executable, by the passes of the pipeline and the code generator of the target.

It reads the model and the options; `compiling` runs the passes and hands the final program to the backend. Neither
decides anything. Loading what they made is in `compiled`, which imports none of this.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiling import compile_own
from aicf.compilation.extensions import Passes, flattened
from aicf.compilation.record import Options
from aicf.compilation.sources import (
    Dims,
    Model,
    Policy,
    Tuning,
    Values,
    dims_text,
    policy_text,
    read_weighted,
    tuning_text,
    values_text,
)
from aicf.compilation.weight_arrays import Weights, read_weights
from aicf.errors import PolicyError, quoted
from aicf.frontends.text import make_context
from aicf.inspection.explain import warning_of, wrong_declarations
from aicf.passes.pipelines.collector import collector_paused
from aicf.policies.policy import resolve_policy
from aicf.support.arguments import flag_from, text_from
from aicf.support.progress import progress
from aicf.support.whole_numbers import is_whole

if TYPE_CHECKING:
    from aicf.calibration.samples import Samples

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
    calibration: Samples | None = None,
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
        calibration: Sample inputs, see `aicf.calibrate`, whose policy is then followed. The section `precision` of
            `policy` says what the model becomes, and may say what is to be kept: `{to: int8, keep: {metric: top1, loss:
            0.5 %}}`.

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
    if calibration is not None:
        from aicf.calibration import calibrate

        _check_lowers(policy)
        policy = calibrate(
            model,
            calibration,
            weights=weights,
            target=target,
            dims=dims,
            values=values,
            policy=policy,
            tuning=tuning,
            threads=threads,
            strict=strict,
            passes=passes,
            training=training,
        ).policy
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
        compiled = compile_own(source, given, requested, own, name or source.name, step)
    if wrong := wrong_declarations(compiled.decisions):
        _LOGGER.warning("%s: %s", compiled.name, warning_of(wrong))
    return compiled


def _check_lowers(policy: Policy | None) -> None:
    """Raises PolicyError if samples are given and nothing is to be lowered."""
    text = policy_text(policy)
    if not text or not resolve_policy(text).precision.changes:
        raise PolicyError(
            "calibration: the policy lowers nothing; give policy={'precision': {'to': 'int8'}}, or leave it out"
        )


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
