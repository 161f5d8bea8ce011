"""One program of a traced graph, for one combination of its sizes, run on PyTorch's tensors in place.

Arguments are read and written at their addresses, results are tensors of PyTorch's allocator, and the run is ordered
on PyTorch's current stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from aicf.compiled import CompiledModel
from aicf.frontends.torch import Alias, Computed, Lowered, NoTensor, Output, Passed, Port, View
from aicf.frontends.torch.sizes import expression_of
from aicf.pytorch.launcher import Launcher, PackedCopies
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.tensors import torch_dtype
from aicf.torch_types import SEED

Make: TypeAlias = Callable[[Sequence[Any], list[Tensor]], Any]
"""Returns one result of the graph, from its arguments and from the tensors that the program computed."""


@dataclass(frozen=True)
class Argument:
    """How the program reads or writes an argument of the graph.

    Args:
        index: Which argument of the graph it is.
        shape, strides: The layout that it must have.
        is_natural: Whether that is row-major.
        is_updated: Whether the program writes it.
        align: Alignment of its address, in bytes.
        moves_to: The device of the program, if PyTorch has the tensor on another one.
    """

    index: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_natural: bool
    is_updated: bool
    align: int
    moves_to: torch.device | None = None

    @staticmethod
    def of(port: Port, align: int, device: torch.device) -> Argument:
        """The argument of a port, for a program on a device."""
        is_natural = list(port.order) == sorted(port.order)
        strides = port.dense_strides
        moves_to = None if port.device == device else device
        return Argument(
            port.index, port.tensor.shape, strides, is_natural, port.role == "state", align, moves_to
        )

    def with_layout(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it has the layout, the alignment and the device, else a copy that has them.

        A view that negates, such as `x.conj().imag`, has other values than its memory, and is copied too.
        """
        fits = tensor.is_contiguous() if self.is_natural else tensor.stride() == self.strides
        fits = fits and self.moves_to is None
        if fits and not tensor.data_ptr() % self.align and not tensor.is_neg():
            return tensor
        device = self.moves_to or tensor.device
        copy = torch.empty_strided(self.shape, self.strides, dtype=tensor.dtype, device=device)
        return copy.copy_(tensor)


@dataclass(frozen=True)
class _ResultSpec:
    """A result to be allocated for each run, and the device that PyTorch has it on."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


_address = Tensor.data_ptr


class _Arguments:
    """The tensors of a call, with the layouts that the program takes.

    PyTorch checks the sizes and strides of parameters before each call, so that a parameter with the same address as in
    the last call has the same layout.
    """

    def __init__(self, arguments: Sequence[Argument], settled: frozenset[int]) -> None:
        self._all = [argument.index for argument in arguments]
        numbered = list(enumerate(arguments))
        self._changing = [(number, each) for number, each in numbered if each.index not in settled]
        self._settled = [(number, each) for number, each in numbered if each.index in settled]
        self._known: list[int] = []

    def of(self, args: Sequence[Any]) -> tuple[list[Tensor], list[int], list[tuple[Tensor, Tensor]]]:
        """The tensors, their addresses, and pairs of a tensor and its copy that the program writes instead."""
        tensors: list[Tensor] = [args[index] for index in self._all]
        copied: list[tuple[Tensor, Tensor]] = []
        for number, argument in self._changing:
            self._take(number, argument, tensors, copied)
        addresses = list(map(_address, tensors))
        known = [addresses[number] for number, _ in self._settled]
        if known != self._known:
            before = list(tensors)
            for number, argument in self._settled:
                self._take(number, argument, tensors, copied)
            addresses = list(map(_address, tensors))
            is_in_place = all(one is other for one, other in zip(before, tensors, strict=True))
            self._known = known if is_in_place else []
        return tensors, addresses, copied

    def _take(
        self, number: int, argument: Argument, tensors: list[Tensor], copied: list[tuple[Tensor, Tensor]]
    ) -> None:
        tensor = tensors[number]
        taken = argument.with_layout(tensor)
        if taken is not tensor:
            tensors[number] = taken
            if argument.is_updated:
                copied.append((tensor, taken))


@dataclass(frozen=True)
class GraphShared:
    """Shared by the programs of one graph.

    Args:
        copies: Packed copies of weights.
        seeds: Of their random numbers.
    """

    copies: PackedCopies = field(default_factory=PackedCopies)
    seeds: Seeds = field(default_factory=Seeds)


class TorchProgram:
    """A compiled program on PyTorch's tensors.

    Args:
        lowered: The lowered graph.
        executable: Compiled from it; None if nothing is computed.
        device: That it runs on. Arguments that are elsewhere are copied there, and results that PyTorch has elsewhere
            are copied back.
        params: Indices of the graph's arguments that are parameters and buffers.
        shared: Shared by the programs of the graph.
        is_static: Whether results are in memory that every run overwrites.
    """

    def __init__(
        self,
        lowered: Lowered,
        executable: CompiledModel | None,
        device: torch.device,
        params: frozenset[int] = frozenset(),
        shared: GraphShared | None = None,
        is_static: bool = False,
    ) -> None:
        self.lowered, self.executable, self._device = lowered, executable, device
        self._shared = shared or GraphShared()
        self._static: list[Tensor] | None = None
        self._is_static = is_static
        aligns = _alignments(executable)
        arguments = [Argument.of(port, aligns.get(port.name, 1), device) for port in lowered.inputs]
        self._arguments = _Arguments(arguments, params)
        written = [output.port for output in lowered.outputs if isinstance(output, Computed | View)]
        computed = list(dict.fromkeys(written))
        self._result_specs = tuple(
            _ResultSpec(each.tensor.shape, each.dense_strides, torch_dtype(each.tensor.dtype), each.device)
            for each in computed
        )
        self._is_moved = any(each.device != device for each in self._result_specs)
        whole = _whole(lowered.outputs)
        self._result_makers = tuple(
            _make(
                Computed(output.port) if index in whole and isinstance(output, View) else output,
                computed,
            )
            for index, output in enumerate(lowered.outputs)
        )
        self._addressed = None if executable is None else executable.addressed()
        self._packed: tuple[int, ...] = ()
        self._lock: threading.Lock | threading.RLock = threading.Lock()
        if self._addressed is not None:
            self._bind([each.name for each in computed])

    def _bind(self, results: Sequence[str]) -> None:
        """Finds the number of each address that the program takes among arguments, then results, then the seed."""
        assert self._addressed is not None
        names = [port.name for port in self.lowered.inputs] + list(results)
        if self.lowered.has_seed:
            names.append(SEED)
        at = {name: index for index, name in enumerate(names)}
        order = [at[name] for name in self._addressed.names]
        self._ordered = itemgetter(*order) if len(order) > 1 else lambda addresses: (addresses[order[0]],)
        self._packed = tuple(at[name] for name in self._addressed.packs)
        keys = [self.lowered.inputs[number].index for number in self._packed]
        self._launcher = Launcher(self._addressed, keys, self._shared.copies)
        if self._packed:
            self._lock = self._shared.copies.lock

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Runs the program; the results of the graph, in order."""
        if self._addressed is None:
            return [make(args, []) for make in self._result_makers]
        with self._lock:
            return self._run(args)

    def _run(self, args: Sequence[Any]) -> list[Any]:
        tensors, addresses, copied = self._arguments.of(args)
        fresh = self._results()
        addresses += map(_address, fresh)
        seed = None
        if self.lowered.has_seed:
            seed = self._shared.seeds.draw(self._device)
            addresses.append(seed.data_ptr())
        packed = [tensors[number] for number in self._packed]
        packed_addresses = [addresses[number] for number in self._packed]
        self._launcher.launch(self._ordered(addresses), self._device, packed, packed_addresses)
        del seed
        for tensor, copy in copied:
            tensor.copy_(copy)
        for index in self.lowered.updates:
            increment_version(args[index])
        if self._is_moved:
            fresh = [tensor.to(each.device) for tensor, each in zip(fresh, self._result_specs, strict=True)]
        return [make(args, fresh) for make in self._result_makers]

    def _results(self) -> list[Tensor]:
        """The tensors that a run computes."""
        if self._static is not None:
            return [tensor.detach() for tensor in self._static]
        results = [
            torch.empty_strided(each.shape, each.strides, dtype=each.dtype, device=self._device)
            for each in self._result_specs
        ]
        if self._is_static:
            self._static = results
        return results


