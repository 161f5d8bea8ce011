"""A graph that PyTorch traced, compiled for each combination of its sizes on the first call with it."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

from aicf.compilation.sources import Source
from aicf.errors import UnsupportedOp
from aicf.frontends.torch import Lowered, Port, Roles, lower_graph
from aicf.frontends.torch.index_checks import IndexCheck, index_checks
from aicf.frontends.torch.nodes import check_recomputed, drops_attention
from aicf.inference.packing import ModelWeights
from aicf.passes.support.ledger import copy_decisions, record_decision
from aicf.pytorch.compiling import compiled_for
from aicf.pytorch.devices import device_of_graph
from aicf.pytorch.index_range import check_indices
from aicf.pytorch.options import TorchOptions
from aicf.pytorch.partition import Partition
from aicf.pytorch.placement import placed
from aicf.pytorch.programs import GraphShared, TorchProgram, bindings_of
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.tensors import stand_in
from aicf.pytorch.traced import Traced
from aicf.runtime.tensors import Array
from aicf.support.torch_types import host_view

Kind: TypeAlias = Literal["inference", "forward", "backward"]
Owners: TypeAlias = list[weakref.ref[Tensor]]
LOGGER = logging.getLogger("aicf.pytorch")
BACKEND = "torch-backend"
"""Named as the pass by ledger entries about decisions on the traced graph."""
NO_COUNTERPART = "it has no counterpart here, and the option fallback is 'eager'"
_numbers = itertools.count()


@dataclass(frozen=True)
class Built:
    """One program of a graph, for a report.

    Args:
        sizes: The value of each symbolic size.
        program: The program; one that PyTorch runs has no executable.
        seconds: For compiling or loading it.
        origin: Whether it was compiled or loaded, in words.
        checks: The arguments that are indices.
    """

    sizes: Mapping[str, int]
    program: TorchProgram | EagerProgram
    seconds: float
    origin: str
    checks: Sequence[IndexCheck] = ()


@dataclass
class GraphInfo:
    """Facts about a graph.

    Args:
        kind: Whether it is an inference graph, or the forward or backward part of a training graph.
        name: Of its programs.
        params: Indices of arguments that are parameters and buffers.
        names: Names of arguments, by index.
        owners: The tensors of the first call, by which a report finds the module of the graph; graphs that come from
            the same graph of TorchDynamo share them.
        partition: How the training graph was split of which this is a part.
        eager: Ops of the graph that run in eager mode, where it is compiled in parts.
        traced: What TorchDynamo knows of the graph; graphs that come from the same graph of TorchDynamo share it.
    """

    kind: Kind
    name: str
    params: frozenset[int] = frozenset()
    names: Mapping[int, str] = field(default_factory=dict[int, str])
    owners: Owners = field(default_factory=list[weakref.ref[Tensor]])
    partition: Partition = field(default_factory=Partition)
    eager: tuple[str, ...] = ()
    traced: Traced = field(default_factory=Traced)

    def record_decisions(self, module: ModuleOp, name: str) -> None:
        """Writes decisions on the traced graph into the ledger of a program."""
        copy_decisions(self.partition.decisions, module)
        if self.partition.by_pytorch is not None:
            because = f"AICF cannot read the training graph: {self.partition.by_pytorch}"
            record_decision(module, BACKEND, [name], "PyTorch chose what is saved", because)
        for op in self.eager:
            record_decision(module, BACKEND, [name], f"{op} runs in eager mode", NO_COUNTERPART)


class EagerProgram:
    """A graph that PyTorch runs in eager mode, because an op has no counterpart for its arguments.

    Args:
        module: The graph.
        reason: Why.
    """

    executable = None

    def __init__(self, module: torch.fx.GraphModule, reason: str) -> None:
        self._module, self.reason = module, reason

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Runs the graph; returns its results, in order."""
        results: Any = self._module(*args)
        return list(cast(Sequence[Any], results)) if isinstance(results, list | tuple) else [results]


