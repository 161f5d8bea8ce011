"""The backend of `torch.compile`: `torch.compile(model, backend="aicf", options={...})`.

TorchDynamo traces the graph of a function; AOTAutograd functionalizes it, and in training adds the gradients. Each of
the resulting graphs of ATen ops becomes a `CompiledGraph`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from aicf.frontends.torch.decompositions import of_autograd
from aicf.frontends.torch.nodes import check_ops
from aicf.pytorch.fallback import PartlyCompiled, Run, is_compiled
from aicf.pytorch.graphs import CompiledGraph, GraphInfo, Kind, Owners, new_name
from aicf.pytorch.options import TorchOptions, check_mode, read_options
from aicf.pytorch.partition import Partition, partition
from aicf.pytorch.registry import register
from aicf.pytorch.traced import Traced


def aicf_backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that TorchDynamo traced.

    Args:
        module: The graph.
        inputs: Example arguments.
        options: See `TorchOptions`.
        mode: One of the modes that `torch.compile` has for Inductor. It has no effect: AICF selects kernels and
            schedules the program ahead of time in any case.

    Raises:
        PolicyError: an option is not legal, or there is no such mode.
        UnsupportedOp: an op of the graph has no counterpart, and the option `fallback` is `error`.
    """
    chosen = read_options(options)
    check_mode(mode)
    owners: Owners = []
    partition_info, traced = Partition(), Traced.of(module)
    compile_with = aot_autograd(
        fw_compiler=partial(_compiled, "forward", chosen, owners, partition_info, traced),
        bw_compiler=partial(_compiled, "backward", chosen, owners, partition_info, traced),
        inference_compiler=partial(_compiled, "inference", chosen, owners, partition_info, traced),
        partition_fn=partial(partition, chosen, partition_info),
        decompositions=of_autograd(),
        keep_inference_input_mutations=True,
    )
    return compile_with(module, inputs)


def _compiled(
    kind: Kind,
    options: TorchOptions,
    owners: Owners,
    partition_info: Partition,
    traced: Traced,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
) -> Run:
    module.graph.eliminate_dead_code()
    info = GraphInfo(kind, new_name(kind), owners=owners, partition=partition_info, traced=traced)
    if options.fallback == "eager" and not all(map(is_compiled, module.graph.nodes)):
        parts = PartlyCompiled(info.name, module)
        info.eager = parts.eager
        parts.compile(partial(_part, info, options))
        return register(parts)
    check_ops(module.graph)
    info.names = traced.names(module.graph)
    info.params = _static_inputs() if kind == "inference" else frozenset[int]()
    return register(CompiledGraph(module, info, options))


def _part(info: GraphInfo, options: TorchOptions, module: torch.fx.GraphModule, number: int) -> Run:
    return register(CompiledGraph(module, replace(info, name=f"{info.name}.{number}"), options))


def _static_inputs() -> frozenset[int]:
    """The indices of arguments that are parameters and buffers."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return frozenset() if metadata is None else frozenset(metadata.static_input_indices)
