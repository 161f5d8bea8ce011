"""What outlives a process: losses in checkpoints and artifacts, compiled steps in a cache. And where classes stand."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import safetensors.numpy

import aicf
from aicf.compilation.writing import save_step
from aicf.training.history import HISTORY, LENGTH
from tests.support.training_models import batches, classifier

SGD = aicf.optimizers.SGD(0.1, momentum=0.9)


def make(**options: object) -> aicf.TrainStep:
    return aicf.train_step(classifier(), "cross_entropy", SGD, seed=1, target="cpu", **options)  # pyright: ignore[reportArgumentType]


def test_losses_go_on_over_checkpoints(tmp_path: Path) -> None:
    """Over two of them, and over more losses than the ring holds; also where the loss was never read before."""
    given = batches(30)
    whole = make()
    for x, y in given:
        whole(x, y)
    step = make()
    for number, (x, y) in enumerate(given):
        if number in (7, 20):
            step.save(tmp_path / "step.ckpt")
            step = make()
            step.load(tmp_path / "step.ckpt")
        step(x, y)
    assert step.steps == 30
    np.testing.assert_array_equal(step.losses(), whole.losses())
    assert step.loss_of(1) == whole.losses()[0]
    step.replay(LENGTH + 5)
    step.save(tmp_path / "long.ckpt")
    again = make()
    again.load(tmp_path / "long.ckpt")
    assert len(again.losses()) == 30 + LENGTH + 5
    np.testing.assert_array_equal(again.losses(), step.losses())


def test_a_checkpoint_without_history_begins_a_new_one(tmp_path: Path) -> None:
    step = make()
    for x, y in batches(3):
        step(x, y)
    step.save(tmp_path / "step.ckpt")
    tensors = safetensors.numpy.load_file(tmp_path / "step.ckpt")
    with safetensors.safe_open(tmp_path / "step.ckpt", "numpy") as file:  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        header = file.metadata()
    np.testing.assert_array_equal(tensors.pop(HISTORY), step.losses())
    safetensors.numpy.save_file(tensors, tmp_path / "old.ckpt", header)
    old = make()
    old.load(tmp_path / "old.ckpt")
    assert old.steps == 3 and len(old.losses()) == 0
    for wrong in (np.zeros(4), np.zeros((1, 3)), np.zeros(3, np.int64)):
        safetensors.numpy.save_file({**tensors, HISTORY: wrong}, tmp_path / "bad.ckpt", header)
        with pytest.raises(aicf.InputMismatch, match="the checkpoint contradicts itself"):
            old.load(tmp_path / "bad.ckpt")
    assert HISTORY not in step.state_dict()


@pytest.mark.parametrize("native", ["use", "rebuild"])
def test_losses_go_on_over_programs(native: Literal["use", "rebuild"], tmp_path: Path) -> None:
    """Over two of them, and over more losses than the ring holds; NaN included, and where steps were never read."""
    given = batches(30)
    given[12] = (np.full_like(given[12][0], np.nan), given[12][1])
    whole, step = make(), make()
    for number, (x, y) in enumerate(given):
        if number in (7, 20):
            step.save_program(tmp_path / "step.aicf")
            step = aicf.load_step(tmp_path / "step.aicf", native)
            assert len(step.losses()) == number
        step(x, y)
        whole(x, y)
    np.testing.assert_array_equal(step.losses(), whole.losses())
    assert np.isnan(step.loss_of(13)) and step.loss_of(1) == whole.loss_of(1)
    step.replay(LENGTH + 5)
    step.save_program(tmp_path / "long.aicf")
    again = aicf.load_step(tmp_path / "long.aicf", native)
    assert len(again.losses()) == again.steps == 30 + LENGTH + 5
    np.testing.assert_array_equal(again.losses(), step.losses())
    again.save(tmp_path / "step.ckpt")
    step.load(tmp_path / "step.ckpt")
    np.testing.assert_array_equal(again.losses(), step.losses())


def test_a_program_that_begins_anew_has_no_losses(tmp_path: Path) -> None:
    step = make()
    for x, y in batches(3):
        step(x, y)
    step.executable.save(tmp_path / "new.aicf")
    assert len(aicf.load_step(tmp_path / "new.aicf").losses()) == 0
    part = make()
    part.load_state_dict(step.state_dict())
    ((x, y),) = batches(1)
    part(x, y)
    part.save_program(tmp_path / "part.aicf")
    loaded = aicf.load_step(tmp_path / "part.aicf")
    assert loaded.steps == 4 and len(loaded.losses()) == 1
    assert loaded.loss_of(4) == part.loss_of(4)
    with pytest.raises(aicf.InputMismatch, match="no loss of step 3; known are 4 to 4"):
        loaded.loss_of(3)


@pytest.mark.parametrize("wrong", [np.zeros(4), np.zeros((1, 3)), np.zeros(3, np.int64)])
def test_a_program_whose_losses_are_none_is_refused(wrong: np.ndarray, tmp_path: Path) -> None:
    step = make()
    for x, y in batches(3):
        step(x, y)
    save_step(step.executable, tmp_path / "bad.aicf", {HISTORY: wrong})
    with pytest.raises(
        aicf.ArtifactError, match="the artifact contradicts itself: it has .* as the losses of 3 steps"
    ):
        aicf.load_step(tmp_path / "bad.aicf")


def test_compiled_steps_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is not compiled, begins with its own weights, and takes the same steps bit by bit."""
    first = make(cache_dir=tmp_path, clip_norm=1.0)
    assert len(list(tmp_path.glob("*.aicf"))) == 1

    import aicf.compilation.compiling as compiling

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    with monkeypatch.context() as patched:
        patched.setattr(compiling, "compile_own", refuse)
        again = make(cache_dir=tmp_path, clip_norm=1.0)
        with pytest.raises(AssertionError, match="compiled again"):
            make(cache_dir=tmp_path, clip_norm=2.0)
        with pytest.raises(AssertionError, match="compiled again"):
            make(cache_dir=tmp_path, clip_norm=1.0, check_finite=True)
    for x, y in batches(5):
        first(x, y)
        again(x, y)
    np.testing.assert_array_equal(first.losses(), again.losses())
    for name, value in first.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], value)
    first.save(tmp_path / "step.ckpt")
    again.load(tmp_path / "step.ckpt")
    given = {name: value * 2 for name, value in first.weights().items()}
    other = make(cache_dir=tmp_path, clip_norm=1.0, weights=given)
    np.testing.assert_array_equal(other.weights()["fc1.weight"], given["fc1.weight"])
    again.save_program(tmp_path / "program.aicf")
    assert aicf.load_step(tmp_path / "program.aicf").steps == 5


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    make(cache_dir=tmp_path)
    (entry,) = tmp_path.glob("*.aicf")
    entry.write_bytes(b"damaged")
    ((x, y),) = batches(1)
    assert float(make(cache_dir=tmp_path)(x, y)) == float(make()(x, y))
    assert entry.stat().st_size > 1000


