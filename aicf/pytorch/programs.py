"""One program of a traced graph, for one choice of its sizes, and how it runs on PyTorch's tensors where they are.

Arguments are read and written at their addresses, results are tensors of PyTorch's allocator, and the run is ordered
on PyTorch's current stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.multiprocessing.reductions import StorageWeakRef

from aicf.compiled import CompiledModel
from aicf.errors import CaptureError
from aicf.frontends.torch import Alias, Computed, Lowered, NoTensor, Output, Passed, Port, View
from aicf.frontends.torch.lowering import SEED
from aicf.frontends.torch.sizes import expression_of
from aicf.pytorch.compiling import current_stream, is_capturing
from aicf.pytorch.fused_optimizers import watch_fused_optimizers
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.tensors import torch_dtype
from aicf.runtime.addressed import Addressed

Make: TypeAlias = Callable[[Sequence[Any], list[Tensor]], Any]
"""What gives one result of the graph, from its arguments and from what the program computed, by number."""


@dataclass(frozen=True)
class Argument:
    """A tensor of the graph as the program takes it.

    Args:
        index: Which argument of the graph it is.
        shape, strides: How it has to lie in memory.
        is_natural: Whether that is row-major.
        is_updated: Whether the program writes it.
        align: Bytes that its address has to be a multiple of.
    """

    index: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_natural: bool
    is_updated: bool
    align: int

    @staticmethod
    def of(port: Port, align: int) -> Argument:
        """The argument of a port."""
        is_natural = list(port.order) == sorted(port.order)
        strides = port.dense_strides
        return Argument(port.index, port.tensor.shape, strides, is_natural, port.role == "state", align)

    def placed(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or a copy that lies as the program takes it."""
        fits = tensor.is_contiguous() if self.is_natural else tensor.stride() == self.strides
        if fits and not tensor.data_ptr() % self.align:
            return tensor
        copy = torch.empty_strided(self.shape, self.strides, dtype=tensor.dtype, device=tensor.device)
        return copy.copy_(tensor)


