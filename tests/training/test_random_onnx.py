"""Random nodes of ONNX models in training steps: what each step draws, beside what NumPy expects of it."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from tests.support.random_onnx import Array, drawing, dropouts

RATIO, SHAPE = 0.25, (40, 50)
FIRST = aicf.optimizers.SGD(1.0)


def step_of(
    model: onnx.ModelProto, seed: int = 0, target: str = "reference", **options: int
) -> aicf.TrainStep:
    return aicf.train_step(model, None, FIRST, seed=seed, target=target, **options)


def draws(step: aicf.TrainStep, count: int, shape: tuple[int, ...]) -> Array:
    """What `w` loses in each of `count` steps on ones, [count, shape]."""
    x, before = np.ones(shape, np.float32), step.weights()["w"]
    taken: list[Array] = []
    for _ in range(count):
        step(x)
        after = step.weights()["w"]
        taken.append(before - after)
        before = after
    return np.array(taken)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_each_step_and_each_node_drops_others(target: str) -> None:
    """Masks of 2 nodes in 6 steps: of the right rate and scale, and as far apart as independent ones are."""
    found = draws(step_of(dropouts(2, RATIO, SHAPE), target=target), 6, (2, *SHAPE))
    kept = found != 0
    np.testing.assert_allclose(found[kept], 1 / (1 - RATIO), rtol=1e-4)
    masks = kept.reshape(12, -1)
    elements = masks.shape[1]
    spread = 5 * np.sqrt(RATIO * (1 - RATIO) / elements)
    assert np.abs(masks.mean(1) - (1 - RATIO)).max() < spread
    correlation = np.corrcoef(masks)[np.triu_indices(12, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(elements)


def test_elements_are_kept_as_often_as_the_ratio_says() -> None:
    """Over 400 steps no element is kept more or less often than a coin of that chance falls, by 5.5 deviations."""
    kept = draws(step_of(dropouts(1, RATIO, (8, 8))), 400, (1, 8, 8)) != 0
    spread = 5.5 * np.sqrt(RATIO * (1 - RATIO) / 400)
    assert np.abs(kept.mean(0) - (1 - RATIO)).max() < spread


def test_a_seed_repeats_all_steps() -> None:
    model = dropouts(1, RATIO, SHAPE)
    first, again, other = (draws(step_of(model, seed), 3, (1, *SHAPE)) for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert 0.3 < ((first != 0) != (other != 0)).mean() < 0.45  # 2 * 0.25 * 0.75 of independent ones


def test_a_checkpoint_goes_on_with_the_same_draws(tmp_path: Path) -> None:
    step = step_of(dropouts(1, RATIO, SHAPE), 3)
    draws(step, 2, (1, *SHAPE))
    step.save(tmp_path / "two.ckpt")
    expected = draws(step, 2, (1, *SHAPE))
    again = step_of(dropouts(1, RATIO, SHAPE), 3)
    again.load(tmp_path / "two.ckpt")
    assert np.array_equal(draws(again, 2, (1, *SHAPE)), expected)


def test_parts_of_a_batch_draw_their_own() -> None:
    """Each of four rows of `x` is a part; the gradient of `w` is the mean of their masks over 1 - ratio."""
    nodes = [
        helper.make_node("Mul", ["w", "x"], ["product"], name="product"),
        helper.make_node("Dropout", ["product", "ratio", "mode"], ["drawn"], name="drop"),
    ]
    model = drawing(nodes, [1, 2000], ratio=np.float32(RATIO), mode=np.array(True))
    step = step_of(model, micro_batches=4)
    step(np.ones((4, 2000), np.float32))
    counts = np.rint(-step.weights()["w"] * 4 * (1 - RATIO))
    assert set(np.unique(counts)) == {0, 1, 2, 3, 4}
    chances = np.array([1, 12, 54, 108, 81]) / 256  # binomial of 4 and 3/4
    seen = np.array([(counts == count).mean() for count in range(5)])
    assert np.abs(seen - chances).max() < 5 * np.sqrt(0.25 / 2000)


RANDOM = {
    "RandomNormalLike": ({"mean": 2.0, "scale": 0.5}, 2.0, 0.5),
    "RandomUniformLike": ({"low": -1.0, "high": 3.0}, 1.0, 4 / 12**0.5),
    "Bernoulli": ({}, 1.0, 0.0),
    "RandomNormal": ({"shape": [1, 2000], "mean": 2.0, "scale": 0.5}, 2.0, 0.5),
    "RandomUniform": ({"shape": [1, 2000], "low": -1.0, "high": 3.0}, 1.0, 4 / 12**0.5),
}


@pytest.mark.parametrize("op_type", RANDOM)
@pytest.mark.parametrize("seeded", [False, True])
def test_random_nodes_draw_anew_at_each_step(op_type: str, seeded: bool) -> None:
    """Noise times w: the gradient is the noise. A node's own seed tells streams apart, and stops none."""
    attributes, mean, deviation = RANDOM[op_type]
    attributes = {**attributes, **({"seed": 4.0} if seeded else {})}
    takes = [] if "shape" in attributes else ["chance" if op_type == "Bernoulli" else "x"]
    nodes = [
        helper.make_node(op_type, takes, ["noise"], name="noise", **attributes),
        helper.make_node("Mul", ["w", "noise"], ["drawn"], name="product"),
    ]
    given = {"chance": np.full((1, 2000), 0.5, np.float32)} if op_type == "Bernoulli" else {}
    if op_type == "Bernoulli":
        mean, deviation = 0.5, 0.5
    found = draws(step_of(drawing(nodes, [1, 2000], **given)), 3, (1, 2000)).reshape(3, -1)
    assert np.abs(found.mean(1) - mean).max() < 5 * deviation / np.sqrt(2000)
    assert np.abs(found.std(1) - deviation).max() < 0.1 * deviation
    assert np.abs(np.corrcoef(found)[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(2000)


def test_iterations_of_a_loop_draw_their_own() -> None:
    """A loop of three iterations adds up noise: its variance is three times that of one draw, not nine times."""
    body = helper.make_graph(
        [
            helper.make_node("RandomNormal", [], ["noise"], name="noise", shape=[4000]),
            helper.make_node("Add", ["before", "noise"], ["after"], name="more"),
            helper.make_node("Identity", ["going"], ["go"], name="go"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [4000]),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [4000]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], name="loop", body=body)],
        "loops",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4000])],
        [numpy_helper.from_array(np.array(3), "count")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for training in (False, True):
        sample = aicf.compile(model, training=training)(np.zeros(4000, np.float32))
        assert abs(sample.var() - 3) < 5 * 3 * np.sqrt(2 / 4000)


def test_a_dropout_in_its_inference_form_is_said_to_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aicf.training"):
        step = step_of(dropouts(2, RATIO, (4,), mode=False))
    assert "drawing: 'drop0', 'drop1' drops nothing, for it is in its inference form" in caplog.text
    np.testing.assert_array_equal(draws(step, 1, (2, 4)), 1)


@pytest.mark.parametrize("name", ["seed", "step"])
def test_an_input_of_a_name_that_draws_is_refused(name: str) -> None:
    nodes = [
        helper.make_node("Mul", ["w", name], ["product"], name="product"),
        helper.make_node("Dropout", ["product", "ratio", "mode"], ["drawn"], name="drop"),
    ]
    model = drawing(nodes, [4], ratio=np.float32(RATIO), mode=np.array(True))
    model.graph.input[0].name = name
    with pytest.raises(aicf.InvalidIR, match=f"'{name}' of 'drawing' is the name of the meta"):
        step_of(model)


# Batch norms in training mode


def norms(count: int, stats: list[str], opset: int = 17) -> onnx.ModelProto:
    """Batch norms of [8, 3] one after the other; `stats` says which running statistics each has."""
    values = ["x", *(f"h{index}" for index in range(1, count)), "scores"]
    nodes = [
        helper.make_node(
            "BatchNormalization",
            [values[i], f"scale{i}", f"shift{i}", f"{stats[i]}.mean", f"{stats[i]}.var"],
            [values[i + 1]] + ([f"new_mean{i}", f"new_var{i}"] if i % 2 else []),
            name=f"bn{i}",
            training_mode=1,
            momentum=0.8,
        )
        for i in range(count)
    ]
    random = np.random.default_rng(4)
    weights = {f"{kind}{i}": random.uniform(0.5, 1.5, 3) for i in range(count) for kind in ("scale", "shift")}
    weights |= {f"{name}.mean": random.uniform(-1, 1, 3) for name in stats}
    weights |= {f"{name}.var": random.uniform(1, 2, 3) for name in stats}
    graph = helper.make_graph(
        nodes,
        "norms",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [8, 3])],
        [helper.make_tensor_value_info("scores", TensorProto.DOUBLE, [8, 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def normed(x: Array, weights: dict[str, Array], index: int, mean: Array, variance: Array) -> Array:
    return (x - mean) / np.sqrt(variance + 1e-5) * weights[f"scale{index}"] + weights[f"shift{index}"]


def test_batch_norms_in_training_keep_running_statistics(caplog: pytest.LogCaptureFixture) -> None:
    """As ONNX defines them: momentum times the old ones and the rest of the batch's. The file then runs with them."""
    model = norms(2, ["a", "b"])
    with caplog.at_level(logging.WARNING, "aicf.training"):
        step = aicf.train_step(model, "mse", aicf.optimizers.SGD(0.0))
    assert not caplog.text
    weights = {k: v.copy() for k, v in step.weights().items()}
    random, kept = np.random.default_rng(5), float(np.float32(0.8))
    for _ in range(3):
        h = random.normal(2, 3, (8, 3))
        y = random.normal(size=(8, 3))
        x = h
        for index, name in enumerate("ab"):
            mean, variance = h.mean(0), h.var(0)
            weights[f"{name}.mean"] = kept * weights[f"{name}.mean"] + (1 - kept) * mean
            weights[f"{name}.var"] = kept * weights[f"{name}.var"] + (1 - kept) * variance
            h = normed(h, weights, index, mean, variance)
        assert float(step(x, y)) == pytest.approx(np.square(h - y).mean(), rel=1e-9)
    assert step.weights().keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(step.weights()[name], value, rtol=1e-9, err_msg=name)

    x = random.normal(size=(8, 3))
    expected = x
    for index, name in enumerate("ab"):
        expected = normed(expected, weights, index, weights[f"{name}.mean"], weights[f"{name}.var"])
    np.testing.assert_allclose(aicf.compile(model, step.weights())(x), expected, rtol=1e-9)
    trained = normed(x, weights, 0, x.mean(0), x.var(0))
    trained = normed(trained, weights, 1, trained.mean(0), trained.var(0))
    np.testing.assert_allclose(aicf.compile(model, step.weights(), training=True)(x), trained, rtol=1e-9)


def test_batch_norms_that_share_running_statistics_are_refused() -> None:
    with pytest.raises(aicf.InvalidIR, match=r"'bn1' keeps its running statistics in 'a.mean'.* untie=True"):
        aicf.train_step(norms(2, ["a", "a"]), "mse", aicf.optimizers.SGD(0.1))
