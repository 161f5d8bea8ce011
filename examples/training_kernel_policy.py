"""Trains one small network with two kernel policies, and prints what they change.

    python training_kernel_policy.py [--target cuda] [FOLDER]     by default cpu and examples/build

A policy names kernels by family. It is a file: both are saved, loaded again, and given to the training step.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

import aicf
from aicf.comparison.diff import compare
from aicf.compilation.saved_program import read_saved_program
from aicf.policies.kernel_policy import Fusion

FOLDER = Path(__file__).parent / "build"
BATCH, INPUTS, HIDDEN, CLASSES = 64, 128, 256, 10
STEPS = 50
SHOWN = 16

# A library has few epilogues or none: its products stay alone.
ALONE = Fusion(epilogue=False, gated=False, horizontal=False, prologue=False, norm=False)
POLICIES = {
    "cpu": {
        "ours": aicf.KernelPolicy(matmul="native"),
        "library": aicf.KernelPolicy(matmul="openblas", fusion=ALONE),
    },
    "cuda": {
        "ours": aicf.KernelPolicy(matmul="simt", attention="flash_v2"),
        "library": aicf.KernelPolicy(matmul="cublasLt", attention="flash_v2"),
    },
    "reference": {
        "fused": aicf.KernelPolicy.auto(),
        "alone": replace(aicf.KernelPolicy(matmul="body"), fusion=ALONE),
    },
}


def main(target: str, folder: Path) -> None:
    """Trains once with each policy of the target, then compares the programs and the losses."""
    folder.mkdir(parents=True, exist_ok=True)
    losses: dict[str, np.ndarray] = {}
    for name, policy in POLICIES[target.partition(":")[0]].items():
        policy.save(folder / f"{name}.json")
        losses[name] = train(name, target, folder)
    first, second = losses
    compared = compare(*(read_saved_program(folder / f"{name}.aicf") for name in losses))
    print(f"what differs from {first} to {second}:")
    lines = str(compared).splitlines()
    print(*(f"  {line}" for line in lines[:SHOWN]), sep="\n")
    print(f"  {max(0, len(lines) - SHOWN)} more lines: aicf diff {first}.aicf {second}.aicf")
    apart = float(np.max(np.abs(losses[first] / losses[second] - 1)))
    print(f"the losses differ by at most {apart:.1e} of themselves")
    assert apart < 1e-3, "only the rounding may differ"


def train(name: str, target: str, folder: Path) -> np.ndarray:
    """The losses of a run with the policy in a file; prints its kernels, its time and where the loss goes."""
    policy = aicf.KernelPolicy.load(folder / f"{name}.json")
    step = aicf.train_step(
        network(), "cross_entropy", aicf.optimizers.SGD(0.05), target=target, policy=policy, seed=0
    )
    random = np.random.default_rng(0)
    images = random.normal(size=(BATCH, INPUTS)).astype(np.float32)
    float(step(images, random.integers(0, CLASSES, BATCH)))
    started = time.perf_counter()
    float(step.replay(STEPS - 1))
    us = (time.perf_counter() - started) / (STEPS - 1) * 1e6
    chosen = [each for each in step.executable.decisions if each.made_by == "select-kernels"]
    counts = Counter(each.choice for each in chosen)
    print(f"{name}: {', '.join(f'{count} x {kernel}' for kernel, count in counts.most_common())}")
    notes = Counter(each.because.partition("; matmul: ")[2] for each in chosen)
    for note, count in notes.items():
        if note:
            print(f"  of {count} products: {note}")
    losses = step.losses()
    print(f"  {us:.0f} us a step, loss {losses[0]:.4f} to {losses[-1]:.4f} in {len(losses)} steps")
    step.save_program(folder / f"{name}.aicf")
    return losses


def network() -> aicf.Graph:
    """Three layers."""
    graph = aicf.Graph("network")
    value = graph.input("x", (BATCH, INPUTS))
    sizes = (INPUTS, HIDDEN, HIDDEN, CLASSES)
    for number, (before, after) in enumerate(pairwise(sizes), 1):
        weight = graph.param(f"fc{number}.weight", (after, before))
        bias = graph.param(f"fc{number}.bias", (after,))
        value = graph.linear(value, weight, bias, name=f"fc{number}")
        value = graph.relu(value) if after != CLASSES else value
    graph.output(value, "scores")
    return graph


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--target", default="cpu")
    options = parser.parse_args()
    main(options.target, options.folder)
