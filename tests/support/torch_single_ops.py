"""Single ops of ATen through the frontend, as they are: tracing would take many of them apart."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from xdsl.dialects.func import FuncOp

from aicf.frontends.torch import Computed, Lowered, Void, lower_graph
from aicf.semantics import evaluate_block
from tests.support.elementwise_ops import Array
from tests.support.torch_tensors import array_of

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def assert_op(
    op: Any,
    *arguments: Any,
    types: Sequence[torch.dtype] = TYPES,
    like: Callable[..., Any] | None = None,
    **named: Any,
) -> None:
    """An op gives what it gives in eager mode in f64, of tensors of each type; meanings are computed in f64 too.

    Args:
        like: What to call in place of an op that has no kernel here.
    """
    for dtype in types:
        given, given_named = pytree.tree_map(partial(_rounded, dtype=dtype), (arguments, named))
        expected = (like or op)(*pytree.tree_map(_wide, given), **pytree.tree_map(_wide, given_named))
        single = isinstance(expected, torch.Tensor)
        found = op_outputs(op, *given, **given_named)
        for own, theirs in zip(found, [expected] if single else expected, strict=True):
            if own is not None:
                np.testing.assert_allclose(own, array_of(theirs), rtol=1e-6, atol=1e-6)


def _rounded(leaf: Any, dtype: torch.dtype) -> Any:
    return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _wide(leaf: Any) -> Any:
    return _rounded(leaf, torch.float64)


def op_program(op: Any, *arguments: Any, **named: Any) -> tuple[Lowered, list[torch.Tensor]]:
    """The program of one op, all of whose results are read, and the tensors that it is called with."""
    leaves, spec = pytree.tree_flatten((arguments, named))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    graph = torch.fx.Graph()
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in tensors]
        given, given_named = _in_places(leaves, spec, fakes)
        result = op(*given, **given_named)
    nodes: list[torch.fx.Node] = []
    for number, fake in enumerate(fakes):
        nodes.append(graph.placeholder(f"x{number}"))
        nodes[-1].meta["val"] = fake
    given, given_named = _in_places(leaves, spec, nodes)
    call = graph.call_function(op, tuple(given), given_named)
    call.meta["val"] = result
    graph.output(tuple(_items(graph, call, result)))
    return lower_graph(graph, "f"), tensors


def op_outputs(op: Any, *arguments: Any, **named: Any) -> list[Array | None]:
    """What the program of one op computes, floats in f64; None for what is no tensor."""
    program, tensors = op_program(op, *arguments, **named)
    computed: dict[str, Array] = {}
    if program.module is not None:
        function = program.module.body.block.first_op
        assert isinstance(function, FuncOp)
        feeds = {port.name: array_of(tensors[port.index].permute(port.order)) for port in program.inputs}
        given = [feeds[_name_of(entry)] for entry in function.arg_attrs or ()]
        results = map(_name_of, function.res_attrs or ())
        computed = dict(zip(results, evaluate_block(function.body.block, given, "exact"), strict=True))
    return [_array(output, computed) for output in program.outputs]


def _in_places(leaves: Sequence[Any], spec: Any, others: Sequence[Any]) -> Any:
    """The arguments with something else in the place of each tensor."""
    rest = iter(others)
    return pytree.tree_unflatten(
        [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
    )


def _items(graph: torch.fx.Graph, call: torch.fx.Node, result: Any) -> list[torch.fx.Node | None]:
    if isinstance(result, torch.Tensor):
        return [call]
    items: list[torch.fx.Node | None] = []
    for index, fake in enumerate(result):
        if not isinstance(fake, torch.Tensor):
            items.append(None)
            continue
        item = graph.call_function(operator.getitem, (call, index))
        item.meta["val"] = fake
        items.append(item)
    return items


def _array(output: object, computed: dict[str, Array]) -> Array | None:
    match output:
        case Computed(port):
            back = [port.order.index(axis) for axis in range(len(port.order))]
            return np.asarray(computed[port.name]).transpose(back)
        case Void(tensor):
            return np.empty(tensor.shape)
        case _:
            return None


def _name_of(entry: Any) -> str:
    return str(entry.data["logical.name"].data)
