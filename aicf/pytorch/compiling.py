"""Compiles logical programs of PyTorch's graphs, through the cache folder if the options name one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from aicf.compiled import CompiledModel, Options
from aicf.compiler import compile_source, logical_text, resolve_options
from aicf.errors import PolicyError
from aicf.frontends.text import verify_module
from aicf.inference.cache import ProgramCache
from aicf.inference.packing import ModelWeights
from aicf.inference.report import Report
from aicf.pytorch.options import TorchOptions
from aicf.runtime.tensors import Array
from aicf.sources import Source


def compiled_for(
    source: Source,
    weights: Mapping[str, Array],
    options: TorchOptions,
    device: torch.device,
    shared: ModelWeights,
    saved_share: float = 1.0,
) -> tuple[CompiledModel, str]:
    """Compiles a program for a device of PyTorch, or loads it, and says which. Raises as `aicf.compile`.

    Args:
        saved_share: See `aicf.compiled.Options`; for training steps.
    """
    verify_module(source.module)
    own = replace(options_for(options, device), policy=options.own_policy_line, saved_share=saved_share)
    resolved = resolve_options(source, own)

    def compile_it() -> CompiledModel:
        return compile_source(source, weights, resolved, shared)

    if (folder := options.folder) is None:
        return compile_it(), "compiled"
    report = Report()
    report.name = source.name
    model, loaded_from, cache_note = ProgramCache(folder, report).load_or_compile(
        f"@{source.name}", logical_text(source.module), resolved, weights, shared, compile_it
    )
    return model, f"compiled, {cache_note}" if loaded_from is None else f"loaded {loaded_from}"


def options_for(options: TorchOptions, device: torch.device) -> Options:
    """The options of a compile for a device of PyTorch."""
    threads = default_threads(options, device.type)
    return Options(options.target or device.type, options.policy_line, "", threads, options.tuning_line)


def default_threads(options: TorchOptions, device_type: str) -> int:
    """The threads that the options state, else PyTorch's on the CPU and one on a GPU."""
    return options.threads or (torch.get_num_threads() if device_type == "cpu" else 1)


def device_of(values: Iterable[Any]) -> torch.device:
    """The device of all tensors; tensors of rank 0 on the host go with any device.

    Raises:
        PolicyError: there are several, or it is neither the CPU nor a GPU of CUDA.
    """
    tensors = [value for value in values if isinstance(value, Tensor)]
    devices = {tensor.device for tensor in tensors if tensor.dim() or tensor.device.type != "cpu"}
    if len(devices) > 1:
        listed = ", ".join(sorted(map(str, devices)))
        raise PolicyError(
            f"tensors of one graph are on {listed}; move the model and its inputs to one device"
        )
    device = devices.pop() if devices else torch.device("cpu")
    if device.type not in ("cpu", "cuda"):
        raise PolicyError(f"the tensors of a graph are on {device}; move them to the CPU or to a GPU of CUDA")
    return device
