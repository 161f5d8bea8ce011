"""Fits scikit-learn's MLPClassifier on its digits images and keeps the weights as safetensors.

The network is that of mlp.mlir: 64 pixels, hidden layers of 128 and 64, 10 classes. The weights file says what it was
fitted with; one that is current is used again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HIDDEN = (128, 64)
SEED = 0
HELD_OUT = 0.3
TOLERANCE = 1e-3
"""Fitting ends when the loss improves by less."""
BRIGHTEST = 16
"""Largest pixel value."""


@dataclass(frozen=True)
class Digits:
    """The images as f32 rows of 64 pixels in 0..1 and their labels, apart for fitting and for the test."""

    train_x: np.ndarray
    test_x: np.ndarray
    train_y: np.ndarray
    test_y: np.ndarray


def read_digits() -> Digits:
    """The 1,797 images, 540 of them held out, always the same ones."""
    images = load_digits()
    x = (images.data / BRIGHTEST).astype(np.float32)
    return Digits(
        *train_test_split(x, images.target, test_size=HELD_OUT, random_state=SEED, stratify=images.target)
    )


def new_classifier() -> MLPClassifier:
    """The classifier before it has seen anything."""
    return MLPClassifier(HIDDEN, random_state=SEED, tol=TOLERANCE)


def fitted_classifier(digits: Digits, path: Path) -> tuple[MLPClassifier, bool]:
    """A fitted classifier whose weights are in `path`; whether they were there already."""
    recipe = json.dumps({"sklearn": sklearn.__version__, **new_classifier().get_params()}, sort_keys=True)
    if path.exists() and (classifier := read_classifier(digits, path, recipe)) is not None:
        return classifier, True
    classifier = new_classifier().fit(digits.train_x, digits.train_y)
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(weights_of(classifier), path, {"recipe": recipe})
    return classifier, False


def weights_of(classifier: MLPClassifier) -> dict[str, np.ndarray]:
    """Weights under the names of mlp.mlir; scikit-learn keeps them as [inputs, outputs]."""
    weights: dict[str, np.ndarray] = {}
    layers = zip(classifier.coefs_, classifier.intercepts_, strict=True)
    for number, (matrix, bias) in enumerate(layers, 1):
        weights[f"fc{number}.weight"] = np.ascontiguousarray(matrix.T)
        weights[f"fc{number}.bias"] = bias
    return weights


def read_classifier(digits: Digits, path: Path, recipe: str) -> MLPClassifier | None:
    """The classifier with the weights of `path`, None if the file was written by another recipe."""
    with safetensors.safe_open(path, "numpy") as file:
        if (file.metadata() or {}).get("recipe") != recipe:
            return None
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
    classifier = new_classifier()
    # One step makes everything that a prediction needs besides the weights.
    classifier.partial_fit(digits.train_x, digits.train_y, classes=np.unique(digits.train_y))
    layers = range(1, len(classifier.coefs_) + 1)
    classifier.coefs_ = [np.ascontiguousarray(weights[f"fc{layer}.weight"].T) for layer in layers]
    classifier.intercepts_ = [weights[f"fc{layer}.bias"] for layer in layers]
    return classifier
