"""One program of a training step: written from the traced forward part, compiled, and run on PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from aicf.compilation.sources import Source
from aicf.dialects.logical import NAME_ATTR, UPDATES_ATTR
from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch import Computed, Lowered, Port
from aicf.frontends.torch.index_checks import IndexCheck
from aicf.frontends.torch.layouts import memory_order
from aicf.frontends.torch.lowering import SEED
from aicf.inference.packing import ModelWeights
from aicf.pytorch.compiling import compiled_for
from aicf.pytorch.index_range import check_indices
from aicf.pytorch.launcher import Launcher, PackedCopies
from aicf.pytorch.options import StepOptions
from aicf.pytorch.placement import placed
from aicf.pytorch.programs import Argument
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.streams import is_capturing
from aicf.pytorch.tensors import stand_in, torch_dtype
from aicf.pytorch.training.checks import check_devices
from aicf.pytorch.training.optimizers import Group
from aicf.pytorch.training.scheduled import scheduled_update
from aicf.runtime.tensors import Array
from aicf.training.clipping import clip
from aicf.training.optimizers import Operands

COUNT, LOSS, TANGENT = "aicf.step", "loss", "aicf.tangent"
States = Mapping[str, Mapping[str, Tensor]]
"""States of the optimizer: by name of the parameter, then of the state."""
_ALIGN = 16
"""Alignment of the tensors of a batch, in bytes."""


def number_names(index: int, group: Group) -> list[str]:
    """The inputs that have the numbers of a group, in the order of `Group.numbers`."""
    if group.schedule is not None:
        return []
    if not group.is_scheduled:
        return [f"aicf.lr.{index}"]
    return [f"aicf.option.{index}.{number}" for number in range(len(group.numbers(1)))]


@dataclass(frozen=True)
class Model:
    """A traced model with its loss.

    Args:
        lowered: The forward part with its loss, and the backward part if PyTorch traced it.
        tensors: Parameters and buffers by their names in the program; tied ones have several.
        device: That the step runs on.
        leaves: By placeholder, the index of its value in the flattened batch.
        trained: Names of parameters that get a gradient from the loss.
        gradients: Results that are gradients, by the name of the parameter; None if AICF is to differentiate.
        checks: Which values of the flattened batch are indices.
    """

    lowered: Lowered
    tensors: Mapping[str, Tensor]
    device: torch.device
    leaves: Mapping[int, int]
    trained: Collection[str]
    gradients: Mapping[str, Port] | None = None
    checks: Sequence[IndexCheck] = ()


class _Writer:
    """Writes the program: the forward part, its gradients, and the updates of all parameters and states."""

    def __init__(
        self, model: Model, groups: Sequence[Group], states: States, clip_norm: float | None
    ) -> None:
        assert model.lowered.module is not None
        function = model.lowered.module.body.block.first_op
        assert isinstance(function, FuncOp)
        self._clip_norm = clip_norm
        self._function, self._model, self._groups, self._states = function, model, groups, states
        self.graph = Graph(f"{function.sym_name.data}_step")
        self.weights: dict[str, Array] = {}
        self._by_tensor: dict[int, Value] = {}
        self._gradients: dict[int, Value] = {}
        self._trained = {id(model.tensors[name]) for name in model.trained}

    def write(self) -> tuple[ModuleOp, torch.dtype]:
        """The program, and the element type of the loss."""
        graph = self.graph
        arguments = [self._argument(port) for port in self._model.lowered.inputs]
        if self._model.lowered.has_seed:
            arguments.insert(self._index_of_seed(), graph.input(SEED, (), "i64"))
        results = graph.inline(self._function, arguments)
        count = self._state(COUNT, (), "i64")
        now = graph.step_inc(count, name="step.now")
        loss = self._results(results)
        gradients = self._clipped_gradients(loss)
        for index, group in enumerate(self._groups):
            dtype = "f64" if group.is_wide else "f32"
            numbers = [graph.input(name, (), dtype) for name in number_names(index, group)]
            if group.schedule is not None:
                numbers = [group.schedule.rate(graph, now, dtype)]
            for name, parameter in zip(group.names, group.parameters, strict=True):
                if (gradient := gradients.get(name)) is not None:
                    self._update(name, parameter, group, gradient, numbers, now)
        graph.update(count, now)
        return graph.module(), torch_dtype(loss.dtype)

    def _index_of_seed(self) -> int:
        names = [cast(StringAttr, entry.data[NAME_ATTR]).data for entry in self._function.arg_attrs or ()]
        return names.index(SEED)

    def _argument(self, port: Port) -> Value:
        """An argument of the model; parameters that are one tensor are one argument."""
        tensor = self._model.tensors.get(port.name)
        if port.name == TANGENT:
            return self.graph.constant(1.0, port.stored_shape, port.tensor.dtype)
        if tensor is None:
            return self.graph.input(port.name, port.stored_shape, port.tensor.dtype)
        if id(tensor) not in self._by_tensor:
            make = self.graph.state if port.role == "state" else self.graph.param
            self._by_tensor[id(tensor)] = make(port.name, port.stored_shape, port.tensor.dtype)
            self.weights[port.name] = stand_in(port.stored_shape, port.tensor.dtype)
        return self._by_tensor[id(tensor)]

    def _state(self, name: str, shape: Sequence[int | str], dtype: str) -> Value:
        sizes = [int(size) for size in shape]
        self.weights[name] = stand_in(tuple(sizes), dtype)
        return self.graph.state(name, sizes, dtype)

    def _results(self, values: Sequence[Value]) -> Value:
        """Writes the updates of the model itself; returns the loss."""
        named: dict[str, Value] = {}
        owners = {port.name: port for port in self._model.lowered.inputs}
        for value, attributes in zip(values, self._function.res_attrs or (), strict=True):
            entry = attributes.data
            target: Attribute | None = entry.get(UPDATES_ATTR)
            if isinstance(target, StringAttr):
                tensor = self._model.tensors[owners[target.data].name]
                self.graph.update(self._by_tensor[id(tensor)], value)
            else:
                named[cast(StringAttr, entry[NAME_ATTR]).data] = value
        for name, port in (self._model.gradients or {}).items():
            self._add_gradient(name, named[port.name], port)
        self.graph.output(named[LOSS], LOSS)
        return named[LOSS]

    def _add_gradient(self, name: str, value: Value, port: Port) -> None:
        """Permutes a gradient to its parameter's order in memory; the gradients of tied parameters are added."""
        tensor = self._model.tensors[name]
        own = memory_order(tensor.shape, tensor.stride())
        order = [port.order.index(axis) for axis in own]
        value = value if order == sorted(order) else self.graph.transpose(value, order)
        before = self._gradients.get(id(tensor))
        self._gradients[id(tensor)] = value if before is None else before + value

    def _gradient(self, name: str, tensor: Tensor, loss: Value) -> Value | None:
        """Of a parameter; None if it gets none: PyTorch does not update it either."""
        parameter = self._by_tensor.get(id(tensor))
        if self._model.gradients is None:
            if parameter is None or id(tensor) not in self._trained:
                return None
            return self.graph.gradient(loss, parameter, name=f"{name}.grad")
        return self._gradients.get(id(tensor))

    def _parameter(self, name: str, tensor: Tensor, gradient: Value) -> Value:
        """A parameter, which may have a gradient although the loss does not read it."""
        if id(tensor) not in self._by_tensor:
            self._by_tensor[id(tensor)] = self.graph.param(name, gradient.shape, gradient.dtype)
            self.weights[name] = stand_in(gradient.info.shape, gradient.dtype)
        return self._by_tensor[id(tensor)]

    def _clipped_gradients(self, loss: Value) -> Mapping[str, Value]:
        """Those of all parameters that the optimizer has and the loss depends on, by name."""
        parameters = (
            pair for group in self._groups for pair in zip(group.names, group.parameters, strict=True)
        )
        found = {name: self._gradient(name, tensor, loss) for name, tensor in parameters}
        gradients = {name: value for name, value in found.items() if value is not None}
        return gradients if self._clip_norm is None else clip(self.graph, gradients, self._clip_norm)

    def _update(
        self, name: str, tensor: Tensor, group: Group, gradient: Value, numbers: Sequence[Value], now: Value
    ) -> None:
        graph = self.graph
        parameter = self._parameter(name, tensor, gradient)
        states = [
            self._state(f"{name}.{state}", parameter.shape, parameter.dtype) for state in self._states[name]
        ]
        own = [
            each if each.dtype == parameter.dtype else graph.cast(each, parameter.dtype) for each in numbers
        ]
        operands = Operands(parameter, gradient, own[0], now, states)
        if group.is_scheduled:
            new = scheduled_update(graph, group.update, operands, own)
        else:
            new = group.update.update(graph, operands, f"{name}.{type(group.update).__name__.lower()}")
        for old, value in zip([parameter, *states], new, strict=True):
            graph.update(old, value)


