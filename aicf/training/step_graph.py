"""Writes a training step as one logical program: the model, its loss, the gradients, the optimizer, the counter.

Nothing is hidden: what a step does stands in the text, and `differentiate` and `lower-optimizers` make arithmetic of
it.

    inputs, target, params, states, meta -> loss, and the new value of each param, state and meta
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

import numpy as np

from aicf.dialects.step_names import OWN, RATE, STEP, TARGET
from aicf.dialects.types import TensorInfo, element_named
from aicf.errors import InvalidIR, quoted
from aicf.frontends.builder import Graph, Value
from aicf.runtime.plateau import DTYPES
from aicf.runtime.tensors import Array, numpy_dtype
from aicf.support.whole_numbers import is_whole
from aicf.training.batches import LOSS, Batches, prediction_of, whole_shape
from aicf.training.clipping import clip
from aicf.training.forward import Argument, Forward, shape_of
from aicf.training.history import write_ring
from aicf.training.losses import Loss
from aicf.training.optimizers import Operands, Optimizer
from aicf.training.schedules import InProgram, Plateau, Schedule, resolve_schedule


@dataclass(frozen=True)
class Recipe:
    """What makes a step of a model.

    Args:
        loss: None if the model has an output `loss`.
        frozen: Names or patterns (`encoder.*`) of parameters that stay as they are.
        clip_norm: The gradients together have at most this norm; None leaves them.
        micro_batches: Parts of a batch; the gradient is the mean of theirs, or the sum if the loss is a sum.

    Raises:
        InvalidIR: the micro-batches are no whole number of at least 1.
    """

    loss: Loss | None
    optimizer: Optimizer
    frozen: Sequence[str] = ()
    clip_norm: float | None = None
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if not is_whole(self.micro_batches, least=1):
            raise InvalidIR(f"micro_batches is {quoted(self.micro_batches)}; it is a whole number, 1 or more")
        given: object = self.frozen
        names = (
            cast("Sequence[object]", given) if isinstance(given, list | tuple | set | frozenset) else [None]
        )
        if not all(isinstance(name, str) for name in names):
            raise InvalidIR(f"frozen is {quoted(given)}; give a list of names or patterns")


@dataclass(frozen=True)
class StepProgram:
    """A step and what it begins with.

    Args:
        graph: The program.
        start: First values of what the step adds to the model: optimizer states, counter, ring of losses, rate.
    """

    graph: Graph
    start: Mapping[str, Array]


def write_step(forward: Forward, recipe: Recipe) -> StepProgram:
    """The step of a model.

    Raises:
        InvalidIR: options do not fit the model or each other, or the loss is not one number.
    """
    writer = _Writer(forward, recipe)
    batches = Batches(writer.graph, forward, recipe.loss, recipe.micro_batches, writer.arguments())
    trained = trained_names(forward, recipe.frozen)
    parameters = {name: batches.values[name] for name in trained}
    loss, gradients = batches.loss_and_gradients(trained)
    writer.graph.output(loss, LOSS)
    writer.update(parameters, gradients)
    writer.keep_model_updates(batches.values)
    writer.count(loss)
    return StepProgram(writer.graph, writer.start)


def trained_names(forward: Forward, frozen: Sequence[str]) -> tuple[str, ...]:
    """The parameters that are not fixed, and that no pattern of `frozen` names.

    Raises:
        InvalidIR: a pattern names none, or nothing is left.
    """
    names = [argument.name for argument in forward.with_role("param")]
    for pattern in frozen:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidIR(
                f"frozen: '{pattern}' names no parameter; the model has {', '.join(names) or 'none'}"
            )
    trained = tuple(
        name
        for name in names
        if name not in forward.fixed and not any(fnmatchcase(name, pattern) for pattern in frozen)
    )
    if not trained:
        raise InvalidIR("there is nothing to train: the model has no parameter that is not frozen")
    return trained


def _check_names(forward: Forward, recipe: Recipe) -> None:
    """Raises InvalidIR for a tensor of the model with a name that the step needs for another one."""
    step = next((argument for argument in forward.arguments if argument.name == STEP), None)
    if step is not None and (step.role != "meta" or str(step.info) != "i64"):
        raise InvalidIR(
            f"'{STEP}' has the role {step.role} and the type {step.info} in '{forward.name}'; a training step counts "
            "in a meta i64 of that name; give it another one"
        )
    if any(result.is_update and result.name == STEP for result in forward.results):
        raise InvalidIR(
            f"'{forward.name}' updates '{STEP}'; a training step counts by itself; leave the update out"
        )
    taken = _names_of_step(forward, recipe)
    for argument in forward.arguments:
        if argument.name.startswith(OWN):
            raise InvalidIR(
                f"'{argument.name}' ({argument.role} of '{forward.name}'): names that begin with '{OWN}' are those of "
                "the training step; give it another one"
            )
        if argument.name in taken:
            raise InvalidIR(
                f"'{argument.name}' ({argument.role} of '{forward.name}') is the name of {taken[argument.name]} in a "
                "training step; give it another one"
            )


def _names_of_step(forward: Forward, recipe: Recipe) -> dict[str, str]:
    """What the step adds to the model, by name."""
    states = {
        f"{name}.{state}": f"a state of '{name}'"
        for name in trained_names(forward, recipe.frozen)
        for state in recipe.optimizer.states
    }
    taken = {**states, LOSS: "the loss"}
    if recipe.loss is not None:
        taken[TARGET] = "the target"
    schedule = resolve_schedule(recipe.optimizer.lr)
    if not isinstance(schedule, InProgram):
        taken[RATE] = "the learning rate"
    if isinstance(schedule, Plateau):
        taken.update(dict.fromkeys(DTYPES, "the plateau schedule"))
    return taken


class _Writer:
    """Writes the parts of a step that stand once, however many micro-batches there are.

    Args:
        forward, recipe: What is trained, and how.
    """

    def __init__(self, forward: Forward, recipe: Recipe) -> None:
        self.graph = Graph(f"{forward.name}_step")
        self.start: dict[str, Array] = {}
        self._forward = forward
        self._recipe = recipe
        self._old: dict[str, Value] = {}
        self._rates: dict[tuple[str, float], Value] = {}
        self._plateau: dict[str, Value] = {}

    # Arguments

    def arguments(self) -> dict[str, Value]:
        """The arguments of the model by name, the target and the counter."""
        forward, recipe = self._forward, self._recipe
        _check_names(forward, recipe)
        prediction = prediction_of(forward, recipe.loss)
        found = {a.name: self._argument(a) for a in forward.arguments if a.name != STEP}
        if recipe.loss is not None:
            found[TARGET] = self._input(TARGET, recipe.loss.target(prediction))
        found[STEP] = self.graph.meta(STEP, (), "i64")
        self.start[STEP] = np.zeros((), np.int64)
        self._step = found[STEP]
        self._now = self.graph.step_inc(self._step, name="step.now")
        self._old = dict(found)
        return found

    def _argument(self, argument: Argument) -> Value:
        name, info = argument.name, argument.info
        if argument.role == "input":
            return self._input(name, info)
        make = {"param": self.graph.param, "state": self.graph.state, "meta": self.graph.meta}[argument.role]
        return make(name, shape_of(info), info.element.name)

    def _input(self, name: str, info: TensorInfo) -> Value:
        return self.graph.input(name, whole_shape(info, self._recipe.micro_batches), info.element.name)

    def _state(self, name: str, like: Value) -> Value:
        """A state of the optimizer; it begins with zeros."""
        self.start[name] = np.zeros(like.info.shape, numpy_dtype(like.dtype))
        return self.graph.state(name, like.shape, like.dtype)

    # Updates

    def update(self, parameters: Mapping[str, Value], gradients: Mapping[str, Value]) -> None:
        """Gives every parameter and its states their new values."""
        graph = self.graph
        kind = type(self._recipe.optimizer).__name__.lower()
        limit = self._recipe.clip_norm
        clipped = gradients if limit is None else clip(graph, gradients, limit)
        grouped = self._recipe.optimizer.grouped({name: value.rank for name, value in parameters.items()})
        for name, parameter in parameters.items():
            optimizer, scale = grouped[name]
            states = [self._state(f"{name}.{state}", parameter) for state in optimizer.states]
            rate = self._rate(parameter.dtype, scale)
            operands = Operands(parameter, clipped[name], rate, self._now, states)
            new = optimizer.update(graph, operands, f"{name}.{kind}")
            for old, value in zip([parameter, *states], new, strict=True):
                graph.update(old, value)

    def _rate(self, dtype: str, scale: float = 1.0) -> Value:
        """The learning rate of a group in the type of a parameter."""
        if (dtype, scale) not in self._rates:
            schedule = resolve_schedule(self._recipe.optimizer.lr)
            if isinstance(schedule, Plateau):
                self._rates[dtype, scale] = self._plateau_rate(schedule, dtype, scale)
            elif isinstance(schedule, InProgram):
                scaled = schedule.scaled(scale)
                assert isinstance(scaled, InProgram)
                self._rates[dtype, scale] = scaled.rate(self.graph, self._now, dtype)
            elif scale != 1.0:
                self._rates[dtype, scale] = self.graph.mul(self._rate(dtype), scale)
            elif not self._rates:
                self._rates[dtype, scale] = self.graph.meta(RATE, (), dtype)
                self.start[RATE] = _first_rate(schedule, dtype)
            else:
                self._rates[dtype, scale] = self.graph.cast(next(iter(self._rates.values())), dtype)
        return self._rates[dtype, scale]

    def _plateau_rate(self, schedule: Plateau, dtype: str, scale: float) -> Value:
        """The rate of a plateau schedule, of which the program reads one meta and keeps the others."""
        if not self._plateau:
            _first_rate(schedule, dtype)
            start = schedule.rule().start(float(schedule.lr))
            self.start.update(start)
            self._plateau = {name: self.graph.meta(name, (), DTYPES[name]) for name in start}
        rate = self._plateau[RATE]
        scaled = rate if scale == 1.0 else self.graph.mul(rate, scale)
        return scaled if dtype == scaled.dtype else self.graph.cast(scaled, dtype)

    def keep_model_updates(self, values: Mapping[str, Value]) -> None:
        """What the model itself updates, such as running means, has the value that the last micro-batch gave it."""
        for result in self._forward.results:
            if result.is_update:
                self.graph.update(self._old[result.name], values[result.name])

    def count(self, loss: Value) -> None:
        """Keeps the loss for the history, and the number of the step."""
        is_narrow = loss.info.element.bytes < element_named("f32").bytes
        kept = self.graph.cast(loss, "f32", name="loss.wide") if is_narrow else loss
        self.start.update(write_ring(self.graph, self._now, kept))
        self.graph.update(self._step, self._now)


def _first_rate(schedule: Schedule, dtype: str) -> Array:
    """The rate that the host sets first, [].

    Raises:
        InvalidIR: it is not finite in the type of a parameter.
    """
    with np.errstate(over="ignore"):
        rate = np.asarray(schedule.lr, numpy_dtype(dtype))
    if not np.isfinite(rate):
        raise InvalidIR(f"{type(schedule).__name__}: lr is {schedule.lr}; it is finite in {dtype}")
    return rate