# Where classes stand


def sequences(rows: int | str, *, turned: bool) -> aicf.Graph:
    """Tokens [rows, 6, 4] to logits of 9 classes: in the last dimension, or turned to the second."""
    graph = aicf.Graph("tokens")
    logits = graph.matmul(graph.input("x", (rows, 6, 4)), graph.param("w", (4, 9)))
    graph.output(graph.transpose(logits, [0, 2, 1]) if turned else logits, "logits")
    return graph


@pytest.mark.parametrize("rows", [3, "N"])
def test_labels_of_logits_with_classes_last(rows: int | str) -> None:
    random = np.random.default_rng(5)
    x, labels = random.normal(size=(3, 6, 4)).astype(np.float32), random.integers(0, 9, (3, 6))
    dims = None if rows == 3 else "N=3"
    step = aicf.train_step(sequences(rows, turned=False), "cross_entropy", SGD, dims=dims, target="reference")
    message = (
        rf"target 'y' has the shape \[3, 6\], and the prediction \[{rows}, 6, 9\] has its classes in dimension 1, as "
        r"in PyTorch; if they are in the last one, let the model give graph.transpose\(prediction, \[0, 2, 1\]\)"
    )
    with pytest.raises(aicf.InputMismatch, match=message):
        step(x, labels)
    with pytest.raises(aicf.InputMismatch, match="input 'y': "):
        step(x, labels[:, :5])

    step = aicf.train_step(sequences(rows, turned=True), "cross_entropy", SGD, dims=dims, target="reference")
    w = step.weights()["w"].astype(np.float64)
    logits = x @ w
    wanted = np.log(np.exp(logits).sum(-1)).mean() - np.take_along_axis(logits, labels[..., None], -1).mean()
    assert float(step(x, labels)) == pytest.approx(wanted, rel=1e-5)


def test_the_op_says_which_dimension_has_the_classes() -> None:
    graph = aicf.Graph("own_loss")
    logits, labels = graph.input("logits", (3, 6, 9)), graph.input("labels", (3, 6), "i64")
    with pytest.raises(
        aicf.InvalidIR, match=r"without dimension 1, the classes; if dimension 2 has .*, say axis=2"
    ):
        graph.cross_entropy(logits, labels)