@dataclass(frozen=True)
class _Fresh:
    """A result to be allocated for each run."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


Stamp: TypeAlias = tuple[int, int, object]
"""Which memory a tensor has, and how often that was changed, as PyTorch counts."""
_address = Tensor.data_ptr
_count = attrgetter("_version")


def _versions(tensors: Sequence[Tensor]) -> list[object]:
    """How often each tensor was changed. Nobody counts the changes of one that was made in inference mode."""
    try:
        return list(map(_count, tensors))
    except RuntimeError:
        return [object() if tensor.is_inference() else tensor._version for tensor in tensors]


class Packed:
    """What the programs of one graph packed last: they share packed copies.

    A graph is called with the weights of several modules if these are alike. The copies that one program made are then
    no longer those that another one made before.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Whoever packs or runs on packed copies holds it."""
        self.generation = 0
        self._stamps: dict[object, Stamp] = {}

    def note(self, stamps: Mapping[object, Stamp]) -> int:
        """Notes what a program packs; the generation of the copies from now on."""
        if any(self._stamps.get(key, stamp) != stamp for key, stamp in stamps.items()):
            self.generation += 1
        self._stamps.update(stamps)
        return self.generation


class Packing:
    """Packs parameters of a program again when they have changed, as PyTorch counts changes, or lie elsewhere.

    PyTorch does not count what is written through `parameter.data`: `parameter.data.mul_(2)` goes unseen, and so does
    it by autograd. Write under `torch.no_grad()` instead.

    Args:
        addressed: The program.
        keys: Of the parameters that it packs, among all programs of the graph.
        packed: What those programs share.
    """

    def __init__(self, addressed: Addressed, keys: Sequence[object], packed: Packed) -> None:
        self._addressed, self._keys, self._packed = addressed, keys, packed
        self.names = tuple(addressed.packs)
        self._addresses: list[int] = []
        self._versions: list[object] = []
        self._generation = -1
        self._storages: list[StorageWeakRef] = []

    def update(self, tensors: Sequence[Tensor], addresses: list[int], stream: int) -> None:
        """Packs if need be, before a run.

        Args:
            tensors: The parameters, in the order of `names`.
            addresses: Where they are.

        Raises:
            CaptureError: there is something to pack while PyTorch captures the stream.
        """
        versions = _versions(tensors)
        if (
            addresses == self._addresses
            and versions == self._versions
            and self._generation == self._packed.generation
            and not any(map(StorageWeakRef.expired, self._storages))
        ):
            return
        if tensors and is_capturing(tensors[0].device):
            raise CaptureError(
                "parameters have changed since they were packed; call the model once before capturing it"
            )
        self._generation = -1
        storages = [tensor.untyped_storage() for tensor in tensors]
        stamps = [(each._cdata, *rest) for each, *rest in zip(storages, addresses, versions, strict=True)]
        generation = self._packed.note(dict(zip(self._keys, stamps, strict=True)))
        self._addressed.prepare(dict(zip(self.names, addresses, strict=True)), stream)
        # As long as these are there, no other storage is taken for one that was freed.
        self._storages = [StorageWeakRef(storage) for storage in storages]
        self._addresses, self._versions, self._generation = addresses, versions, generation


class _Arguments:
    """The tensors of a call as the program takes them.

    Of parameters PyTorch checks sizes and strides before it calls; one that is where it was last time lies as it did.
    """

    def __init__(self, arguments: Sequence[Argument], settled: frozenset[int]) -> None:
        self._all = [argument.index for argument in arguments]
        numbered = list(enumerate(arguments))
        self._changing = [(number, each) for number, each in numbered if each.index not in settled]
        self._settled = [(number, each) for number, each in numbered if each.index in settled]
        self._known: list[int] = []

    def of(self, args: Sequence[Any]) -> tuple[list[Tensor], list[int], list[tuple[Tensor, Tensor]]]:
        """The tensors, their addresses, and those that the program writes in a copy, each with it."""
        given: list[Tensor] = [args[index] for index in self._all]
        copied: list[tuple[Tensor, Tensor]] = []
        for number, argument in self._changing:
            self._place(number, argument, given, copied)
        addresses = list(map(_address, given))
        known = [addresses[number] for number, _ in self._settled]
        if known != self._known:
            before = list(given)
            for number, argument in self._settled:
                self._place(number, argument, given, copied)
            addresses = list(map(_address, given))
            is_in_place = all(one is other for one, other in zip(before, given, strict=True))
            self._known = known if is_in_place else []
        return given, addresses, copied

    def _place(
        self, number: int, argument: Argument, given: list[Tensor], copied: list[tuple[Tensor, Tensor]]
    ) -> None:
        tensor = given[number]
        placed = argument.placed(tensor)
        if placed is not tensor:
            given[number] = placed
            if argument.is_updated:
                copied.append((tensor, placed))


@dataclass(frozen=True)
class Common:
    """What the programs of one graph share.

    Args:
        packed: What was packed last.
        seeds: Where their random numbers start.
    """

    packed: Packed = field(default_factory=Packed)
    seeds: Seeds = field(default_factory=Seeds)


class TorchProgram:
    """A compiled program on PyTorch's tensors.

    Args:
        lowered: What the graph became.
        executable: What that was compiled to; None if nothing is computed.
        device: Where its tensors are.
        params: Indices of the arguments of the graph that hardly ever change.
        common: What the programs of its graph share.
        is_static: Whether results are in memory that every run writes anew.
    """

    def __init__(
        self,
        lowered: Lowered,
        executable: CompiledModel | None,
        device: torch.device,
        params: frozenset[int] = frozenset(),
        common: Common | None = None,
        is_static: bool = False,
    ) -> None:
        self.lowered, self.executable, self._device = lowered, executable, device
        self._common = common or Common()
        self._static: list[Tensor] | None = None
        self._is_static = is_static
        aligns = _alignments(executable)
        arguments = [Argument.of(port, aligns.get(port.name, 1)) for port in lowered.inputs]
        self._arguments = _Arguments(arguments, params)
        written = [output.port for output in lowered.outputs if isinstance(output, Computed | View)]
        computed = list(dict.fromkeys(written))
        self._fresh = tuple(
            _Fresh(each.tensor.shape, each.dense_strides, torch_dtype(each.tensor.dtype)) for each in computed
        )
        whole = _whole(lowered.outputs)
        self._makes = tuple(
            _make(
                Computed(output.port) if index in whole and isinstance(output, View) else output,
                computed,
                device,
            )
            for index, output in enumerate(lowered.outputs)
        )
        self._addressed = None if executable is None else executable.addressed()
        self._packing: Packing | None = None
        self._packed: tuple[int, ...] = ()
        self._lock: threading.Lock | threading.RLock = threading.Lock()
        if self._addressed is not None:
            self._bind([each.name for each in computed])

    def _bind(self, results: Sequence[str]) -> None:
        """Finds where each address that the program takes comes from: arguments, then results, then the seed."""
        assert self._addressed is not None
        names = [port.name for port in self.lowered.inputs] + list(results)
        if self.lowered.has_seed:
            names.append(SEED)
        at = {name: index for index, name in enumerate(names)}
        order = [at[name] for name in self._addressed.names]
        self._ordered = itemgetter(*order) if len(order) > 1 else lambda addresses: (addresses[order[0]],)
        self._packed = tuple(at[name] for name in self._addressed.packs)
        if self._packed:
            keys = [self.lowered.inputs[number].index for number in self._packed]
            self._packing = Packing(self._addressed, keys, self._common.packed)
            self._lock = self._common.packed.lock

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Runs the program; the results of the graph, in order."""
        if self._addressed is None:
            return [make(args, []) for make in self._makes]
        with self._lock:
            return self._run(args)

    def _run(self, args: Sequence[Any]) -> list[Any]:
        assert self._addressed is not None
        given, addresses, copied = self._arguments.of(args)
        fresh = self._results()
        addresses += map(_address, fresh)
        seed = None
        if self.lowered.has_seed:
            seed = self._common.seeds.draw(self._device)
            addresses.append(seed.data_ptr())
        stream = current_stream(self._device)
        if self._packing is not None:
            packed = [addresses[number] for number in self._packed]
            self._packing.update([given[number] for number in self._packed], packed, stream)
        launch = self._addressed.queue if is_capturing(self._device) else self._addressed.run
        launch(self._ordered(addresses), stream)
        del seed
        for tensor, placed in copied:
            tensor.copy_(placed)
        for index in self.lowered.updates:
            increment_version(args[index])
        return [make(args, fresh) for make in self._makes]

    def _results(self) -> list[Tensor]:
        """The tensors that a run computes."""
        if self._static is not None:
            return [tensor.detach() for tensor in self._static]
        made = [
            torch.empty_strided(each.shape, each.strides, dtype=each.dtype, device=self._device)
            for each in self._fresh
        ]
        if self._is_static:
            self._static = made
        return made


def _alignments(executable: CompiledModel | None) -> dict[str, int]:
    """Bytes that the address of each argument of a program has to be a multiple of, by name."""
    if executable is None:
        return {}
    least = 16 if executable.native.memory == "device" else 1
    binds = [bind for plan in executable.plan.programs for bind in plan.graph.binds]
    return {bind.name: max(bind.align or 1, least) for bind in binds}


def _whole(outputs: Sequence[Output]) -> frozenset[int]:
    """The results that are the tensor itself of which others are views: the first one that has all of it."""
    found: dict[Port, int] = {}
    for index, output in enumerate(outputs):
        if not isinstance(output, View) or output.offset:
            continue
        if (output.shape, output.strides) == (output.port.tensor.shape, output.port.dense_strides):
            found.setdefault(output.port, index)
    return frozenset(found.values())


def _make(output: Output, computed: Sequence[Port], device: torch.device) -> Make:
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
            form, dtype = output.tensor.shape, torch_dtype(output.tensor.dtype)
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
        args: What it is called with; while PyTorch traces, stand-ins that have symbolic sizes too.
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


watch_fused_optimizers()  # else what is packed of their parameters would go stale
