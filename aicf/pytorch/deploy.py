"""`save` and `load`: a compiled module where nothing is traced or compiled, on the weights of a module there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import aicf
from aicf.arguments import path_from
from aicf.compiled import CompiledModel, load_program
from aicf.errors import ArtifactError, InputMismatch
from aicf.inference.packing import ModelWeights
from aicf.pytorch.compiling import current_stream, is_capturing
from aicf.pytorch.options import read_options
from aicf.pytorch.programs import Packed, Packing
from aicf.pytorch.step_checks import forms_of, tensors_of
from aicf.pytorch.tensors import host_view, stand_in, torch_dtype
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
        model: In the mode that it is to run in.
        path: Of the artifact.
        args, named: What it is called with, as examples.
        dynamic_shapes: As of `torch.export.export`.
        dims: Sizes of the symbolic dimensions that follow, one program for each.
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
    threads = chosen.threads or (torch.get_num_threads() if device == "cpu" else 1)
    compiled = aicf.compile(
        exported,
        target=chosen.target or device,
        dims=dims,
        policy=chosen.policy,
        tuning=chosen.tuning,
        threads=threads,
        name=type(model).__name__,
    )
    compiled.save(path, weights=False)
    return compiled


def load(path: str | Path, module: nn.Module) -> Deployed:
    """The programs of a file that `save` wrote, on the parameters and buffers of a module.

    Args:
        module: Of the class that was saved, in whatever state; what it has now is read and updated where it is.
            Parameters that take their place later, as by `load_state_dict(assign=True)`, are not seen: load again.

    Raises:
        ArtifactError: the file cannot be read, or is for another kind of machine.
        InputMismatch: the module has not the tensors that the programs read.
    """
    path = path_from(path, ArtifactError, "the artifact")
    tensors = tensors_of(module)
    weights = {name: _weight(tensor) for name, tensor in tensors.items()}
    return Deployed(load_program(path, weights, ModelWeights()), tensors)


def _weight(tensor: Tensor) -> Array:
    if tensor.device.type == "cpu":
        return host_view(tensor)
    name = next(name for name in _NAMES if torch_dtype(name) == tensor.dtype)
    return stand_in(tuple(tensor.shape), name)


_NAMES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "i1")


class Deployed:
    """Callable with tensors in the order of the module's arguments, or by name; gives a tensor, or a tuple of them.

    Args:
        executable: The programs.
        tensors: Parameters and buffers by name.
    """

    def __init__(self, executable: CompiledModel, tensors: Mapping[str, Tensor]) -> None:
        self.executable, self._tensors = executable, tensors
        self._forms = forms_of(tensors)
        self._check_dense()
        self._programs = [_Program(executable, plan, tensors) for plan in executable.plan.programs]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """One run.

        Raises:
            InputMismatch: no program is for these inputs, or weights were cast, resized or turned since the load.
        """
        if forms_of(self._tensors) != self._forms:
            raise InputMismatch(
                "parameters or buffers have another type, size or order than when the programs were loaded; load again"
            )
        names = [spec.name for spec in self.executable.inputs]
        given = {**dict(zip(names, args, strict=False)), **named}
        if set(given) != set(names) or len(args) > len(names):
            raise InputMismatch(
                f"the module takes {', '.join(names)}; given are {', '.join(given) or 'none'}"
            )
        for program in self._programs:
            if program.fits(given):
                results = program.run(given)
                return results[0] if len(results) == 1 else tuple(results)
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in given.items())
        raise InputMismatch(f"no program was saved for {shapes}; save it with these sizes in dims")

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
        self._packing = Packing(self._addressed, self._addressed.packs, Packed())
        self._lock = threading.Lock()

    def fits(self, given: Mapping[str, Tensor]) -> bool:
        """Whether it is for tensors of these sizes and types."""
        return all(_fits(bind, given[bind.name]) for bind in self._inputs)

    def run(self, given: Mapping[str, Tensor]) -> list[Tensor]:
        """The results for tensors that fit."""
        placed = {name: value.contiguous() for name, value in given.items()}
        device = next(iter((*placed.values(), *self._tensors.values()))).device
        results = {
            bind.name: torch.empty(bind.shape, dtype=torch_dtype(bind.dtype), device=device)
            for bind in self._outputs
        }
        at = {**self._tensors, **placed, **results}
        with self._lock:
            stream = current_stream(device)
            packed = [self._tensors[name] for name in self._packing.names]
            if packed:
                self._packing.update(packed, [tensor.data_ptr() for tensor in packed], stream)
            launch = self._addressed.queue if is_capturing(device) else self._addressed.run
            launch([at[name].data_ptr() for name in self._addressed.names], stream)
        return list(results.values())


def _fits(bind: Bind, tensor: Tensor) -> bool:
    return tuple(tensor.shape) == bind.shape and tensor.dtype == torch_dtype(bind.dtype)
