"""Memory of other libraries and of the host at the boundary of a program on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu.harness import assert_right, executable, program, results

pytestmark = pytest.mark.gpu

NAMES = ("chain-1", "encoder-f16", "wgmma-dense-bf16", "norms-f32", "library-dense")
"""Programs whose inputs are read by generated kernels, products, through TMA descriptors, and staged for a library."""


class Interface:
    """A tensor behind `__cuda_array_interface__` alone."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def on_gpu(array: np.ndarray) -> Any:
    """A torch tensor with the array's bits."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(array).cuda()


def to_host(tensor: Any, like: np.ndarray) -> np.ndarray:
    """The tensor's elements as an array of the type of `like`."""
    import torch

    raw = tensor.view(torch.int16) if like.dtype.name == "bfloat16" else tensor
    return raw.cpu().numpy().view(like.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_torch_are_read_and_written_in_place(name: str) -> None:
    """Bound by DLPack; new values in the same tensors, and then other tensors, are what the next replay reads."""
    import torch

    model, made = executable(name), program(name)
    inputs = {key: on_gpu(value) for key, value in made.inputs.items()}
    like = model.run(made.inputs)
    outputs = {key: torch.full_like(on_gpu(value), float("nan")) for key, value in like.items()}
    graph_exec = model.bind({**inputs, **outputs})
    graph_exec.replay()
    graph_exec.synchronize()
    found = {key: to_host(value, like[key]) for key, value in outputs.items()}
    assert_right(name, found)
    for value in inputs.values():
        value.zero_()
    graph_exec.replay()
    graph_exec.synchronize()
    assert any((to_host(value, like[key]) != found[key]).any() for key, value in outputs.items())
    graph_exec.bind({key: on_gpu(value) for key, value in made.inputs.items()})
    graph_exec.replay()
    graph_exec.synchronize()
    for key, value in outputs.items():
        assert to_host(value, like[key]).tobytes() == like[key].tobytes()


def test_the_cuda_array_interface_binds_too() -> None:
    """In and out: what torch gives by the interface is bound, and what we give by it is a tensor of torch."""
    import torch

    model, made = executable("norms-f32"), program("norms-f32")
    graph_exec = model.bind({key: Interface(on_gpu(value)) for key, value in made.inputs.items()})
    graph_exec.replay()
    graph_exec.synchronize()
    assert_right("norms-f32", results(graph_exec))
    for bind in graph_exec.plan.graph.outputs:
        tensor = torch.as_tensor(graph_exec[bind.name], device="cuda")
        assert tensor.data_ptr() == graph_exec[bind.name].__cuda_array_interface__["data"][0]
        np.testing.assert_array_equal(tensor.cpu().numpy(), graph_exec[bind.name].numpy())


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_the_host_are_staged(name: str) -> None:
    """A call on NumPy arrays, one on tensors of torch, and a bound host array give the same bits."""
    model, made = executable(name), program(name)
    called = model.run(made.inputs)
    assert_right(name, called)
    in_place = model.run({key: on_gpu(value) for key, value in made.inputs.items()})
    graph_exec = model.bind({key: np.ascontiguousarray(value) for key, value in made.inputs.items()})
    graph_exec.replay()
    for key, value in results(graph_exec).items():
        assert value.tobytes() == called[key].tobytes() == in_place[key].tobytes()
