"""Functions of PyTorch's tensors, traced, lowered and run by the NumPy meaning of logical ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx.experimental.proxy_tensor import make_fx
from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp

from aicf.dialects.logical import NAME_ATTR
from aicf.frontends.torch import Alias, Computed, Lowered, Passed, Void, lower_graph
from aicf.frontends.torch.lowering import SEED
from aicf.semantics import evaluate_block
from aicf.support.torch_types import host_view

Array = NDArray[Any]


def array_of(tensor: torch.Tensor) -> Array:
    """A tensor as an array, also of types that NumPy does not have."""
    tensor = tensor.detach().contiguous()
    return host_view(tensor)


def lowered(fn: Callable[..., Any], *tensors: torch.Tensor) -> Lowered:
    """The logical program of what a function does with tensors."""

    def listed(*given: torch.Tensor) -> list[torch.Tensor]:
        result = fn(*given)
        return list(result) if isinstance(result, list | tuple) else [result]

    functional = torch.func.functionalize(listed, remove="mutations")
    traced = make_fx(functional, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    traced.graph.eliminate_dead_code()
    return lower_graph(traced.graph, "f")


def lowered_outputs(fn: Callable[..., Any], *tensors: torch.Tensor, seed: int = 7) -> list[Array]:
    """What a function gives for tensors, through `lower_graph`; floats are computed in f64."""
    program = lowered(fn, *tensors)
    results = _run(program, tensors, seed) if program.module is not None else {}
    return [_output(output, tensors, results) for output in program.outputs]


def _run(program: Lowered, tensors: tuple[torch.Tensor, ...], seed: int) -> dict[str, Array]:
    assert program.module is not None
    function = cast(FuncOp, program.module.body.block.first_op)
    feeds = {
        port.name: array_of(tensors[port.index].permute(port.order))
        if port.order
        else array_of(tensors[port.index])
        for port in program.inputs
    }
    feeds[SEED] = np.array(seed, np.int64)
    arguments, results = function.arg_attrs, function.res_attrs
    assert arguments is not None
    assert results is not None
    values = evaluate_block(function.body.block, [feeds[_name(entry)] for entry in arguments], "exact")
    return {_name(entry): value for entry, value in zip(results, values, strict=True)}


def _name(entry: DictionaryAttr) -> str:
    return cast(StringAttr, entry.data[NAME_ATTR]).data


def _output(output: object, tensors: tuple[torch.Tensor, ...], results: dict[str, Array]) -> Array:
    match output:
        case Computed(port):
            found = results[port.name]
            return found.transpose([port.order.index(axis) for axis in range(len(port.order))])
        case Passed(placeholder):
            return array_of(tensors[placeholder])
        case Alias(placeholder, shape, strides, offset):
            source = tensors[placeholder]
            return array_of(source.as_strided(shape, strides, source.storage_offset() + offset))
        case Void(tensor):
            return np.empty(tensor.shape)
        case _:
            raise AssertionError(f"no tensor: {output}")


TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-7}
"""How far a result may be off, relative to it and to 1; some constants of PyTorch are f32."""


def assert_like_eager(fn: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """A function gives what PyTorch gives for it, floats computed in f64."""
    eager = fn(*tensors)
    wide = fn(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors))
    theirs, exact = (list(each) if isinstance(each, list | tuple) else [each] for each in (eager, wide))
    for own, typed, result in zip(lowered_outputs(fn, *tensors), theirs, exact, strict=True):
        assert own.shape == typed.shape
        if not typed.is_floating_point():
            np.testing.assert_array_equal(own, array_of(typed))
            continue
        given = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        tolerance = max(TOLERANCES[dtype] for dtype in [typed.dtype, *given])
        np.testing.assert_allclose(
            own.astype(np.float64), array_of(result).astype(np.float64), rtol=tolerance, atol=tolerance
        )
