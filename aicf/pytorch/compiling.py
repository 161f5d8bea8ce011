"""Compiles logical programs of PyTorch's graphs, through the cache folder if the options name one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiling import compile_source, logical_text, resolve_options
from aicf.compilation.record import Options
from aicf.compilation.sources import Source
from aicf.engines.report import Report
from aicf.frontends.text import verify_module
from aicf.inference.cache import ProgramCache
from aicf.inference.packing import ModelWeights
from aicf.pytorch.devices import check_target
from aicf.pytorch.options import TorchOptions
from aicf.runtime.tensors import Array


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
        saved_share: See `aicf.compilation.record.Options`; for training steps.
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
    """The options of a compile for a device of PyTorch. Raises as `check_target`."""
    check_target(options, device)
    threads = default_threads(options, device.type)
    return Options(options.target or device.type, options.policy_line, "", threads, options.tuning_line)


def default_threads(options: TorchOptions, device_type: str) -> int:
    """The threads that the options state, else PyTorch's on the CPU and one on a GPU."""
    return options.threads or (torch.get_num_threads() if device_type == "cpu" else 1)
