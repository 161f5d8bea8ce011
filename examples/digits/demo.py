"""The main job, end to end: fit a classifier, compile it, load it in a new process, and compare.

scikit-learn fits the weights and is the peer: the compiled program must give its labels and its probabilities.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from fit import Digits, fitted_classifier, read_digits, weights_of
from rich.console import Console
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import aicf
from aicf.progress import progress
from aicf.tools.cli.explain_command import show_tables

HERE = Path(__file__).parent
BUILD = HERE / "build"
TOLERANCE = 1e-5
ROUNDS = 200
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Runs the demo; 1 if the compiled program does not agree with scikit-learn."""
    digits = read_digits()
    with progress("fitting"):
        classifier, reused = fitted_classifier(digits, BUILD / "digits.safetensors")
    console.print(f"[bold]weights[/] {'reused' if reused else 'fitted'}: {BUILD / 'digits.safetensors'}")
    model = compile_model(len(digits.test_x))
    probabilities = classify_in_new_process(digits)
    agrees = report_agreement(digits, classifier, probabilities)
    show_tables(model.explain())
    report_times(digits, classifier, model)
    return 0 if agrees else 1


def compile_model(images: int) -> aicf.CompiledModel:
    """One program for a single image and one for all held-out ones, saved as digits.aicf."""
    started = time.perf_counter()
    model = aicf.compile(HERE / "mlp.mlir", BUILD / "digits.safetensors", "cpu", dims={"N": [1, images]})
    model.save(BUILD / "digits.aicf")
    elapsed = time.perf_counter() - started
    console.print(f"[bold]compiled[/] in {elapsed:.2f} s for cpu:{model.plan.arch}: {BUILD / 'digits.aicf'}")
    return model


def classify_in_new_process(digits: Digits) -> np.ndarray:
    """Probabilities [540, 10] of the held-out images, from a process that has only the artifact."""
    images, probabilities = BUILD / "images.npy", BUILD / "probabilities.npy"
    np.save(images, digits.test_x)
    command = [sys.executable, HERE / "classify.py", BUILD / "digits.aicf", images, probabilities]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    console.print(f"[bold]new process[/] {said}")
    return np.load(probabilities)


def report_agreement(digits: Digits, classifier: MLPClassifier, probabilities: np.ndarray) -> bool:
    """Prints accuracy and agreement with scikit-learn; whether they agree."""
    expected = classifier.predict_proba(digits.test_x)
    labels = classifier.classes_[probabilities.argmax(axis=1)]
    accuracy = float((labels == digits.test_y).mean())
    same = float((labels == classifier.predict(digits.test_x)).mean())
    difference = float(np.abs(probabilities - expected).max())
    console.print(
        f"[bold]{len(labels)} held-out images[/] accuracy {accuracy:.2%}; with scikit-learn: {same:.2%} of the labels, "
        f"probabilities within {difference:.1e} ({TOLERANCE:.0e} allowed)"
    )
    return same == 1.0 and difference <= TOLERANCE


def report_times(digits: Digits, classifier: MLPClassifier, model: aicf.CompiledModel) -> None:
    """Prints median times of a replay beside predict_proba and NumPy, one thread each, in turns."""
    weights = weights_of(classifier)
    for x in (digits.test_x[:1], digits.test_x):
        replayed = model.bind(x=np.ascontiguousarray(x))
        rivals: dict[str, Callable[[], object]] = {
            "replay": replayed.replay,
            "call": lambda x=x: model(x),
            "NumPy": lambda x=x: numpy_forward(x, weights),
            "predict_proba": lambda x=x: classifier.predict_proba(x),
        }
        times = measure(rivals)
        replay = times["replay"]
        shown = ", ".join(f"{name} {us:.1f} us ({us / replay:.1f}x)" for name, us in times.items())
        console.print(f"[bold]{len(x)} image{'s' if len(x) > 1 else ''}[/] {shown}")


def measure(rivals: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median microseconds of each, one after the other in every round."""
    samples: dict[str, list[int]] = {name: [] for name in rivals}
    with threadpool_limits(1):
        for _ in range(ROUNDS):
            for name, run in rivals.items():
                started = time.perf_counter_ns()
                run()
                samples[name].append(time.perf_counter_ns() - started)
    return {name: median(values) / 1e3 for name, values in samples.items()}


def numpy_forward(x: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    """The same network in NumPy."""
    hidden = np.maximum(x @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    hidden = np.maximum(hidden @ weights["fc2.weight"].T + weights["fc2.bias"], 0)
    scores = hidden @ weights["fc3.weight"].T + weights["fc3.bias"]
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    sys.exit(main())
