"""Runs a call of ATen through AICF: traced, lowered, compiled for a target or evaluated by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch_cases import Case

from aicf.frontends.torch import Alias, Computed, Passed, lower_graph
from aicf.frontends.torch.decompositions import of_autograd
from aicf.pytorch.graphs import CompiledGraph, GraphInfo, new_name
from aicf.pytorch.options import TorchOptions
from aicf.pytorch.tensors import torch_dtype
from aicf.semantics import evaluate_block
from aicf.support.torch_types import host_view

TARGETS = ("cpu", "cuda", "reference")
_SEED = 7


def device_of(target: str) -> str:
    """The device of PyTorch that samples for a target are on."""
    return "cuda" if target == "cuda" else "cpu"


def run(case: Case, target: str) -> list[torch.Tensor]:
    """The results of a case, whose tensors are on the device of the target."""
    tensors = case.tensors
    module = _traced(case, tensors)
    if target == "reference":
        return _evaluated(module, tensors)
    graph = CompiledGraph(
        module, GraphInfo("inference", new_name("inference")), TorchOptions(target=target, threads=1)
    )
    return graph(list(tensors))


def _traced(case: Case, tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The functional graph of a call, as AOTAutograd would give it."""
    module = _graph(case, tensors, "mutations")
    if any(_writes(node) for node in module.graph.nodes):  # a decomposition wrote into a view
        module = _graph(case, tensors, "mutations_and_views")
    module.graph.eliminate_dead_code()
    return module


def _graph(case: Case, tensors: Sequence[torch.Tensor], remove: Any) -> torch.fx.GraphModule:
    functional = torch.func.functionalize(case, remove=remove)
    trace = make_fx(functional, of_autograd(), tracing_mode="fake", _allow_non_fake_inputs=True)
    return trace(*tensors)


def _writes(node: Any) -> bool:
    return node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)


def _evaluated(module: torch.fx.GraphModule, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """By the meaning of the logical ops alone, with floats in f64."""
    lowered = lower_graph(module.graph, "case")
    results: dict[str, Any] = {}
    if lowered.module is not None:
        function: Any = lowered.module.body.block.first_op
        feeds = {port.name: _array(tensors[port.index].permute(port.order)) for port in lowered.inputs}
        if lowered.has_seed:
            feeds["aicf.seed"] = np.array(_SEED, np.int64)
        arguments = [entry.data["logical.name"].data for entry in function.arg_attrs]
        names = [entry.data["logical.name"].data for entry in function.res_attrs]
        values = evaluate_block(function.body.block, [feeds[name] for name in arguments], "exact")
        results = dict(zip(names, values, strict=True))
    return [_result(output, tensors, results) for output in lowered.outputs]


def _array(tensor: torch.Tensor) -> Any:
    return host_view(tensor.contiguous())


def _result(output: Any, tensors: Sequence[torch.Tensor], results: dict[str, Any]) -> torch.Tensor:
    match output:
        case Computed(port):
            stored = torch.from_numpy(np.ascontiguousarray(results[port.name])).reshape(port.stored_shape)
            seen = stored.permute([list(port.order).index(axis) for axis in range(len(port.order))])
            return seen.to(torch_dtype(port.tensor.dtype))
        case Passed(placeholder):
            return tensors[placeholder]
        case Alias(placeholder, shape, strides, offset):
            source = tensors[placeholder]
            return source.as_strided(shape, strides, source.storage_offset() + offset)
        case _:
            return torch.empty(output.tensor.shape, dtype=torch_dtype(output.tensor.dtype))