def _alignments(executable: CompiledModel | None) -> dict[str, int]:
    """The alignment of each argument of a program in bytes, by name."""
    if executable is None:
        return {}
    least = 16 if executable.native.memory == "device" else 1
    binds = [bind for plan in executable.plan.programs for bind in plan.graph.binds]
    return {bind.name: max(bind.align or 1, least) for bind in binds}


def _whole(outputs: Sequence[Output]) -> frozenset[int]:
    """The results that are a whole tensor of which other results are views; of several, the first."""
    found: dict[Port, int] = {}
    for index, output in enumerate(outputs):
        if not isinstance(output, View) or output.offset:
            continue
        if (output.shape, output.strides) == (output.port.tensor.shape, output.port.dense_strides):
            found.setdefault(output.port, index)
    return frozenset(found.values())


def _make(output: Output, computed: Sequence[Port]) -> Make:
    match output:
        case Computed(port):
            number = computed.index(port)
            return lambda args, fresh: fresh[number]
        case View(port, shape, strides, offset):
            number = computed.index(port)
            return lambda args, fresh: fresh[number].as_strided(shape, strides, offset)
        case Passed(placeholder):
            return lambda args, fresh: args[placeholder]
        case Alias():
            return _view_of(output)
        case NoTensor(value):
            return lambda args, fresh: value
        case _:
            form, dtype, device = output.tensor.shape, torch_dtype(output.tensor.dtype), output.device
            return lambda args, fresh: torch.empty(form, dtype=dtype, device=device)


def _view_of(alias: Alias) -> Make:
    def make(args: Sequence[Any], fresh: list[Tensor]) -> Tensor:
        source = cast(Tensor, args[alias.placeholder])
        return source.as_strided(alias.shape, alias.strides, source.storage_offset() + alias.offset)

    return make


def bindings_of(placeholders: Sequence[Any], args: Sequence[Any]) -> Mapping[str, int]:
    """The value of each symbolic size of a graph in one call, by the name of its symbol.

    Args:
        placeholders: Of the graph.
        args: What it is called with; while PyTorch traces, fake tensors, which have symbolic sizes too.
    """
    found: dict[str, int] = {}
    for node, value in zip(placeholders, args, strict=True):
        fake = node.meta.get("val")
        if isinstance(fake, torch.SymInt):
            _note(fake, value, found)
        elif isinstance(fake, Tensor):
            for size, actual in zip(fake.shape, value.shape, strict=True):
                _note(size, actual, found)
            for step, actual in zip(fake.stride(), value.stride(), strict=True):
                _note(step, actual, found)
    return found


def _note(size: Any, actual: Any, found: dict[str, int]) -> None:
    expression = expression_of(size)
    if expression is not None and expression.is_symbol:
        # `int` of a symbolic size would be a guard: the graph would be for this one size from then on.
        found.setdefault(
            expression.name, actual.node.hint if isinstance(actual, torch.SymInt) else int(actual)
        )
