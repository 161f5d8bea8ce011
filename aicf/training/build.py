"""`train_step`: a model, a loss and an optimizer to a compiled training step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiler import check_options, checked_budget
from aicf.compilation.compiling import compile_source, logical_text, resolve_options
from aicf.compilation.extensions import Extension, Passes, flattened, source_stamp
from aicf.compilation.record import Options, Trained
from aicf.compilation.sources import Dims, Model, Policy, Source, Tuning, dims_text, policy_text, tuning_text
from aicf.compilation.weight_arrays import Weights, read_weights
from aicf.engines.report import Report
from aicf.errors import ArtifactError, InvalidIR, PolicyError, quoted
from aicf.frontends.text import verify_module
from aicf.inference.cache import ProgramCache
from aicf.inference.packing import ModelWeights
from aicf.runtime.tensors import Array
from aicf.support.arguments import flag_from, path_from
from aicf.support.whole_numbers import is_whole
from aicf.training.batches import prediction_of, whole_shape
from aicf.training.forward import Forward, read_forward
from aicf.training.initial import first_values
from aicf.training.losses import LossLike, resolve_loss
from aicf.training.optimizers import Optimizer, check_optimizer
from aicf.training.schedules import Plateau, resolve_schedule
from aicf.training.step import TrainStep
from aicf.training.step_graph import Recipe, trained_names, write_step

_PAST_SEEDS = (1 << 63) - 1

LOGGER = logging.getLogger("aicf.training")
_MOST_READERS = 4
"""Nodes that a warning names."""


def train_step(
    model: Model,
    loss: LossLike,
    optimizer: Optimizer,
    *,
    weights: Weights | None = None,
    target: str | None = None,
    frozen: Sequence[str] = (),
    untie: bool | Sequence[str] | None = None,
    clip_norm: float | None = None,
    micro_batches: int = 1,
    seed: int = 0,
    dims: Dims | None = None,
    policy: Policy | None = None,
    tuning: Tuning | None = None,
    threads: int = 1,
    meta: Literal["device", "host"] | None = None,
    memory_budget: int = 0,
    check_finite: bool = False,
    strict: bool = False,
    passes: Passes = (),
    cache_dir: str | Path | None = None,
) -> TrainStep:
    """Compiles the training step of a model.

    Args:
        model: What `aicf.compile` takes, logical IR of one function or an ONNX model, whose float initializers of rank
            1 or more are its parameters. With a loss it has one output, the prediction.
        loss: A loss of `aicf.losses` or its name (`cross_entropy`, `mse`, `huber`, `bce_with_logits`), which adds the
            input `y`; None if the model computes it, as its output `loss`.
        optimizer: One of `aicf.optimizers`, with its learning rate or schedule.
        weights: Every parameter and state of the model; by default they begin as `aicf.training.initial_weights` says.
            Metas may be left out, and what an ONNX model brings itself.
        frozen: Names or patterns (`encoder.*`) of parameters that stay as they are.
        untie: Initializers of an ONNX model, by names or patterns, of which each reading node trains a copy of its own;
            True for all, False for none. None trains them as they are read, and warns of those that several nodes read:
            exporters merge weights that begin with equal values.
        clip_norm: The gradients together are made no longer than this (PyTorch's `clip_grad_norm_`).
        micro_batches: The batch is taken in that many parts, whose gradients are averaged (of a loss that is a sum,
            added up). The sizes of the model are those of one part: dimension 0 of every input is that much larger.
        seed: Of the first weights, and of the model's meta tensor `seed`.
        target, dims, policy, tuning, threads, meta, memory_budget: As of `aicf.compile`; several sizes share one state,
            and a dimension of an ONNX model has one.
        passes: As of `aicf.compile`; at `model` the program is the whole step.
        check_finite: A step whose loss or gradients are not all finite changes nothing, nor does any after it; its
            number is `TrainStep.bad_step`.
        strict: Whether an ONNX model whose `value_info` or outputs declare what is not so is refused. If not, what its
            nodes compute holds, and the logger `aicf.training` warns.
        cache_dir: Folder of compiled programs, shared by all processes and sessions that name it: a step that was
            compiled before is loaded. None keeps none.

    Raises:
        InvalidIR: the loss or the optimizer is none; the loss is not one number, does not depend on a parameter that
            is not frozen, or depends on it only through ops that pass no derivative back.
        InputMismatch: weights are missing, too many, or of another shape or dtype.
        Others as `aicf.compile`.
    """
    check_optimizer(optimizer)
    if not is_whole(seed, least=-_PAST_SEEDS) or seed > _PAST_SEEDS:
        raise InvalidIR(f"seed is {quoted(seed)}; give a whole number")
    sizes = dims_text(dims)
    recipe = Recipe(resolve_loss(loss), optimizer, frozen, clip_norm, micro_batches)
    bind = micro_batches > 1
    is_strict = flag_from(strict, PolicyError, "strict")
    forward = read_forward(model, sizes, bind=bind, untie=_patterns(untie), strict=is_strict)
    if untie is None:
        warn_of_ties(forward, trained_names(forward, frozen))
    program = write_step(forward, recipe)
    given = first_values(forward, seed, None if weights is None else read_weights(weights))
    own = flattened(passes)
    check_options(target, meta, None, check_finite)
    requested = Options(
        target or "",
        policy_text(policy),
        "" if forward.has_sizes else sizes,
        threads,
        tuning_text(tuning),
        meta or "",
        bool(check_finite),
        checked_budget(memory_budget),
        passes=tuple(each.text for each in own),
    )
    folder = None if cache_dir is None else path_from(cache_dir, ArtifactError, "cache_dir")
    source = Source(program.graph.module(), forward.name)
    executable = _compiled(source, {**program.start, **given}, requested, own, folder)
    ours = {argument.name for argument in forward.arguments}
    added = (*(name for name in program.start if name not in ours), *sorted(forward.drawing))
    schedule = resolve_schedule(optimizer.lr)
    rule = schedule.rule() if isinstance(schedule, Plateau) else None
    trained = Trained(ops_of(forward, recipe), added, _logits(forward, recipe), rule)
    executable.record = replace(executable.record, trained=trained)
    return TrainStep(executable)


def _logits(forward: Forward, recipe: Recipe) -> tuple[int | str, ...]:
    """See `Trained.logits`."""
    if recipe.loss is None or not recipe.loss.has_classes:
        return ()
    sizes = whole_shape(prediction_of(forward, recipe.loss), recipe.micro_batches)
    return sizes if len(sizes) > 2 else ()


def _patterns(untie: bool | Sequence[str] | None) -> Sequence[str]:
    """Raises InvalidIR for what is neither a truth value nor a list of names."""
    given: object = untie
    if given is None or isinstance(given, bool):
        return ("*",) if given else ()
    names = cast("Sequence[object]", given) if isinstance(given, list | tuple | set | frozenset) else (None,)
    patterns = tuple(name for name in names if isinstance(name, str))
    if len(patterns) < len(names):
        like = f"[{quoted(given)}]" if isinstance(given, str) else "['*.norm*.weight']"
        raise InvalidIR(
            f"untie is {quoted(given)}; it is a list of names or patterns, as in {like}, True or False"
        )
    return patterns


def warn_of_ties(forward: Forward, trained: Sequence[str]) -> None:
    """Says which initializers are one parameter of several nodes."""
    for name in trained:
        readers = forward.readers.get(name, ())
        if len(readers) > 1:
            shown = ", ".join(map(repr, readers[:_MOST_READERS]))
            more = f" and {len(readers) - _MOST_READERS} more" if len(readers) > _MOST_READERS else ""
            LOGGER.warning(
                "%s: '%s' is trained as one parameter of %d nodes (%s%s); if an exporter merged equal weights, give "
                "untie=True or untie=['%s'], else untie=False",
                forward.name,
                name,
                len(readers),
                shown,
                more,
                name,
            )


def _compiled(
    source: Source,
    weights: Mapping[str, Array],
    requested: Options,
    passes: Sequence[Extension],
    folder: Path | None,
) -> CompiledModel:
    """The executable of a step, out of the cache folder if there is one and it has it."""
    shared = ModelWeights()
    verify_module(source.module)
    if folder is None:
        return compile_source(source, weights, requested, shared, passes)
    report = Report()
    report.name = source.name
    options, text = resolve_options(source, requested), logical_text(source.module)
    executable, loaded, kept = ProgramCache(folder, report).load_or_compile(
        f"@{source.name}",
        text,
        options,
        weights,
        shared,
        lambda: compile_source(source, weights, options, shared, passes),
        source_stamp(passes),
    )
    LOGGER.info("%s: %s", source.name, kept if loaded is None else f"loaded {loaded}")
    return executable


def ops_of(forward: Forward, recipe: Recipe) -> tuple[str, ...]:
    """What the model computes and how it is trained, op by op: what a checkpoint is compared by."""
    model = [op.name.removeprefix("logical.") for op in forward.ops()]
    kinds = [type(each).__name__ for each in (recipe.loss, recipe.optimizer) if each is not None]
    return (*model, *kinds)
