"""The main job on real data: scikit-learn's classifier of its digits images, compiled, and its answers kept."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
import safetensors.numpy
from sklearn.neural_network import MLPClassifier

import aicf
from tests.test_compiler import MLP, ROOT

EXAMPLE = ROOT / "examples" / "digits"


def load_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"digits_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fit = load_module("fit")
check = load_module("check")


@pytest.fixture(scope="module")
def digits():
    return fit.read_digits()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("digits") / "build" / "digits.safetensors"


@pytest.fixture(scope="module")
def classifier(digits, weights: Path) -> MLPClassifier:
    classifier, reused = fit.fitted_classifier(digits, weights)
    assert not reused
    return classifier


def test_the_images_are_the_real_ones(digits):
    assert len(digits.train_x) + len(digits.test_x) == 1797 and digits.test_x.shape == (540, 64)
    assert digits.test_x.dtype == np.float32 and digits.test_x.max() == 1


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_every_label_and_probability_is_that_of_scikit_learn(
    digits, classifier: MLPClassifier, weights: Path, target: str
):
    exe = aicf.compile(MLP, weights, target, dims="N=1,540")
    expected = classifier.predict_proba(digits.test_x)
    probabilities = exe(digits.test_x)
    assert np.abs(probabilities - expected).max() <= 1e-5
    np.testing.assert_array_equal(probabilities.argmax(axis=1), classifier.predict(digits.test_x))
    assert (probabilities.argmax(axis=1) == digits.test_y).mean() > 0.95
    for image, row in zip(digits.test_x[:20], expected, strict=False):
        assert np.abs(exe(image[None]) - row).max() <= 1e-5


def test_a_new_process_with_the_artifact_alone_gives_the_same(
    digits, classifier: MLPClassifier, weights: Path, tmp_path: Path
):
    exe = aicf.compile(MLP, weights, "cpu", dims="N=540")
    exe.save(tmp_path / "digits.aicf")
    np.save(tmp_path / "images.npy", digits.test_x)
    command = [
        sys.executable,
        EXAMPLE / "classify.py",
        *(tmp_path / name for name in ("digits.aicf", "images.npy")),
    ]
    done = subprocess.run(
        [*command, tmp_path / "out.npy"],
        cwd=ROOT,
        env={"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "compilers imported: none" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), exe(digits.test_x))


def test_stored_answers_are_what_an_artifact_is_held_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One other label, or one probability too far off, does not agree."""
    random = np.random.default_rng(8)
    expected = random.dirichlet(np.ones(10), 540)
    check.store_answers(tmp_path, random.random((540, 64), np.float32), expected.argmax(axis=1), expected)
    assert check.report_agreement(expected + 5e-6, tmp_path)
    assert "100.00% of the labels" in capsys.readouterr().out
    off, other = expected.copy(), expected.copy()
    off[17, 3] += 2e-5
    other[5] = other[5, ::-1]
    assert not check.report_agreement(off, tmp_path)
    assert not check.report_agreement(other, tmp_path)


def test_a_second_run_reuses_the_weights(digits, classifier: MLPClassifier, weights: Path):
    before = weights.stat().st_mtime_ns
    again, reused = fit.fitted_classifier(digits, weights)
    assert reused and weights.stat().st_mtime_ns == before
    np.testing.assert_array_equal(again.predict_proba(digits.test_x), classifier.predict_proba(digits.test_x))


def test_training_from_random_numbers_knows_97_percent_and_repeats(tmp_path: Path):
    command = [sys.executable, EXAMPLE / "train.py", "--build", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    runs = re.findall(r"run \d 760 steps.*; (\S+)% of 540 held-out images; output (\w+)", done.stdout)
    assert len(runs) == 3 and len(set(runs)) == 1 and float(runs[0][0]) >= 97
    trained = safetensors.numpy.load_file(tmp_path / "trained.safetensors")
    classified = aicf.compile(MLP, trained, "reference", dims="N=540")(fit.read_digits().test_x)
    accuracy = (classified.argmax(axis=1) == fit.read_digits().test_y).mean()
    assert f"{accuracy:.2%}" == f"{runs[0][0]}%"
    curve = ElementTree.parse(tmp_path / "loss.svg").getroot()
    points = [line.get("points", "").split() for line in curve if line.tag.endswith("polyline")]
    assert [len(line) for line in points] == [760, 760]


def test_weights_of_another_recipe_are_not_reused(digits, classifier: MLPClassifier, tmp_path: Path):
    path = tmp_path / "digits.safetensors"
    safetensors.numpy.save_file(fit.weights_of(classifier), path, {"recipe": "another"})
    assert fit.read_classifier(digits, path, "this one") is None
