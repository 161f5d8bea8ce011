"""Training steps of ONNX models: which weights are trained, what begins where, and what goes back to inference."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from aicf.training import initial_weights
from tests.support.onnx_training import cnn, cnn_weights, digit_batches, mlp, mlp_weights

ROWS = 16
SGD = aicf.optimizers.SGD(0.1)


def mlp_losses(
    weights: dict[str, np.ndarray], steps: int, rate: float
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of gradient descent on the mlp and its weights afterwards, by hand in f64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    losses: list[float] = []
    for x, y in digit_batches(steps, ROWS, (64,), np.float64):
        before = x @ w["fc1.weight"].T + w["fc1.bias"]
        hidden = np.maximum(before, 0)
        scores = hidden @ w["fc2.weight"].T + w["fc2.bias"]
        probabilities = np.exp(scores - scores.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        losses.append(float(-np.log(probabilities[range(ROWS), y]).mean()))
        by_scores = (probabilities - np.eye(10)[y]) / ROWS
        by_before = by_scores @ w["fc2.weight"] * (before > 0)
        w["fc2.weight"] -= rate * by_scores.T @ hidden
        w["fc2.bias"] -= rate * by_scores.sum(0)
        w["fc1.weight"] -= rate * by_before.T @ x
        w["fc1.bias"] -= rate * by_before.sum(0)
    return losses, w


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_an_mlp_learns_digits(target: str, tmp_path: Path) -> None:
    """Ten steps beside arithmetic by hand; what was trained goes back into the file's place for inference."""
    weights = mlp_weights(np.float64)
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(weights), path)
    step = aicf.train_step(path, "cross_entropy", SGD, dims={"batch": ROWS}, target=target)
    for x, y in digit_batches(10, ROWS, (64,), np.float64):
        step(x, y)
    losses, expected = mlp_losses(weights, 10, 0.1)
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-10)
    assert losses[-1] < losses[0]
    trained = step.weights()
    assert trained.keys() == weights.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(trained[name], value, rtol=1e-8, atol=1e-12, err_msg=name)

    x, _ = digit_batches(1, ROWS, (64,), np.float64)[0]
    for with_weights in (expected, trained):
        scores = aicf.compile(path, with_weights, target, dims=f"batch={ROWS}")(x)
        hidden = np.maximum(x @ expected["fc1.weight"].T + expected["fc1.bias"], 0)
        np.testing.assert_allclose(
            scores, hidden @ expected["fc2.weight"].T + expected["fc2.bias"], rtol=1e-7
        )
    with aicf.InferenceSession(path, trained) as session:
        np.testing.assert_allclose(session.run([x])["scores"], np.asarray(scores), rtol=1e-7)


