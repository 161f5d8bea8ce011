"""Sizes of a model's inputs: names of ONNX, and what exporters write where a size has none."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import aicf
from aicf.errors import InvalidIR, PolicyError


def relu(shape: list[int | str | None]) -> bytes:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        (["batch", 3], {"batch": 2}),
        ([None, 3, None], {"x_0": 2, "x_2": 4}),
        # Paddle: two sizes that it does not know are two sizes.
        ([-1, 3, "?", "?"], {"x_0": 2, "x_2": 4, "x_3": 5}),
        (["p2o.DynamicDimension.0", "?"], {"p2o_DynamicDimension_0": 2, "x_1": 3}),
        (["x_1", None], {"x_1": 2, "x_1_1": 3}),
        (["n", "2*n + 1"], {"n": 2}),
    ],
)
def test_open_sizes_have_names(shape: list[int | str | None], dims: dict[str, int]) -> None:
    exe = aicf.compile(relu(shape), dims=dims)
    (spec,) = exe.inputs
    x = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
    assert 1 not in x.shape and x.shape[0] == 2
    np.testing.assert_array_equal(exe(x), np.maximum(x, 0))


def test_the_names_are_told() -> None:
    with pytest.raises(PolicyError, match="x_0, x_2"):
        aicf.compile(relu([-1, 3, "?"]), dims={"N": 1})


def test_a_negative_size_is_none() -> None:
    with pytest.raises(
        InvalidIR, match="input 'x': dimension 0 has size -2; a size that is not known has a name"
    ):
        aicf.compile(relu([-2, 3]))


def test_arithmetic_that_gives_a_negative_size() -> None:
    with pytest.raises(PolicyError, match=r'input "x" is nx\(n - 4\)xf32: a size is -2 for n=2'):
        aicf.compile(relu(["n", "n - 4"]), dims={"n": 2})


def test_a_size_that_contradicts_another_input() -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "add", info[:2], info[2:])
    exe = aicf.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), dims={"n": [1, 2]}
    )
    with pytest.raises(aicf.InputMismatch, match="n"):
        exe(np.ones((1, 3), np.float32), np.ones((2, 3), np.float32))
