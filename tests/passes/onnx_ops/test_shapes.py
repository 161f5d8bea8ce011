"""ONNX ops about shapes against the reference implementation of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import aicf
from tests.support.onnx_models import Use, expect, expect_all, expect_known, expect_model

Array = NDArray[Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def list_of(*numbers: int) -> Array:
    return np.array(numbers, "i8")


def expect_lists(uses: list[tuple[str, list[int], dict[str, Any]]], x: Array, **options: Any) -> None:
    """Nodes of one tensor and a known list of integers each."""
    inputs, made = [x], list[Use]()
    for op_type, numbers, attributes in uses:
        made.append((op_type, [0, len(inputs)], attributes))
        inputs.append(list_of(*numbers))
    expect_all(made, inputs, known=range(1, len(inputs)), **options)


def test_shape_and_size() -> None:
    windows = ({}, {"start": 1}, {"end": -1}, {"start": -2, "end": 9}, {"start": -9})
    expect_all([("Size", [0], {}), *(("Shape", [0], window) for window in windows)], [normal(2, 3, 5)])


def test_reshapes() -> None:
    shapes = ([4, 6], [-1], [0, -1, 2], [2, 0, 2, 2], [1, 24, 1])
    expect_lists([("Reshape", shape, {}) for shape in shapes], normal(2, 3, 4))
    expect_known("Reshape", [normal(2, 3), list_of(3, 2)])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([5, -1], "has 24 elements, which do not fit into shape"),
        ([-1, -1], "has more than one -1"),
        ([2, 3, 4, 0], "keeps a size"),
    ],
)
def test_shapes_that_do_not_fit(shape: list[int], message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message):
        expect("Reshape", [normal(2, 3, 4), list_of(*shape)], known=[1], expected=[])


def test_a_shape_that_is_computed_at_run_time() -> None:
    with pytest.raises(aicf.UnsupportedOp, match="Reshape 'node': shape .* run time"):
        expect("Reshape", [normal(2, 3), list_of(3, 2)], expected=[])


def test_sizes_of_one_come_and_go() -> None:
    x = normal(1, 3, 1, 4)
    expect_lists([("Squeeze", [0], {}), ("Squeeze", [-2, 0], {}), ("Unsqueeze", [0, -1, 2], {})], x)
    expect("Squeeze", [x])
    expect("Squeeze", [x], opset=11, axes=[2])
    expect("Unsqueeze", [x], opset=11, axes=[0, 5])
    with pytest.raises(aicf.InvalidIR, match="are not all of size 1"):
        expect("Squeeze", [x, list_of(1)], known=[1], expected=[])


def test_flatten_and_transpose() -> None:
    axes = [("Flatten", [0], {"axis": axis}) for axis in (0, 1, 3, -1)]
    orders = [("Transpose", [0], {"perm": order}) for order in ([2, 0, 1], [0, 1, 2])]
    expect_all(
        [*axes, *orders, ("Flatten", [0], {}), ("Transpose", [0], {}), ("Identity", [0], {})],
        [normal(2, 3, 4)],
    )


def test_repetition() -> None:
    x = normal(3, 1)
    expect_lists(
        [("Expand", [2, 3, 4], {}), ("Expand", [1], {}), ("Expand", [3, 5], {}), ("Tile", [2, 3], {})], x
    )


def test_concatenation() -> None:
    inputs = [normal(2, 3), normal(2, 1, seed=1), normal(2, 3, seed=2)]
    expect_all(
        [("Concat", [0, 1, 2], {"axis": -1}), ("Concat", [0, 2], {"axis": 0}), ("Concat", [1], {"axis": 0})],
        inputs,
    )


def test_parts() -> None:
    x = normal(7, 4)
    expect("Split", [x, list_of(2, 4, 1)], 3, known=[1])
    expect("Split", [x], 3, num_outputs=3)
    expect("Split", [x], 2, opset=13, axis=-1)
    expect("Split", [x], 2, opset=11, split=[1, 3], axis=1)
    with pytest.raises(aicf.InvalidIR, match="do not add up to 7"):
        expect("Split", [x, list_of(2, 4)], 2, known=[1], expected=[])


def test_one_value_everywhere() -> None:
    value = numpy_helper.from_array(np.array([3], "i4"))
    expect("ConstantOfShape", [list_of(2, 3)], known=[0], value=value)
    expect("ConstantOfShape", [list_of(70, 80)], known=[0])
    expect("ConstantOfShape", [list_of()], known=[0])


def test_diagonals() -> None:
    x = normal(4, 5)
    uses = [("EyeLike", [0], {"k": k, "dtype": TensorProto.INT64}) for k in (-2, 0, 3)]
    expect_all([*uses, ("EyeLike", [0], {})], [x])


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [("i8", (2, 17, 3)), ("i4", (5, -6, -2)), ("f4", (0.5, 2.0, 0.25)), ("f8", (3, 0, -0.5))],
)
def test_ranges(dtype: str, numbers: tuple[float, ...]) -> None:
    expect_known("Range", [np.array(number, dtype) for number in numbers])


def test_a_range_that_is_no_constant() -> None:
    expect_known("Range", [np.array(number) for number in (0, 5000, 1)])


@pytest.mark.parametrize("k", [None, -5, -1, 0, 2, 7])
def test_triangles(k: int | None) -> None:
    x = normal(2, 4, 5)
    operands = [0] if k is None else [0, 1]
    uses = [("Trilu", operands, {"upper": upper}) for upper in (0, 1)]
    expect_all(uses, [x, np.array(k or 0)])


def test_dimensions_without_elements_inside_of_a_model() -> None:
    """What has no element is known, and what reads it goes on with what is left."""
    x = normal(2, 3)
    none = np.zeros((2, 0), "f4")
    expect_all([("Concat", [0, 1, 0], {"axis": 1})], [x, none], known=[1])


def test_a_large_splat_keeps_its_value_under_another_shape() -> None:
    ones = np.broadcast_to(np.float32(1), (70, 80))
    graph = helper.make_graph(
        [
            helper.make_node(
                "ConstantOfShape", ["shape"], ["ones"], value=numpy_helper.from_array(np.ones(1, "f4"))
            ),
            helper.make_node("Reshape", ["ones", "other"], ["rows"]),
            helper.make_node("Add", ["x", "rows"], ["y"]),
        ],
        "large_splat",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (80,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (70, 80))],
        [numpy_helper.from_array(list_of(5600), "shape"), numpy_helper.from_array(list_of(70, 80), "other")],
    )
    x = normal(80)
    expect_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), {"x": x}, [ones + x])