class CompiledGraph:
    """Callable with the list of the graph's arguments; returns the list of its results.

    Args:
        module: The traced graph.
        info: Facts about it.
        options: Of the user.
    """

    def __init__(self, module: torch.fx.GraphModule, info: GraphInfo, options: TorchOptions) -> None:
        self._boxed_call = True  # on the instance: PyTorch's wrappers copy attributes of instances
        self.info, self.options = info, options
        self._module, self._graph = module, module.graph
        self._placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._symbolic = tuple(
            index for index, node in enumerate(self._placeholders) if _is_symbolic(node.meta.get("val"))
        )
        self._programs: OrderedDict[tuple[int, ...], Built] = OrderedDict()
        self._latest: tuple[tuple[int, ...], Built | None] = ((), None)
        """The program of the last call with its key, in one tuple because other threads replace it."""
        self._compile_lock, self._programs_lock = threading.Lock(), threading.Lock()
        self._weights, self._shared = ModelWeights(), GraphShared(seeds=Seeds(options.seed, module.code))
        self.dropped = 0
        self.calls = 0

    def __call__(self, args: list[Any]) -> list[Any]:
        """Runs the graph; empties the list, so that arguments are freed as early as possible."""
        key = self._key(args) if self._symbolic else ()
        latest, built = self._latest
        if built is None or latest != key:
            built = self._lookup(key) or self._compile(key, args)
            self._latest = key, built
        self.calls += 1
        check_indices(built.checks, args)
        results = built.program(args)
        args.clear()
        return results

    @property
    def built(self) -> list[Built]:
        """Its programs, from the least to the most recently used."""
        with self._programs_lock:
            return list(self._programs.values())

    def _lookup(self, key: tuple[int, ...]) -> Built | None:
        with self._programs_lock:
            if key in self._programs:
                self._programs.move_to_end(key)
            return self._programs.get(key)

    def _key(self, args: Sequence[Any]) -> tuple[int, ...]:
        key: list[int] = []
        for index in self._symbolic:
            value = args[index]
            if isinstance(value, Tensor):
                key.extend(value.shape)
                key.extend(value.stride())
            elif isinstance(value, torch.SymInt) and cast(Any, value).node.is_nested_int():
                raise UnsupportedOp(
                    "a nested tensor has nested (jagged) sizes; compile what works on its .values(), or pad it "
                    "with .to_padded_tensor(0.0)"
                )
            else:
                key.append(int(value))
        return tuple(key)

    def _compile(self, key: tuple[int, ...], args: Sequence[Any]) -> Built:
        with self._compile_lock:
            if (found := self._lookup(key)) is not None:
                return found
            start = time.perf_counter()
            sizes = bindings_of(self._placeholders, args)
            if not self.info.owners:
                self.info.owners += [weakref.ref(value) for value in args if isinstance(value, Tensor)]
            program, origin = self._compiled_or_eager(sizes, args)
            built = Built(sizes, program, time.perf_counter() - start, origin, self._checks(program, sizes))
            LOGGER.info("%s: %s in %.2f s", self.info.name, origin, built.seconds)
            with self._programs_lock:
                self._programs[key] = built
                while len(self._programs) > self.options.max_programs:
                    self._programs.popitem(last=False)
                    self.dropped += 1
            return built

    def _checks(self, program: TorchProgram | EagerProgram, sizes: Mapping[str, int]) -> Sequence[IndexCheck]:
        """None for the backward part, which reads what the forward part has checked, nor where PyTorch checks."""
        is_checked = self.info.kind == "backward" or isinstance(program, EagerProgram)
        return [] if is_checked else index_checks(self._graph, sizes)

    def _compiled_or_eager(
        self, sizes: Mapping[str, int], args: Sequence[Any]
    ) -> tuple[TorchProgram | EagerProgram, str]:
        try:
            return self._compiled(sizes, args)
        except UnsupportedOp as error:
            # PyTorch's backward op cannot read the state of a dropout that AICF drew, nor the other way round.
            if self.options.fallback != "eager" or self._is_half_of_dropout():
                raise
            return EagerProgram(self._module, str(error)), f"in eager mode: {error}"

    def _is_half_of_dropout(self) -> bool:
        return self.info.kind != "inference" and drops_attention(self._graph)

    def _compiled(self, sizes: Mapping[str, int], args: Sequence[Any]) -> tuple[TorchProgram, str]:
        device = device_of_graph(self._graph)
        params = self._params_on(device)
        if self.info.kind == "backward":
            check_recomputed(self._graph)
        name = self.info.kind  # without a number, which would become part of the key in the cache folder
        lowered = lower_graph(self._graph, name, sizes, Roles(self.info.names, params))
        if lowered.module is None:
            return TorchProgram(lowered, None, device), "nothing to compute"
        self.info.record_decisions(lowered.module, name)
        _record_moves(lowered, name, device)
        is_static = self.options.static_outputs and self.info.kind == "inference"
        source = Source(lowered.module, name)
        weights = _weights(lowered, args, device)
        executable, origin = compiled_for(source, weights, self.options, device, self._weights)
        self._weights.keep(executable)
        on_device = placed(executable, device)
        return TorchProgram(lowered, on_device, device, params, self._shared, is_static), origin

    def _params_on(self, device: torch.device) -> frozenset[int]:
        """The parameters and buffers that programs read in place. Those that are copied in each call are inputs."""
        if self.info.kind != "inference":
            return frozenset()
        fakes = {index: self._placeholders[index].meta["val"] for index in self.info.params}
        return frozenset(index for index, fake in fakes.items() if fake.device == device)


def _record_moves(lowered: Lowered, name: str, device: torch.device) -> None:
    """Writes into the ledger of a program which arguments are copied to its device in each call."""
    assert lowered.module is not None
    for port in lowered.inputs:
        if port.device != device:
            because = f"it is on {port.device}, and the program runs on {device}"
            record_decision(
                lowered.module, BACKEND, [name], f"argument '{port.name}' is copied in each call", because
            )


def new_name(kind: Kind) -> str:
    """A name for the programs of a graph, unique in this process."""
    return f"{kind}{next(_numbers)}"


def _weights(lowered: Lowered, args: Sequence[Any], device: torch.device) -> dict[str, Array]:
    """The weights of the program: arrays on the memory of PyTorch's tensors, or stand-ins for tensors on a device."""
    weights = [port for port in lowered.inputs if port.role in ("param", "state")]
    return {port.name: _weight(port, args[port.index], device) for port in weights}


def _weight(port: Port, tensor: Tensor, device: torch.device) -> Array:
    if device.type == "cpu":
        return host_view(tensor.permute(port.order).resolve_neg())
    return stand_in(port.stored_shape, port.tensor.dtype)


def _is_symbolic(fake: Any) -> bool:
    if isinstance(fake, Tensor):
        sizes = (*fake.shape, *fake.stride())
        return any(isinstance(size, torch.SymInt) for size in sizes)
    return isinstance(fake, torch.SymInt)
