"""Trains the digits classifier from random numbers, and says how many held-out images it then knows.

    python train.py --target cuda:sm_90a    by default cpu

The whole step is one program: forward, loss, backward, AdamW and the counter. The same seed gives the same bits, which
the demo shows by training several times. It leaves a checkpoint, the weights under the names of mlp.mlir, and the loss
curve. Without the target's device it ends with the artifact of the step.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import safetensors.numpy
from check import HERE, console, missing_device, read_options
from curve import write_curve
from fit import HIDDEN, SEED, Digits, read_digits
from rich.markup import escape
from rich.progress import track

import aicf

BATCH = 64
EPOCHS = 40
RATE = 1e-2
DECAY = 0.05
SMOOTHING = 0.05
RUNS = 3
CHECKPOINT, WEIGHTS, CURVE, ARTIFACT = "trained.ckpt", "trained.safetensors", "loss.svg", "step.aicf"
LEAST_ACCURACY = 0.97


def main() -> int:
    """Trains; 1 if the runs differ or too few images are known."""
    target, build = read_options(__doc__)
    build.mkdir(parents=True, exist_ok=True)
    digits = read_digits()
    step = compile_step(target, EPOCHS * (len(digits.train_x) // BATCH))
    step.save_program(build / ARTIFACT)
    if (reason := missing_device(step.executable)) is not None:
        console.print(
            f"[bold]not run[/] {escape(reason)}; the compiled step is {build / ARTIFACT}, for aicf.load_step()"
        )
        return 0
    return 0 if report(step, digits, target, build) else 1


def network() -> aicf.Graph:
    """The network of mlp.mlir without its softmax: 64 pixels to 10 scores, a batch at a time."""
    graph = aicf.Graph("digits")
    sizes = (64, *HIDDEN, 10)
    value = graph.input("x", (BATCH, sizes[0]))
    for layer, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        weight = graph.param(f"fc{layer}.weight", (outputs, inputs))
        bias = graph.param(f"fc{layer}.bias", (outputs,))
        value = graph.linear(value, weight, bias, name=f"fc{layer}")
        if layer < len(sizes) - 1:
            value = graph.relu(value, name=f"relu{layer}")
    graph.output(value, "scores")
    return graph


def compile_step(target: str, steps: int) -> aicf.TrainStep:
    """The training step, from the weights of the seed; its learning rate ends with the last step."""
    started = time.perf_counter()
    loss = aicf.losses.CrossEntropyLoss(label_smoothing=SMOOTHING)
    optimizer = aicf.optimizers.AdamW(aicf.schedules.Cosine(RATE, total=steps), weight_decay=DECAY)
    step = aicf.train_step(network(), loss, optimizer, target=target, seed=SEED)
    console.print(f"[bold]compiled[/] in {time.perf_counter() - started:.2f} s: {step}")
    return step


def batches(digits: Digits, epochs: int = EPOCHS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every image once an epoch, in an order of the seed; what fills no batch is left out."""
    random = np.random.default_rng(SEED)
    for _ in range(epochs):
        order = random.permutation(len(digits.train_x))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield digits.train_x[rows], digits.train_y[rows]


def train(step: aicf.TrainStep, digits: Digits, title: str = "training") -> float:
    """All epochs under a progress bar; microseconds a step."""
    started = time.perf_counter()
    steps = EPOCHS * (len(digits.train_x) // BATCH)
    hidden = not console.is_terminal
    for x, y in track(batches(digits), title, steps, console=console, transient=True, disable=hidden):
        step(x, y)
    step.synchronize()
    return (time.perf_counter() - started) / steps * 1e6


def classify(weights: dict[str, np.ndarray], images: np.ndarray, target: str) -> np.ndarray:
    """Probabilities of images by mlp.mlir with these weights."""
    model = aicf.compile(HERE / "mlp.mlir", weights, target, dims={"N": len(images)})
    return model(images)


def output_hash(weights: dict[str, np.ndarray], probabilities: np.ndarray) -> str:
    """Of every bit of what was trained and what it says."""
    arrays = [weights[name] for name in sorted(weights)] + [probabilities]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def report(step: aicf.TrainStep, digits: Digits, target: str, build: Path) -> bool:
    """Trains RUNS times from the start, and prints and stores what came out."""
    start = step.state_dict()
    hashes: list[str] = []
    for run in range(1, RUNS + 1):
        step.load_state_dict(start)
        elapsed = train(step, digits, f"run {run} of {RUNS}")
        probabilities = classify(step.weights(), digits.test_x, target)
        accuracy = float((probabilities.argmax(axis=1) == digits.test_y).mean())
        hashes.append(output_hash(step.weights(), probabilities))
        losses = step.losses()
        console.print(
            f"[bold]run {run}[/] {len(losses)} steps, {elapsed:.0f} us each; loss {losses[0]:.3f} to {losses[-1]:.4f}; "
            f"{accuracy:.2%} of {len(digits.test_y)} held-out images; output {hashes[-1]}"
        )
    step.save(build / CHECKPOINT)
    safetensors.numpy.save_file(step.weights(), build / WEIGHTS)
    write_curve(build / CURVE, step.losses(), "Digits: cross-entropy by step")
    console.print(f"[bold]stored[/] {', '.join(str(build / name) for name in (CHECKPOINT, WEIGHTS, CURVE))}")
    return len(set(hashes)) == 1 and accuracy >= LEAST_ACCURACY


if __name__ == "__main__":
    sys.exit(main())
