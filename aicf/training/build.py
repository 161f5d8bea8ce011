"""`train_step`: a model, a loss and an optimizer to a compiled training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from aicf.compiled import Trained
from aicf.compiler import compile
from aicf.errors import InvalidIR, quoted
from aicf.sources import Dims, Model, Policy, Tuning, dims_text
from aicf.training.forward import Forward, read_forward
from aicf.training.initial import first_values
from aicf.training.losses import LossLike, resolve_loss
from aicf.training.optimizers import Optimizer, check_optimizer
from aicf.training.step import TrainStep
from aicf.training.step_graph import Recipe, write_step
from aicf.weight_arrays import Weights, read_weights
from aicf.whole_numbers import is_whole

_PAST_SEEDS = (1 << 63) - 1


def train_step(
    model: Model,
    loss: LossLike,
    optimizer: Optimizer,
    *,
    weights: Weights | None = None,
    target: str | None = None,
    frozen: Sequence[str] = (),
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
        clip_norm: The gradients together are made no longer than this (PyTorch's `clip_grad_norm_`).
        micro_batches: The batch is taken in that many parts, whose gradients are averaged (of a loss that is a sum,
            added up). The sizes of the model are those of one part: dimension 0 of every input is that much larger.
        seed: Of the first weights, and of the model's meta tensor `seed`.
        target, dims, policy, tuning, threads, meta, memory_budget: As of `aicf.compile`; several sizes share one state,
            and a dimension of an ONNX model has one.
        check_finite: A step whose loss or gradients are not all finite changes nothing, nor does any after it; its
            number is `TrainStep.bad_step`.

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
    forward = read_forward(model, sizes, bind=micro_batches > 1)
    program = write_step(forward, recipe)
    given = first_values(forward, seed, None if weights is None else read_weights(weights))
    executable = compile(
        program.graph,
        {**program.start, **given},
        target,
        dims=None if forward.has_sizes else sizes,
        policy=policy,
        tuning=tuning,
        threads=threads,
        meta=meta,
        memory_budget=memory_budget,
        check_finite=check_finite,
        name=forward.name,
    )
    ours = {argument.name for argument in forward.arguments}
    added = tuple(name for name in program.start if name not in ours)
    executable.record = replace(executable.record, trained=Trained(ops_of(forward, recipe), added))
    return TrainStep(executable)


def ops_of(forward: Forward, recipe: Recipe) -> tuple[str, ...]:
    """What the model computes and how it is trained, op by op: what a checkpoint is compared by."""
    model = [op.name.removeprefix("logical.") for op in forward.ops()]
    kinds = [type(each).__name__ for each in (recipe.loss, recipe.optimizer) if each is not None]
    return (*model, *kinds)