class _Number:
    """A number of a group in the tensor that the program reads, which is written only if the number changes."""

    def __init__(self, name: str, group: Group, device: torch.device) -> None:
        dtype = torch.float64 if group.is_wide else torch.float32
        self.name = name
        self.tensor = torch.zeros((), dtype=dtype, device=device)
        self._value: float | None = 0.0

    def set(self, value: float) -> None:
        """See above. In a graph of the caller's, replays write it: what the tensor has afterwards is not known."""
        is_captured = is_capturing(self.tensor.device)
        if is_captured or self._value != value:
            self.tensor.fill_(value)
            self._value = None if is_captured else value


def _updated_and_read(model: Model, states: States) -> dict[str, Tensor]:
    """What the step reads and writes at its address, besides the batch, by name."""
    names = {port.name for port in model.lowered.inputs} | set(model.trained)
    own = {name: model.tensors[name] for name in sorted(names & set(model.tensors))}
    return own | {
        f"{parameter}.{name}": state for parameter, named in states.items() for name, state in named.items()
    }


class StepProgram:
    """A compiled step for one signature of a batch.

    Args:
        model: The traced model.
        groups: Parameters and their updates; rates are read in each step.
        states: Of the optimizer.
        options: Of the user.
        seeds: Of each step's random numbers.

    Raises:
        As `aicf.train_step`.
    """

    def __init__(
        self, model: Model, groups: Sequence[Group], states: States, options: StepOptions, seeds: Seeds
    ) -> None:
        self._model, self._seeds = model, seeds
        self.device = model.device
        check_devices(_updated_and_read(model, states), self.device)
        writer = _Writer(model, groups, states, options.clip_norm)
        module, self._dtype = writer.write()
        source = Source(module, writer.graph.name)
        executable, self.origin = compiled_for(
            source, writer.weights, options, self.device, ModelWeights(), float(options.memory_budget)
        )
        self.executable = placed(executable, self.device)
        self._addressed = self.executable.addressed()
        self._launcher = Launcher(self._addressed, self._addressed.packs, PackedCopies())
        self._numbers = [
            [_Number(name, group, self.device) for name in number_names(index, group)]
            for index, group in enumerate(groups)
        ]
        updated = [port.name for port in model.lowered.inputs if port.role == "state"]
        self._written = [model.tensors[name] for name in updated if name in model.tensors]
        trained = {id(model.tensors[name]) for name in model.trained}
        own = {f"{name}.{state}": each for name, row in states.items() for state, each in row.items()}
        own.update(model.tensors)
        none = torch.empty(0)
        self._own = [own.get(name, none) for name in self._addressed.names]
        self._changing = [(at, name) for at, name in enumerate(self._addressed.names) if name not in own]
        self.trained = [each for group in groups for each in group.parameters if id(each) in trained]
        """The parameters that the step updates."""
        self._written += self.trained
        outputs = [each.port for each in model.lowered.outputs if isinstance(each, Computed)]
        self._loss_device = next(each.device for each in outputs if each.name == LOSS)
        self._inputs = [
            (port.name, Argument.of(port, _ALIGN, self.device))
            for port in model.lowered.inputs
            if port.name not in model.tensors and port.name != TANGENT
        ]

    def run(self, batch: Sequence[Any], groups: Sequence[Group], count: Tensor, step: int) -> Tensor:
        """One step on the tensors of a batch; returns the loss.

        Args:
            batch: Its values.
            groups: With the rates and options of this step.
            count: The steps so far, which the program counts on.
            step: The number of this one, 1 for the first.
        """
        check_indices(self._model.checks, batch)
        loss = torch.empty((), dtype=self._dtype, device=self.device)
        alive = list[Tensor]()  # until the launch
        addresses = {COUNT: count.data_ptr(), LOSS: loss.data_ptr()}
        for name, argument in self._inputs:
            tensor = argument.with_layout(cast(Tensor, batch[self._model.leaves[argument.index]]))
            alive.append(tensor)
            addresses[name] = tensor.data_ptr()
        for numbers, group in zip(self._numbers, groups, strict=True):
            for number, value in zip(numbers, group.numbers(step), strict=True):
                number.set(value)
                addresses[number.name] = number.tensor.data_ptr()
        if self._model.lowered.has_seed:
            alive.append(self._seeds.draw(self.device))
            addresses[SEED] = alive[-1].data_ptr()
        packed = [self._model.tensors[name] for name in self._launcher.packed_names]
        order = list(map(Tensor.data_ptr, self._own))
        for position, name in self._changing:
            order[position] = addresses[name]
        self._launcher.launch(order, self.device, packed)
        increment_version(self._written)
        return loss.to(self._loss_device)
