"""The main job, end to end: fit a classifier, compile it, load it in a new process, and compare.

    python demo.py --target cuda:sm_90a     by default cpu

scikit-learn fits the weights and is the peer: the compiled program must give its labels and its probabilities. Without
the target's device the demo ends with the artifact; `python check.py build` compares where the device is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from check import ARTIFACT, HERE, check, console, missing_device, read_options, store_answers
from fit import Digits, fitted_classifier, read_digits, weights_of
from rich.markup import escape
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import aicf
from aicf.support.progress import progress
from aicf.tools.cli.explain_command import show_tables

WEIGHTS = "digits.safetensors"
ROUNDS = 200


def main() -> int:
    """Runs the demo; 1 if the compiled program does not agree with scikit-learn."""
    target, build = read_options(__doc__)
    digits = read_digits()
    with progress("fitting"):
        classifier, reused = fitted_classifier(digits, build / WEIGHTS)
    console.print(f"[bold]weights[/] {'reused' if reused else 'fitted'}: {build / WEIGHTS}")
    store_answers(build, digits.test_x, digits.test_y, classifier.predict_proba(digits.test_x))
    model = compile_model(len(digits.test_x), target, build)
    show_tables(model.explain())
    if (reason := missing_device(model)) is not None:
        console.print(
            f"[bold]not run[/] {escape(reason)}; copy {build} to where it can, and run check.py there"
        )
        return 0
    agrees = check(build)
    report_times(digits, classifier, model)
    return 0 if agrees else 1


def compile_model(images: int, target: str, build: Path) -> aicf.CompiledModel:
    """One program for a single image and one for all held-out ones, saved as digits.aicf."""
    started = time.perf_counter()
    model = aicf.compile(HERE / "mlp.mlir", build / WEIGHTS, target, dims={"N": [1, images]})
    model.save(build / ARTIFACT)
    elapsed = time.perf_counter() - started
    plan = model.plan
    console.print(f"[bold]compiled[/] in {elapsed:.2f} s for {plan.backend}:{plan.arch}: {build / ARTIFACT}")
    return model


def report_times(digits: Digits, classifier: MLPClassifier, model: aicf.CompiledModel) -> None:
    """Prints median times on host arrays: a replay beside predict_proba and NumPy, one thread each, in turns."""
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
