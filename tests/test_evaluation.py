"""The switch between training and evaluation: what `compile`, sessions and the command line make of dropout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.numpy

import aicf
from aicf.tools.aicf_cli import main
from aicf.training import initial_weights
from tests.support.random_onnx import dropouts

RATE = 0.3


def dropping(rows: int | str = 40, *, drop: bool = True) -> aicf.Graph:
    """Twice the input and a weight, half of which is dropped; the seed goes through arithmetic."""
    graph = aicf.Graph("dropping")
    x = graph.input("x", (rows, 50))
    y = graph.mul(x, graph.param("w", (50,)), name="product")
    if drop:
        seed, step = graph.meta("seed", (), "i64"), graph.meta("step", (), "i64")
        y = graph.dropout(y, seed + 7, step * 4096, RATE, name="drop")
    graph.output(graph.mul(y, 2.0, name="twice"), "y")
    return graph


W = {"w": np.linspace(1, 2, 50, dtype=np.float32)}
KEYS = {"seed": np.array(3), "step": np.array(5)}
X = np.random.default_rng(1).uniform(1, 2, (40, 50)).astype(np.float32)


def is_dropped(y: np.ndarray) -> None:
    """Elements are 0 at the rate of the dropout, and the others larger by 1 / (1 - rate)."""
    kept = y != 0
    assert abs(kept.mean() - (1 - RATE)) < 5 * np.sqrt(RATE * (1 - RATE) / y.size)
    np.testing.assert_allclose(y[kept], (2 * X * W["w"] / (1 - RATE))[kept], rtol=1e-5)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_builder_model_is_compiled_in_evaluation(target: str) -> None:
    expected = 2 * X * W["w"]
    for weights in (W, {**W, **KEYS}, {**W, "seed": KEYS["seed"]}):
        exe = aicf.compile(dropping(), weights, target)
        np.testing.assert_allclose(exe(X), expected, rtol=1e-6)
        assert exe.weights.keys() == W.keys()
    assert next(d.choice for d in exe.decisions if "drop" in d.subjects) == "evaluation: gives its operand"


def test_training_is_asked_for(tmp_path: Path) -> None:
    exe = aicf.compile(dropping(), {**W, **KEYS}, training=True)
    is_dropped(exe(X))
    exe.save(tmp_path / "drops.aicf")
    loaded = aicf.load(tmp_path / "drops.aicf")
    assert loaded.record.options.training
    np.testing.assert_array_equal(loaded(X), exe(X))
    assert "philox_word" in exe.ir("lowered")
    with pytest.raises(aicf.InputMismatch, match="missing weights seed, step"):
        aicf.compile(dropping(), W, training=True)
    with pytest.raises(aicf.PolicyError, match="training= has no effect on an emit program"):
        aicf.compile(exe.ir("emit"), {**W, **KEYS}, training=True)


def test_sessions(tmp_path: Path) -> None:
    """One graph of symbolic rows has a program for each size: no state is left of its metas."""
    for cache in (None, tmp_path, tmp_path):
        with aicf.InferenceSession(dropping("N"), {**W, **KEYS}, cache_dir=cache) as session:
            np.testing.assert_allclose(session.run({"x": X})["y"], 2 * X * W["w"], rtol=1e-6)
            np.testing.assert_allclose(session.run({"x": X[:3]})["y"], 2 * X[:3] * W["w"], rtol=1e-6)
    with aicf.InferenceSession(
        dropping("N"), {**W, **KEYS}, training=True, dims="N=40", cache_dir=tmp_path
    ) as session:
        is_dropped(session.run({"x": X})["y"])
    model = dropouts(1, RATE, (40, 50))
    for training, is_mean in ((False, True), (True, False)):
        with aicf.InferenceSession(model, {"w": X[None]}, training=training, cache_dir=tmp_path) as session:
            loss = session.run({"x": np.ones((1, 40, 50), np.float32)})["loss"]
            assert (abs(loss - X.sum()) < 1e-2) == is_mean
    exe = aicf.compile(dropping(), W)
    with pytest.raises(aicf.PolicyError, match="training= has no effect on a compiled model"):
        aicf.InferenceSession(exe, training=True)


def run_cli(*arguments: str) -> None:
    assert main(list(arguments)) == 0


def test_command_line(tmp_path: Path) -> None:
    onnx.save(dropouts(1, RATE, (40, 50)), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 40, 50), np.float32))
    safetensors.numpy.save_file({"w": X[None]}, tmp_path / "w.safetensors")
    for flags in ([], ["--training"]):
        given = [f"--weights={tmp_path}/w.safetensors", *flags]
        run_cli("compile", f"{tmp_path}/m.onnx", "-o", f"{tmp_path}/m.aicf", *given)
        run_cli("run", f"{tmp_path}/m.aicf", f"--input=x={tmp_path}/x.npy", f"--output={tmp_path}/a")
        run_cli("run", f"{tmp_path}/m.onnx", f"--input=x={tmp_path}/x.npy", f"--output={tmp_path}/b", *given)
        losses = [float(np.load(tmp_path / folder / "loss.npy")) for folder in "ab"]
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        assert (abs(losses[0] - X.sum()) < 1e-2) == (not flags)


def test_what_a_step_trained_is_compiled_with_and_without_dropout() -> None:
    """Neither the model that was trained nor the same one without dropout asks for seed and step."""
    step = aicf.train_step(dropping(), "mse", aicf.optimizers.SGD(0.1), weights=W, seed=4)
    for _ in range(3):
        step(X, 3 * X)
    weights = step.weights()
    assert weights.keys() == {"w"} and {"seed", "step"} <= step.state_dict().keys()
    for drop in (True, False):
        found = aicf.compile(dropping(drop=drop), weights)(X)
        np.testing.assert_allclose(found, 2 * X * weights["w"], rtol=1e-6)


def test_metas_that_more_than_dropout_reads_stay() -> None:
    graph = aicf.Graph("both")
    x, step = graph.input("x", (4,)), graph.meta("step", (), "i64")
    y = graph.dropout(x * graph.param("w", (4,)), 1, step * 8, 0.5)
    graph.output(graph.add(y, graph.cast(step, "f32")), "y")
    w = {"w": np.ones(4, np.float32)}
    step_of = aicf.train_step(graph, "mse", aicf.optimizers.SGD(0.1), weights=w)
    assert step_of.weights().keys() == {"w", "step"}
    exe = aicf.compile(graph, {**w, "step": np.array(5)})
    np.testing.assert_array_equal(exe(np.ones(4, np.float32)), np.full(4, 6, np.float32))
    with pytest.raises(aicf.InputMismatch, match="missing weight step"):
        aicf.compile(graph, w)


def test_a_step_that_is_written_by_hand_keeps_its_dropout() -> None:
    """A program that updates a parameter trains, whatever computes the update."""
    graph = aicf.Graph("by_hand")
    w, seed = graph.param("w", (1000,)), graph.meta("seed", (), "i64")
    graph.update(w, graph.dropout(w, seed, 0, 0.5))
    exe = aicf.compile(graph, {"w": np.ones(1000, np.float32), "seed": np.array(1)})
    exe()
    assert set(np.unique(exe.state()["w"])) == {0, 2}


# What states begin with


def with_states() -> aicf.Graph:
    """Counts calls, and divides by a running variance that is never changed."""
    graph = aicf.Graph("states")
    x, w = graph.input("x", (4,)), graph.param("w", (4,))
    count, spread = graph.state("count", (4,)), graph.state("bn.running_var", (4,))
    new = count + x
    graph.update(count, new)
    graph.output(new * w / spread, "y")
    return graph


def test_states_start_at_zero_unless_given() -> None:
    x, w = np.arange(4, dtype=np.float32), {"w": np.full(4, 2, np.float32)}
    exe = aicf.compile(with_states(), w)
    np.testing.assert_array_equal(exe(x), 2 * x)
    np.testing.assert_array_equal(exe(x), 4 * x)
    begun = aicf.compile(with_states(), {**w, "count": x})
    np.testing.assert_array_equal(begun(x), 4 * x)
    with aicf.InferenceSession(with_states(), w) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x)
    trained = aicf.train_step(with_states(), "mse", aicf.optimizers.SGD(0.1), weights=w)
    assert float(trained(x, 2 * x)) == 0
    np.testing.assert_array_equal(initial_weights(with_states(), given=w)["count"], np.zeros(4, np.float32))
    with pytest.raises(aicf.InputMismatch, match="missing weight w"):
        aicf.compile(with_states(), {"count": x})


def test_the_summary_tells_states_from_weights() -> None:
    w = {"w": np.full(4, 2, np.float32)}
    text = str(aicf.compile(with_states(), w).summary())
    assert "weights: 16 bytes" in text and "state: 32 bytes" in text
    step = aicf.train_step(with_states(), "mse", aicf.optimizers.Adam(), weights=w)
    summary = step.executable.summary()
    own = sum(array.nbytes for name, array in step.executable.weights.items() if name.startswith("aicf."))
    assert (
        summary.weight_bytes + summary.state_bytes == 16 + 32 + 2 * 16 + 8 + own
    )  # two moments, and the counter
