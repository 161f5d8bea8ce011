"""Initializers that several nodes of an ONNX model read: trained as one with a warning, or as one copy a reader."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import aicf

Array = NDArray[Any]
SGD = aicf.optimizers.SGD(0.5)
KINDS = ("weight", "bias")
NORMS = 5
WIDTH = 300
"""Of the wide model: its initializers are too large for constants."""


def norms(width: int) -> onnx.ModelProto:
    """Five layer norms of [6, width] with tanh between them, as PyTorch's exporter leaves them at their start.

    One scale and one shift are stored. Norms 1 and 2 read them through Identity nodes called after their own; 0, 3 and
    4 read them as they are.
    """
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for norm in range(NORMS):
        names = [f"norm{norm if norm in (1, 2) else 0}.{kind}" for kind in KINDS]
        if norm in (1, 2):
            nodes += [
                helper.make_node("Identity", [f"norm0.{kind}"], [name], name=f"copy_{name}")
                for kind, name in zip(KINDS, names, strict=True)
            ]
        nodes.append(
            helper.make_node("LayerNormalization", [value, *names], [f"h{norm}"], name=f"/norm{norm}")
        )
        value = f"h{norm}"
        if norm < NORMS - 1:
            nodes.append(helper.make_node("Tanh", [value], [f"t{norm}"], name=f"/tanh{norm}"))
            value = f"t{norm}"
    shape = [6, width]
    values = {"norm0.weight": np.ones(width), "norm0.bias": np.zeros(width)}
    graph = helper.make_graph(
        nodes,
        "norms",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)],
        [helper.make_tensor_value_info(value, TensorProto.DOUBLE, shape)],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def copy_of(kind: str, norm: int) -> str:
    """The documented name of the parameter of one norm."""
    return {0: f"norm0.{kind}", 1: f"norm1.{kind}", 2: f"norm2.{kind}"}.get(norm, f"norm0.{kind}@/norm{norm}")


def output(x: Array, scales: Array, shifts: Array) -> Array:
    """The model in f64 by hand, with parameters [norm, width]."""
    for norm in range(NORMS):
        centered = x - x.mean(1, keepdims=True)
        x = centered / np.sqrt((centered**2).mean(1, keepdims=True) + float(np.float32(1e-5)))
        x = x * scales[norm] + shifts[norm]
        x = np.tanh(x) if norm < NORMS - 1 else x
    return x


def gradients(x: Array, y: Array, scales: Array, shifts: Array) -> list[Array]:
    """Of the mean squared error, by central differences: of scales and shifts, [norm, width] each."""
    found: list[Array] = []
    for varied in (scales, shifts):
        slopes = np.zeros_like(varied)
        for index in np.ndindex(varied.shape):
            kept, values = varied[index], []
            for way in (1, -1):
                varied[index] = kept + way * 1e-5
                values.append(np.square(output(x, scales, shifts) - y).mean())
            varied[index] = kept
            slopes[index] = (values[0] - values[1]) / 2e-5
        found.append(slopes)
    return found


def batch(width: int) -> tuple[Array, Array]:
    random = np.random.default_rng(width)
    return random.normal(size=(6, width)), random.normal(size=(6, width))


@pytest.mark.parametrize("untie", [True, ["norm0.*"]])
def test_untied_norms_train_apart(untie: bool | list[str], caplog: pytest.LogCaptureFixture) -> None:
    x, y = batch(7)
    with caplog.at_level(logging.WARNING, "aicf.training"):
        step = aicf.train_step(norms(7), "mse", SGD, untie=untie)
    assert not caplog.text
    assert step.weights().keys() == {copy_of(kind, norm) for kind in KINDS for norm in range(NORMS)}
    step(x, y)
    scales, shifts = np.ones((NORMS, 7)), np.zeros((NORMS, 7))
    after = step.weights()
    for kind, start, slopes in zip(KINDS, (scales, shifts), gradients(x, y, scales, shifts), strict=True):
        for norm in range(NORMS):
            expected = start[norm] - 0.5 * slopes[norm]
            np.testing.assert_allclose(after[copy_of(kind, norm)], expected, atol=1e-8)


def test_tied_norms_train_as_one_and_are_named(caplog: pytest.LogCaptureFixture) -> None:
    x, y = batch(7)
    with caplog.at_level(logging.WARNING, "aicf.training"):
        step = aicf.train_step(norms(7), "mse", SGD)
    assert (
        "norms: 'norm0.weight' is trained as one parameter of 5 nodes ('/norm0', 'norm1.weight', 'norm2.weight', "
        "'/norm3' and 1 more); if an exporter merged equal weights, give untie=True or untie=['norm0.weight'], else "
        "untie=False"
    ) in caplog.text
    assert "'norm0.bias'" in caplog.text
    step(x, y)
    scales, shifts = np.ones((NORMS, 7)), np.zeros((NORMS, 7))
    for kind, start, slopes in zip(KINDS, (1, 0), gradients(x, y, scales, shifts), strict=True):
        np.testing.assert_allclose(step.weights()[f"norm0.{kind}"], start - 0.5 * slopes.sum(0), atol=1e-8)


def test_no_warning_where_the_user_has_decided(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aicf.training"):
        tied = aicf.train_step(norms(7), "mse", SGD, untie=False)
        some = aicf.train_step(norms(7), "mse", SGD, untie=["norm0.weight"])
        aicf.train_step(norms(7), "mse", SGD, untie=None, frozen=["norm0.weight"])
    assert tied.weights().keys() == {"norm0.weight", "norm0.bias"}
    assert some.weights().keys() == {"norm0.bias", *(copy_of("weight", norm) for norm in range(NORMS))}
    assert (
        "norm0.bias" in caplog.text and "'norm0.weight'" not in caplog.text
    )  # what is frozen is not trained as one


@pytest.mark.parametrize("width", [7, WIDTH])
def test_what_was_trained_apart_goes_back_into_the_file(width: int, tmp_path: Path) -> None:
    """Weights by the names of copies are those of their readers, in `compile` and in sessions."""
    x, y = batch(width)
    onnx.save(norms(width), tmp_path / "norms.onnx")
    step = aicf.train_step(tmp_path / "norms.onnx", "mse", SGD, untie=True)
    for _ in range(3):
        step(x, y)
    weights = step.weights()
    arrays = [np.array([weights[copy_of(kind, norm)] for norm in range(NORMS)]) for kind in KINDS]
    assert np.abs(np.diff(arrays[0], axis=0)).max() > 1e-6
    expected = output(x, *arrays)
    np.testing.assert_allclose(aicf.compile(tmp_path / "norms.onnx", weights)(x), expected, rtol=1e-7)
    with aicf.InferenceSession(tmp_path / "norms.onnx", weights, cache_dir=tmp_path / "cache") as session:
        np.testing.assert_allclose(session.run({"x": x})["h4"], expected, rtol=1e-7)
    assert np.square(expected - y).mean() == pytest.approx(float(step(x, y)), rel=1e-7)

    again = aicf.train_step(tmp_path / "norms.onnx", "mse", SGD, untie=True, weights=weights)
    assert float(again(x, y)) == pytest.approx(np.square(expected - y).mean(), rel=1e-7)


def tied_head() -> onnx.ModelProto:
    """An embedding whose table is the weight of the head too: tokens [5] to logits [5, 9]."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"], name="embed"),
        helper.make_node("Transpose", ["table"], ["columns"], name="turn", perm=[1, 0]),
        helper.make_node("MatMul", ["rows", "columns"], ["logits"], name="head"),
    ]
    table = np.random.default_rng(8).normal(size=(9, 4))
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [5])],
        [helper.make_tensor_value_info("logits", TensorProto.DOUBLE, [5, 9])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_weights_that_are_tied_on_purpose_stay_so() -> None:
    tokens, y = np.array([3, 1, 3, 8, 0]), np.array([1, 2, 3, 4, 5])
    step = aicf.train_step(tied_head(), "cross_entropy", SGD, untie=False)
    table = step.weights()["table"]
    step(tokens, y)
    logits = table[tokens] @ table.T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    by_logits = (shares - np.eye(9)[y]) / 5
    gradient = by_logits.T @ table[tokens]
    np.add.at(gradient, tokens, by_logits @ table)
    np.testing.assert_allclose(step.weights()["table"], table - 0.5 * gradient, rtol=1e-9)


@pytest.mark.parametrize(
    ("untie", "message"),
    [
        (["norm9.*"], r"untie: 'norm9.\*' names no initializer of the model"),
        ("norm0.weight", r"untie is 'norm0.weight'; it is a list of names or patterns"),
    ],
)
def test_what_cannot_be_untied(untie: Any, message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message):
        aicf.train_step(norms(7), "mse", SGD, untie=untie)
    graph = aicf.Graph("built")
    graph.output(graph.input("x", (2,)) * graph.param("w", (2,)), "y")
    with pytest.raises(aicf.InvalidIR, match="untie is for ONNX models"):
        aicf.train_step(graph, "mse", SGD, weights={"w": np.ones(2, np.float32)}, untie=["w"])
