"""Training steps without a network: gradients are inputs, and what an optimizer does to many tensors stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """A parameter.

    Args:
        shape: Its sizes.
        optimizer: Op and properties as text.
        states: PyTorch's names of its states.
        gradient: Type of the input that is the gradient, the parameter's if empty.
        transposed: Whether that input is the gradient with its two dims changed.
    """

    shape: tuple[int, ...]
    optimizer: str = "adam"
    states: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    gradient: str = ""
    transposed: bool = False


ADAM = Tensor((1,))
RATE = '{schedule = "cosine", base = 1.0e-2 : f64, warmup = 2 : i64, total = 9 : i64, final = 1.0e-3 : f64}'


@dataclass
class Program:
    """The text of a step that updates tensors `p0`, `p1`, ... by the inputs `g0`, `g1`, ..., and the counter `step`.

    With `history` element `step` of the state `losses`, of so many elements, becomes the input `loss`.
    """

    tensors: Sequence[Tensor]
    dtype: str = "f32"
    history: int = 0
    arguments: list[str] = field(default_factory=list[str])
    results: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    lines: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        """The module."""
        self._argument("step", "tensor<i64>", "meta")
        self._result("now", "tensor<i64>", "step")
        self.lines.append("%now = logical.step_inc %step : tensor<i64>")
        self.lines.append(f"%lr = logical.learning_rate %now {RATE} : tensor<i64> -> tensor<{self.dtype}>")
        for number, tensor in enumerate(self.tensors):
            self._update(number, tensor)
        if self.history:
            self._note_loss()
        types = ", ".join(f'{type_} {{logical.updates = "{name}"}}' for _, type_, name in self.results)
        body = "\n  ".join(self.lines)
        values, result_types = (", ".join(entry[index] for entry in self.results) for index in (0, 1))
        return (
            f"func.func @step({', '.join(self.arguments)}) -> ({types}) {{\n  {body}\n"
            f"  func.return {values} : {result_types}\n}}\n"
        )

    def _argument(self, name: str, type_: str, role: str) -> str:
        value = f"%{name.replace('.', '_')}"
        self.arguments.append(f'{value} : {type_} {{logical.name = "{name}", logical.role = "{role}"}}')
        return value

    def _result(self, value: str, type_: str, name: str) -> None:
        self.results.append((f"%{value}", type_, name))

    def _gradient(self, number: int, tensor: Tensor) -> str:
        """The gradient as the optimizer reads it."""
        shape, element = tensor.shape, tensor.gradient or self.dtype
        given = _type(tuple(reversed(shape)) if tensor.transposed else shape, element)
        value = self._argument(f"g{number}", given, "input")
        if tensor.transposed:
            turned = _type(shape, element)
            self.lines.append(
                f"%t{number} = logical.transpose {value} {{permutation = [1, 0]}} : {given} -> {turned}"
            )
            value = f"%t{number}"
        if tensor.gradient:
            wanted = _type(shape, self.dtype)
            self.lines.append(f"%c{number} = logical.cast {value} : {_type(shape, element)} -> {wanted}")
            value = f"%c{number}"
        return value

    def _update(self, number: int, tensor: Tensor) -> None:
        type_ = _type(tensor.shape, self.dtype)
        name = f"p{number}"
        parameter = self._argument(name, type_, "param")
        states = [self._argument(f"{name}.{state}", type_, "state") for state in tensor.states]
        gradient = self._gradient(number, tensor)
        made = [f"%n{number}", *(f"%n{number}_{state}" for state in tensor.states)]
        operands = ", ".join([parameter, gradient, "%lr", "%now", *states])
        types = ", ".join([type_, type_, f"tensor<{self.dtype}>", "tensor<i64>", *[type_] * len(states)])
        results = ", ".join([type_] * len(made))
        results = f"({results})" if states else results
        op, _, properties = tensor.optimizer.partition(" ")
        self.lines.append(
            f"{', '.join(made)} = logical.{op} {operands} {properties} : ({types}) -> {results}"
        )
        for value, target in zip(made, [name, *(f"{name}.{state}" for state in tensor.states)], strict=True):
            self._result(value[1:], type_, target)

    def _note_loss(self) -> None:
        """Writes the loss to its place."""
        many, steps, here = (_type([self.history], element) for element in (self.dtype, "i64", "i1"))
        loss, losses = (
            self._argument("loss", f"tensor<{self.dtype}>", "input"),
            self._argument("losses", many, "state"),
        )
        self.lines += [
            f"%places = logical.iota {{axis = 0}} : {steps}",
            f"%now.all = logical.broadcast %now {{dimensions = []}} : tensor<i64> -> {steps}",
            f'%here = logical.compare "eq" %places, %now.all : {steps} -> {here}',
            f"%loss.all = logical.broadcast {loss} {{dimensions = []}} : tensor<{self.dtype}> -> {many}",
            f"%noted = logical.select %here, %loss.all, {losses} : {here}, {many}",
        ]
        self._result("noted", many, "losses")


def _type(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def rate(step: int) -> float:
    """What `RATE` says of a step, counted from 1."""
    if step <= 2:
        return 1e-2 * step / 2
    return 1e-3 + 0.5 * (1e-2 - 1e-3) * (1 + np.cos(np.pi * min((step - 3) / 7, 1.0)))


def adam(
    values: Mapping[str, Array], name: str, gradient: Array, step: int, decay: float = 0.0
) -> dict[str, Array]:
    """A step of AdamW (of Adam without decay) in float64, by its definition."""
    mean, square = (values[f"{name}.{state}"] for state in ADAM.states)
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    way = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    parameter = values[name] * (1 - rate(step) * decay) - rate(step) * way
    return {name: parameter, f"{name}.exp_avg": mean, f"{name}.exp_avg_sq": square}


def momentum(values: Mapping[str, Array], name: str, gradient: Array, step: int) -> dict[str, Array]:
    """A step of SGD with momentum 0.9 in float64, by its definition."""
    buffer = 0.9 * values[f"{name}.momentum_buffer"] + gradient
    return {name: values[name] - rate(step) * buffer, f"{name}.momentum_buffer": buffer}


def sgd(values: Mapping[str, Array], name: str, gradient: Array, step: int) -> dict[str, Array]:
    """A plain step down the gradient in float64."""
    return {name: values[name] - rate(step) * gradient}


def random_array(shape: Sequence[int], random: np.random.Generator, dtype: Any = np.float32) -> Array:
    """Normal numbers that `dtype` holds."""
    return random.normal(size=prod(shape)).reshape(tuple(shape)).astype(dtype)
