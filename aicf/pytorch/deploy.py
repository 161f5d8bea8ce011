"""`save` and `load`: programs that run on the weights of a module, in a process that neither traces nor compiles."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aicf.arguments import path_from
from aicf.compiled import CompiledModel, load_program
from aicf.compiler import compile
from aicf.errors import ArtifactError, InputMismatch
from aicf.frontends.torch.element_types import host_view, name_of
from aicf.inference.packing import ModelWeights
from aicf.pytorch.compiling import default_threads
from aicf.pytorch.launcher import Launcher, PackedCopies
from aicf.pytorch.options import read_options
from aicf.pytorch.step_checks import signature_of, tensors_of
from aicf.pytorch.tensors import stand_in, torch_dtype
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.tensors import Array
from aicf.sources import Dims


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
        options: See `TorchOptions`.

    Raises:
        As `aicf.compile`.
    """
    model = getattr(model, "_orig_mod", model)
    chosen = read_options(options)
    device = next((tensor.device.type for tensor in (*model.parameters(), *model.buffers())), "cpu")
    exported = torch.export.export(
        model, tuple(args), dict(named or {}), dynamic_shapes=dynamic_shapes, strict=False
    )
    compiled = compile(
        exported,
        target=chosen.target or device,
        dims=dims,
        policy=chosen.policy,
        tuning=chosen.tuning,
        threads=default_threads(chosen, device),
        name=type(model).__name__,
    )
    compiled.save(path, weights=False)
    return compiled


def load(path: str | Path, module: nn.Module) -> Deployed:
    """Loads the programs of a file that `save` wrote; they run on the parameters and buffers of a module.

    Args:
        module: Of the class that was saved, in any state. Its tensors are read and updated in place. Tensors that
            replace them later, as by `load_state_dict(assign=True)`, are not seen: load again.

    Raises:
        ArtifactError: the file cannot be read, or is for another kind of machine.
        InputMismatch: the module does not have the tensors that the programs read.
    """
    path = path_from(path, ArtifactError, "the artifact")
    tensors = tensors_of(module)
    weights = {name: _weight(tensor) for name, tensor in tensors.items()}
    return Deployed(load_program(path, weights, ModelWeights()), tensors)


def _weight(tensor: Tensor) -> Array:
    if tensor.device.type == "cpu":
        return host_view(tensor)
    return stand_in(tuple(tensor.shape), name_of(tensor.dtype) or "f32")


class Deployed:
    """Callable with tensors, by the position or name of the module's arguments; returns a tensor, or a tuple of them.

    Args:
        executable: The programs.
        tensors: Parameters and buffers by name.
    """

    def __init__(self, executable: CompiledModel, tensors: Mapping[str, Tensor]) -> None:
        self.executable, self._tensors = executable, tensors
        self._signature = signature_of(tensors)
        self._check_dense()
        self._programs = [_Program(executable, plan, tensors) for plan in executable.plan.programs]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """One run.

        Raises:
            InputMismatch: no program is for these inputs, or weights were cast, resized or permuted since the load.
        """
        if signature_of(self._tensors) != self._signature:
            raise InputMismatch(
                "the type, shape or strides of parameters or buffers have changed since the programs were loaded; load "
                "again"
            )
        names = [spec.name for spec in self.executable.inputs]
        inputs = {**dict(zip(names, args, strict=False)), **named}
        if set(inputs) != set(names) or len(args) > len(names):
            raise InputMismatch(f"the module takes {', '.join(names)}; got {', '.join(inputs) or 'none'}")
        for program in self._programs:
            if program.fits(inputs):
                results = program.run(inputs)
                return results[0] if len(results) == 1 else tuple(results)
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in inputs.items())
        raise InputMismatch(f"no program was saved for {shapes}; add these sizes to dims and save again")

    def _check_dense(self) -> None:
        for name in {bind.name for bind in self.executable.plan.weights} & self._tensors.keys():
            if not self._tensors[name].is_contiguous():
                raise InputMismatch(
                    f"'{name}' is not row-major in memory; make it so, as in p.data = p.data.contiguous(), and load "
                    "again"
                )


class _Program:
    """One program of the file."""

    def __init__(self, executable: CompiledModel, plan: CapturePlan, tensors: Mapping[str, Tensor]) -> None:
        sizes = next((row.sizes for row in executable.plan.rows if row.program == plan.name), ())
        self._addressed = executable.addressed(**dict(zip(executable.plan.dims, sizes, strict=True)))
        self._inputs, self._outputs, self._tensors = plan.graph.inputs, plan.graph.outputs, tensors
        self._launcher = Launcher(self._addressed, self._addressed.packs, PackedCopies())
        self._lock = threading.Lock()

    def fits(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether it is for tensors of these sizes and types."""
        return all(_fits(bind, inputs[bind.name]) for bind in self._inputs)

    def run(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """The results for tensors that fit."""
        inputs = {name: value.contiguous() for name, value in inputs.items()}
        device = next(iter((*inputs.values(), *self._tensors.values()))).device
        results = {
            bind.name: torch.empty(bind.shape, dtype=torch_dtype(bind.dtype), device=device)
            for bind in self._outputs
        }
        tensors = {**self._tensors, **inputs, **results}
        addresses = [tensors[name].data_ptr() for name in self._addressed.names]
        with self._lock:
            packed = [self._tensors[name] for name in self._launcher.packed_names]
            self._launcher.launch(addresses, device, packed)
        return list(results.values())


def _fits(bind: Bind, tensor: Tensor) -> bool:
    return tuple(tensor.shape) == bind.shape and tensor.dtype == torch_dtype(bind.dtype)