def test_micro_batches_of_an_onnx_model() -> None:
    """Two parts of eight are the batch of sixteen."""
    weights = mlp_weights(np.float64)
    step = aicf.train_step(mlp(weights), "cross_entropy", SGD, dims={"batch": ROWS // 2}, micro_batches=2)
    for x, y in digit_batches(5, ROWS, (64,), np.float64):
        step(x, y)
    np.testing.assert_allclose(step.losses(), mlp_losses(weights, 5, 0.1)[0], rtol=1e-10)


def test_statistics_of_a_batch_norm_are_fixed_and_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    weights = cnn_weights(np.float32)
    with caplog.at_level(logging.WARNING, "aicf.training"):
        step = aicf.train_step(cnn(weights), "cross_entropy", SGD, dims={"batch": ROWS})
    assert "cnn: the statistics of '/bn/BatchNormalization' are fixed" in caplog.text
    for x, y in digit_batches(3, ROWS, (1, 8, 8), np.float32):
        step(x, y)
    after = step.weights()
    changed = {name for name, value in weights.items() if np.abs(after[name] - value).max() > 0}
    assert changed == weights.keys() - {"bn.running_mean", "bn.running_var"}


def test_frozen_weights_and_weights_that_are_given() -> None:
    weights = mlp_weights(np.float32)
    other = {**mlp_weights(np.float32, seed=1)}
    step = aicf.train_step(
        mlp(weights), "cross_entropy", SGD, dims={"batch": ROWS}, weights=other, frozen=["fc1.*"]
    )
    ((x, y),) = digit_batches(1, ROWS, (64,), np.float32)
    step(x, y)
    hidden = np.maximum(x @ other["fc1.weight"].T + other["fc1.bias"], 0)
    scores = hidden @ other["fc2.weight"].T + other["fc2.bias"]
    loss = np.log(np.exp(scores).sum(1)).mean() - scores[range(ROWS), y].mean()
    np.testing.assert_allclose(step.losses(), [loss], rtol=1e-5)
    after = step.weights()
    assert {name for name in other if np.array_equal(after[name], other[name])} == {"fc1.weight", "fc1.bias"}


def test_what_a_model_begins_with() -> None:
    """Its own weights, but for those that are given."""
    graph = thresholds()
    given = {"gain": np.ones(8, np.float32)}
    found = initial_weights(graph, given=given)
    assert found["gain"] is given["gain"]
    np.testing.assert_array_equal(found["threshold"], np.full(4, -0.5, np.float32))


def thresholds(*more: onnx.NodeProto) -> onnx.ModelProto:
    """Weights that are read in steps alone, for sizes, as an exponent, and as a number."""
    nodes = [
        helper.make_node("Greater", ["x", "threshold"], ["mask"], name="greater"),
        helper.make_node("Cast", ["mask"], ["kept"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "kept"], ["a"], name="keep"),
        helper.make_node("Resize", ["a", "", "factors"], ["b"], name="resize", mode="nearest"),
        helper.make_node("Mul", ["b", "gain"], ["c"], name="gain"),
        helper.make_node("Mul", ["c", "number"], ["scores"], name="number"),
    ]
    values = {
        "threshold": np.full((4,), -0.5, np.float32),
        "factors": np.array([1, 2], np.float32),
        "gain": np.linspace(1, 2, 8, dtype=np.float32),
        "number": np.asarray(3, np.float32),
    }
    graph = helper.make_graph(
        [*nodes, *more],
        "thresholds",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_only_what_passes_a_derivative_back_is_trained() -> None:
    step = aicf.train_step(thresholds(), "mse", SGD)
    random = np.random.default_rng(2)
    x, y = (
        random.standard_normal((2, 4)).astype(np.float32),
        random.standard_normal((2, 8)).astype(np.float32),
    )
    step(x, y)
    b = np.repeat(x * (x > -0.5), 2, axis=1)
    gain = np.linspace(1, 2, 8, dtype=np.float32)
    np.testing.assert_allclose(step.losses(), [np.square(3 * b * gain - y).mean()], rtol=1e-5)
    after = step.weights()
    assert after.keys() == {"gain", "threshold"}  # what sizes follow from, and numbers, are constants
    np.testing.assert_array_equal(after["threshold"], np.full(4, -0.5, np.float32))
    expected = gain - 0.1 * (2 * (3 * b * gain - y) * 3 * b).sum(0) / y.size
    np.testing.assert_allclose(after["gain"], expected, rtol=1e-5)


def test_sizes_must_be_given() -> None:
    with pytest.raises(aicf.PolicyError, match="unbound symbolic dimensions: batch"):
        aicf.train_step(mlp(mlp_weights(np.float32)), "cross_entropy", SGD)
    with pytest.raises(aicf.InvalidIR, match="has 2 functions; .* one size of each dimension"):
        aicf.train_step(mlp(mlp_weights(np.float32)), "cross_entropy", SGD, dims={"batch": [1, 2]})


def test_a_model_without_weights() -> None:
    model = mlp(mlp_weights(np.float32))
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["scores"])], "none", [model.graph.input[0]], [model.graph.output[0]]
    )
    graph.output[0].type.tensor_type.shape.dim[1].dim_value = 64
    bare = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(aicf.InvalidIR, match="there is nothing to train"):
        aicf.train_step(bare, "mse", SGD, dims={"batch": 2})


def test_a_small_weight_of_another_type() -> None:
    wrong = {"fc1.bias": np.zeros(23, np.float32)}
    with pytest.raises(
        aicf.InputMismatch, match=r"weight 'fc1.bias': expected float32\[24\], got float32\[23\]"
    ):
        aicf.compile(mlp(mlp_weights(np.float32)), wrong, dims="batch=1")
