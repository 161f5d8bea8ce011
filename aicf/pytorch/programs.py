"""One program of a traced graph, for one combination of its sizes, run on PyTorch's tensors in place.

Arguments are read and written at their addresses, results are tensors of PyTorch's allocator, and the run is ordered
on PyTorch's current stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from aicf.compilation.compiled import CompiledModel
from aicf.frontends.torch import Alias, Computed, Lowered, NoTensor, Output, Passed, Port, View
from aicf.frontends.torch.sizes import expression_of
from aicf.pytorch.launcher import Launcher, PackedCopies
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.tensors import empty_on, picker, torch_dtype
from aicf.support.torch_types import SEED

Make: TypeAlias = Callable[[Sequence[Any], list[Tensor]], Any]
"""Returns one result of the graph, from its arguments and from the tensors that the program computed."""
T = TypeVar("T")


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

    def fits(self, tensor: Tensor, address: int) -> bool:
        """Whether the tensor, which is at this address, has the layout, the alignment and the device.

        A view that negates, such as `x.conj().imag`, has other values than its memory.
        """
        has_layout = tensor.is_contiguous() if self.is_natural else tensor.stride() == self.strides
        return has_layout and self.moves_to is None and not address % self.align and not tensor.is_neg()

    def with_layout(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it fits, else a copy that does."""
        if self.fits(tensor, tensor.data_ptr()):
            return tensor
        device = self.moves_to or tensor.device
        copy = torch.empty_strided(self.shape, self.strides, dtype=tensor.dtype, device=device)
        return copy.copy_(tensor)


_address = Tensor.data_ptr


Taken: TypeAlias = tuple[Sequence[Tensor], list[int], Sequence[tuple[Tensor, Tensor]]]
"""Tensors, their addresses, and pairs of a tensor and its copy that the program writes instead."""


class _Arguments:
    """The tensors of a call, with the layouts that the program takes.

    PyTorch checks the sizes and strides of parameters before each call, so that a parameter with the same address as in
    the last call has the same layout.

    Args:
        arguments: In the order of the program, parameters and buffers first.
        settled: The number of those.
    """

    def __init__(self, arguments: Sequence[Argument], settled: int) -> None:
        self._pick = picker([argument.index for argument in arguments])
        self._all, self._settled = list(enumerate(arguments)), settled
        self._changing = self._all[settled:]
        self._known: list[int] | None = None
        """Addresses of parameters that are used in place."""

    def of(self, args: Sequence[Any]) -> Taken:
        """The tensors that the program works on, in its order."""
        tensors: tuple[Tensor, ...] = self._pick(args)
        addresses = list(map(_address, tensors))
        is_known = addresses[: self._settled] == self._known
        if is_known:
            for number, argument in self._changing:
                if not argument.fits(tensors[number], addresses[number]):
                    break
            else:
                return tensors, addresses, ()
        return self._with_layouts(tensors, addresses, is_known)

    def _with_layouts(self, tensors: Sequence[Tensor], addresses: list[int], is_known: bool) -> Taken:
        taken = list(tensors)
        copied: list[tuple[Tensor, Tensor]] = []
        for number, argument in self._changing if is_known else self._all:
            tensor = tensors[number]
            taken[number] = argument.with_layout(tensor)
            if taken[number] is not tensor and argument.is_updated:
                copied.append((tensor, taken[number]))
        if not is_known:
            settled = zip(tensors[: self._settled], taken, strict=False)
            is_in_place = all(one is other for one, other in settled)
            self._known = addresses[: self._settled] if is_in_place else None
        return taken, list(map(_address, taken)), copied


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
        self._ports = sorted(lowered.inputs, key=lambda port: port.index not in params)
        arguments = [Argument.of(port, aligns.get(port.name, 1), device) for port in self._ports]
        self._arguments = _Arguments(arguments, sum(each.index in params for each in arguments))
        written = [output.port for output in lowered.outputs if isinstance(output, Computed | View)]
        computed = list(dict.fromkeys(written))
        self._empty = empty_on(device)
        self._result_specs = [
            (tuple(each.tensor.shape), tuple(each.dense_strides), torch_dtype(each.tensor.dtype))
            for each in computed
        ]
        devices = [each.device for each in computed]
        self._result_devices = devices if any(each != device for each in devices) else None
        whole = _whole(lowered.outputs)
        self._result_makers = tuple(
            _make(
                Computed(output.port) if index in whole and isinstance(output, View) else output,
                computed,
            )
            for index, output in enumerate(lowered.outputs)
        )
        self._returns_computed = list(lowered.outputs) == [Computed(port) for port in computed]
        self._addressed = None if executable is None else executable.addressed()
        self._lock: threading.Lock | threading.RLock = threading.Lock()
        if self._addressed is not None:
            self._bind([each.name for each in computed])

    def _bind(self, results: Sequence[str]) -> None:
        """Finds the number of each address that the program takes among arguments, then results, then the seed."""
        assert self._addressed is not None
        names = [port.name for port in self._ports] + list(results)
        if self.lowered.has_seed:
            names.append(SEED)
        at = {name: index for index, name in enumerate(names)}
        self._pick_ordered = picker([at[name] for name in self._addressed.names])
        packed = [at[name] for name in self._addressed.packs]
        self._pick_packed = picker(packed)
        keys = [self._ports[number].index for number in packed]
        self._launcher = Launcher(self._addressed, keys, self._shared.copies)
        if packed:
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
        packed, packed_addresses = self._pick_packed(tensors), self._pick_packed(addresses)
        self._launcher.launch(self._pick_ordered(addresses), self._device, packed, packed_addresses)
        del seed
        for tensor, copy in copied:
            tensor.copy_(copy)
        for index in self.lowered.updates:
            increment_version(args[index])
        if self._result_devices is not None:
            fresh = [tensor.to(each) for tensor, each in zip(fresh, self._result_devices, strict=True)]
        if self._returns_computed:
            return fresh
        return [make(args, fresh) for make in self._result_makers]

    def _results(self) -> list[Tensor]:
        """The tensors that a run computes."""
        if self._static is not None:
            return [tensor.detach() for tensor in self._static]
        results = [self._empty(*each) for each in self._result_specs]
        if self._is_static:
            self._static = list(results)
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
        is_symbolic = isinstance(actual, torch.SymInt)
        found.setdefault(expression.name, cast(Any, actual).node.hint if is_symbolic else int(actual))
