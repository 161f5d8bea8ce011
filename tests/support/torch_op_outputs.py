"""Single ops of ATen through the frontend, as they are: tracing takes many apart."""

from __future__ import annotations

import operator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp

from aicf.dialects.logical import NAME_ATTR
from aicf.frontends.torch import Computed, Lowered, Void, lower_graph
from aicf.semantics import evaluate_block
from tests.support.torch_tensors import array_of

Array = npt.NDArray[Any]


def op_outputs(op: Any, *arguments: Any, **named: Any) -> list[Array]:
    """What the program of a call computes, floats in f64: one array for each tensor that the op returns."""
    return op_outputs_on("cpu", op, *arguments, **named)


def op_outputs_on(device: str, op: Any, *arguments: Any, **named: Any) -> list[Array]:
    """What the program computes if the tensors are on a device when the call is traced."""
    leaves, spec = pytree.tree_flatten((arguments, named))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    graph = torch.fx.Graph()
    with FakeTensorMode():
        fakes = [_fake_on(device, tensor) for tensor in tensors]
        given, given_named = _called_with(leaves, spec, fakes)
        # A copy: views of arguments would not be computed.
        result = pytree.tree_map(lambda fake: fake.contiguous().clone(), op(*given, **given_named))
    nodes = [graph.placeholder(f"x{number}") for number in range(len(fakes))]
    for node, fake in zip(nodes, fakes, strict=True):
        node.meta["val"] = fake
    given, given_named = _called_with(leaves, spec, nodes)
    call = graph.call_function(op, tuple(given), given_named)
    call.meta["val"] = result
    graph.output(tuple(_results(graph, call)))
    return _computed(lower_graph(graph, "f"), tensors)


def _fake_on(device: str, tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _called_with(leaves: list[Any], spec: Any, tensors: list[Any]) -> Any:
    """Arguments with others in place of their tensors."""
    rest = iter(tensors)
    return pytree.tree_unflatten(
        [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
    )


def _results(graph: torch.fx.Graph, call: torch.fx.Node) -> list[torch.fx.Node]:
    result = call.meta["val"]
    if isinstance(result, torch.Tensor):
        return [call]
    items: list[torch.fx.Node] = []
    for index, fake in enumerate(result):
        item = graph.call_function(operator.getitem, (call, index))
        item.meta["val"] = fake
        items.append(item)
    return items


def _computed(lowered: Lowered, tensors: list[torch.Tensor]) -> list[Array]:
    assert lowered.module is not None
    function = cast(FuncOp, lowered.module.body.block.first_op)
    feeds = {port.name: array_of(tensors[port.index].contiguous()) for port in lowered.inputs}
    arguments = [feeds[_name(entry)] for entry in function.arg_attrs or ()]
    values = evaluate_block(function.body.block, arguments, "exact")
    computed = dict(zip(map(_name, function.res_attrs or ()), values, strict=True))
    found: list[Array] = []
    for output in lowered.outputs:
        assert isinstance(output, Computed | Void)
        found.append(
            np.asarray(computed[output.port.name])
            if isinstance(output, Computed)
            else np.empty(output.tensor.shape)
        )
    return found


def _name(entry: DictionaryAttr) -> str:
    return cast(StringAttr, entry.data[NAME_ATTR]).data
