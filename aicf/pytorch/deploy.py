"""`save` and `load`: programs that run on the weights of a module, in a process that neither traces nor compiles.

Loading and running import neither the compiler nor xDSL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from itertools import starmap
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from aicf.compilation.compiled import CompiledModel
from aicf.compilation.reading import load_program
from aicf.compilation.writing import save_program
from aicf.errors import ArtifactError, InputMismatch, PolicyError
from aicf.inference.packing import ModelWeights
from aicf.pytorch.launcher import Launcher, PackedCopies
from aicf.pytorch.module_tensors import ModuleTensors, check_memory
from aicf.pytorch.placement import placed
from aicf.pytorch.returned import Make, described, maker
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.tensors import IsAlike, alike, empty_on, never_alike, picker, stand_in, torch_dtype
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.tensors import Array
from aicf.saving import artifact
from aicf.support.arguments import path_from
from aicf.support.dataclass_json import parse_json
from aicf.support.torch_types import SEED, host_view, name_of

if TYPE_CHECKING:
    from aicf.compilation.sources import Dims

_RESULTS = "results.json"
"""The entry of the artifact that says what a call returns, see `returned.py`."""
_NO_EFFECT = {
    "fallback": "a saved program has no ops that PyTorch runs",
    "static_outputs": "each call of a loaded program returns new tensors",
    "memory_budget": "a saved program has no gradients",
    "cache_dir": "the file itself holds the programs",
    "max_programs": "dims says which programs are saved",
    "seed": "a loaded program takes its seeds from PyTorch's generator, see torch.manual_seed",
}
"""Options of `torch.compile` that `save` does not take, and why."""


def save(
    model: nn.Module,
    path: str | Path,
    args: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dims: Dims | None = None,
    options: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """Traces and compiles a module, and writes the programs without the weights.

    Args:
        model: In the mode in which it will run.
        path: Of the artifact.
        args, named: Example arguments, by position and by name.
        dynamic_shapes: As in `torch.export.export`.
        dims: Sizes of the symbolic dimensions of these; each combination gets a program.
        options: `target`, `policy`, `tuning` and `threads`, see `TorchOptions`.

    Raises:
        PolicyError: an option is not legal, or has no effect here.
        UnsupportedOp: the module returns what no artifact can say.
        Others as `aicf.compile`.
    """
    from aicf.compilation.compiler import compile
    from aicf.frontends.torch.exported import quiet_export
    from aicf.pytorch.compiling import default_threads
    from aicf.pytorch.options import TorchOptions, read_options

    model = getattr(model, "_orig_mod", model)
    chosen = read_options(options)
    defaults = TorchOptions()
    for name, why in _NO_EFFECT.items():
        if getattr(chosen, name) != getattr(defaults, name):
            raise PolicyError(f"options: {name} has no effect in save: {why}; leave it out")
    device = next((tensor.device.type for tensor in (*model.parameters(), *model.buffers())), "cpu")
    with quiet_export():
        exported = torch.export.export(
            model, tuple(args), dict(named or {}), dynamic_shapes=dynamic_shapes, strict=False
        )
    results = json.dumps(described(exported))
    compiled = compile(
        exported,
        target=chosen.target or device,
        dims=dims,
        policy=chosen.policy,
        tuning=chosen.tuning,
        threads=default_threads(chosen, device),
        name=type(model).__name__,
    )
    save_program(compiled, path, {_RESULTS: results.encode()})
    return compiled


def load(path: str | Path, module: nn.Module) -> Deployed:
    """Loads the programs of a file that `save` wrote; they run on the parameters and buffers of a module.

    A loaded program has no gradients: its results require none, whatever the inputs and parameters require.

    Args:
        module: Of the class that was saved, in any state. Each call reads the tensors that the module has then, also
            those that replaced others, and updates buffers in place.

    Raises:
        ArtifactError: the file cannot be read, or is for another kind of machine; or a class that the saved module
            returns is not here.
        InputMismatch: the module does not have the tensors that the programs read, or has them on another device.
    """
    path = path_from(path, ArtifactError, "the artifact")
    tensors = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    weights = {name: _weight(tensor) for name, tensor in tensors.items()}
    executable = load_program(path, weights, ModelWeights())
    return Deployed(executable, module, _read_returned(path, len(executable.outputs)))


def _weight(tensor: Tensor) -> Array:
    is_plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_neg()
    if is_plain and name_of(tensor.dtype) is not None:
        return host_view(tensor)
    return stand_in(tuple(tensor.shape), name_of(tensor.dtype) or "f32")


def _read_returned(path: Path, count: int) -> Make | None:
    """What makes the result of a call of so many tensors; None if the file does not say."""
    file = artifact.read(path)
    if _RESULTS not in file.entries:
        return None
    try:
        return maker(parse_json(file.text(_RESULTS)), count)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ArtifactError(
            f"entry '{_RESULTS}' of the artifact is not as it was written; save it again"
        ) from None


class Deployed:
    """Callable with tensors, by the position or name of the module's arguments.

    A call returns what the module returns: a tensor, or tensors in the same tuples, lists, dictionaries and other
    containers, such as the `ModelOutput` of transformers. Values that are no tensors are those of the trace. Results
    have no gradients.

    Args:
        executable: The programs.
        module: Whose parameters and buffers they run on.
        returned: Makes the result from the tensors; None takes a tensor for one result, a tuple for several.
    """

    def __init__(self, executable: CompiledModel, module: nn.Module, returned: Make | None = None) -> None:
        self._returned = returned
        self._device_type = "cpu" if executable.native.memory == "host" else "cuda"
        self._tensors = ModuleTensors(module, [bind.name for bind in executable.plan.weights])
        self._names = [spec.name for spec in executable.inputs if spec.name != SEED]
        self._dtypes = {spec.name: torch_dtype(spec.dtype) for spec in executable.inputs}
        tensors = self._tensors.now()
        self._check_weights(dict(zip(self._tensors.names, tensors, strict=True)))
        self._device = next((tensor.device for tensor in tensors), None)
        self.executable = executable = placed(executable, self._device)
        self._programs = [
            _Program(executable, plan, self._tensors.names, self._names) for plan in executable.plan.programs
        ]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """One run.

        Raises:
            InputMismatch: no program is for these inputs, an input is no dense tensor on the device of the programs,
                or the type, shape, strides or device of weights changed since the load.
        """
        weights = self._tensors.now()
        if len(args) == len(self._names) and not named:
            for program in self._programs:
                if (results := program.run_as_before(args, weights)) is not None:
                    return self._result(results)
        inputs = self._inputs(args, named)
        for program in self._programs:
            if program.fits(inputs):
                device = self._device or self._device_of(inputs)
                return self._result(program.run(tuple(inputs.values()), weights, device))
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in inputs.items())
        raise InputMismatch(f"no program was saved for {shapes}; add these sizes to dims and save again")

    def _inputs(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Tensor]:
        """The inputs by name, checked but for their sizes."""
        names = self._names
        listed = (
            f"{len(names)} input{'' if len(names) == 1 else 's'} ({', '.join(names)})"
            if names
            else "no inputs"
        )
        if len(args) > len(names):
            raise InputMismatch(f"the module takes {listed}; {len(args)} were given by position")
        inputs = dict(zip(names, args, strict=False))
        if twice := inputs.keys() & named.keys():
            raise InputMismatch(f"input '{min(twice)}' is given by position and by name; give it once")
        inputs |= named
        if unknown := [name for name in inputs if name not in names]:
            raise InputMismatch(f"the module takes {listed}, and none is called '{unknown[0]}'")
        if missing := [name for name in names if name not in inputs]:
            raise InputMismatch(f"the module takes {listed}; '{missing[0]}' is missing")
        device = self._device
        for name, value in inputs.items():
            check_memory(f"input '{name}'", value, self._device_type, device)
            device = device or value.device
            if value.dtype != self._dtypes[name]:
                raise InputMismatch(
                    f"input '{name}' is {value.dtype}, and the programs take {self._dtypes[name]}; cast it with "
                    f".to({self._dtypes[name]})"
                )
        return {name: inputs[name] for name in names}

    def _device_of(self, inputs: Mapping[str, Tensor]) -> torch.device:
        return next((value.device for value in inputs.values()), torch.device(self._device_type))

    def _result(self, values: Sequence[Tensor]) -> Any:
        if self._returned is not None:
            return self._returned(iter(values))
        return values[0] if len(values) == 1 else tuple(values)

    def _check_weights(self, tensors: Mapping[str, Tensor]) -> None:
        device: torch.device | None = None
        for name, tensor in tensors.items():
            check_memory(f"'{name}' of the module", tensor, self._device_type, device)
            device = device or tensor.device
            if not tensor.is_contiguous() or tensor.is_neg():
                raise InputMismatch(
                    f"'{name}' is not row-major in memory; make it so, as in p.data = p.data.contiguous(), and load "
                    "again"
                )


class _Program:
    """One program of the file.

    Args:
        executable: All programs.
        plan: Of this one.
        weights, inputs: Names, in the order in which `run` takes the tensors.
    """

    def __init__(
        self, executable: CompiledModel, plan: CapturePlan, weights: Sequence[str], inputs: Sequence[str]
    ) -> None:
        sizes = next((row.sizes for row in executable.plan.rows if row.program == plan.name), ())
        self._addressed = executable.addressed(**dict(zip(executable.plan.dims, sizes, strict=True)))
        self._inputs = [bind for bind in plan.graph.inputs if bind.name != SEED]
        self._has_seed = len(self._inputs) < len(plan.graph.inputs)
        self._outputs, self._seeds = [_form_of(bind) for bind in plan.graph.outputs], Seeds()
        self._launcher = Launcher(self._addressed, self._addressed.packs, PackedCopies())
        self._lock = threading.Lock()
        seed = [SEED] if self._has_seed else []
        names = [*weights, *inputs, *seed, *(bind.name for bind in plan.graph.outputs)]
        at = {name: index for index, name in enumerate(names)}
        self._pick = picker([at[name] for name in self._addressed.names])
        self._pick_packed = picker([at[name] for name in self._launcher.packed_names])
        self._latest: tuple[IsAlike, torch.device] = never_alike, torch.device("cpu")
        """Says whether inputs are like the latest ones, with their device: one tuple, as other threads replace it."""

    def fits(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether it is for tensors of these sizes and types."""
        return all(_fits(bind, inputs[bind.name]) for bind in self._inputs)

    def run(self, inputs: Sequence[Tensor], weights: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        """The results, in order, for tensors that fit."""
        plain = [value.contiguous().resolve_neg() for value in inputs]
        if inputs and all(map(is_, plain, inputs)):
            self._latest = alike(inputs), device
        return self._launch(plain, weights, device)

    def run_as_before(self, args: Sequence[Any], weights: Sequence[Tensor]) -> list[Tensor] | None:
        """The results, for arguments like those of the latest run that needed no copy of them; None for others."""
        is_alike, device = self._latest
        return self._launch(args, weights, device) if is_alike(*args) else None

    def _launch(
        self, inputs: Sequence[Tensor], weights: Sequence[Tensor], device: torch.device
    ) -> list[Tensor]:
        seed = [self._seeds.draw(device)] if self._has_seed else []
        results = list(starmap(empty_on(device), self._outputs))
        tensors = (*weights, *inputs, *seed, *results)
        addresses = list(map(Tensor.data_ptr, tensors))
        with self._lock:
            packed, packed_addresses = self._pick_packed(tensors), self._pick_packed(addresses)
            self._launcher.launch(self._pick(addresses), device, packed, packed_addresses)
        return results


_Form: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


def _form_of(bind: Bind) -> _Form:
    """Shape, strides and type of a row-major tensor."""
    dtype = torch_dtype(bind.dtype)
    return bind.shape, torch.empty(bind.shape, dtype=dtype, device="meta").stride(), dtype


def _fits(bind: Bind, tensor: Tensor) -> bool:
    return tuple(tensor.shape) == bind.shape and tensor.dtype == torch_dtype(bind.dtype)
