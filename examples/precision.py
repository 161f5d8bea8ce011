"""The digits classifier in f32, bf16 and int8: sizes, times, and how many held-out images it knows.

    python precision.py [FOLDER]     by default examples/digits/build

Calibrates with images that the classifier was fitted on, and tests with others. The policies are files: `bf16.yaml` and
`int8.yaml` in the folder, for `aicf compile --policy`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import aicf

DIGITS = Path(__file__).parent / "digits"
sys.path.insert(0, str(DIGITS))

import fit  # noqa: E402  # of the other example: the images and the fitted network

MODEL = DIGITS / "mlp.mlir"
SAMPLES = 256
RUNS = 200


def main(folder: Path) -> None:
    """Compiles the classifier three times and compares."""
    folder.mkdir(parents=True, exist_ok=True)
    digits, weights = fit.read_digits(), folder / "digits.safetensors"
    fit.fitted_classifier(digits, weights)
    rows = len(digits.test_x)
    for name in ("f32", "bf16", "int8"):
        policy = None if name == "f32" else calibrated(name, digits, weights, folder)
        exe = aicf.compile(MODEL, weights, dims={"N": [1, rows]}, policy=policy)
        exe.save(folder / f"{name}.aicf")
        right = float((exe(digits.test_x).argmax(axis=1) == digits.test_y).mean())
        us = best_us(exe, digits.test_x)
        print(
            f"{name}: reads {weight_bytes(exe):,} bytes of weights, {us:.0f} us for {rows} images, {right:.2%} right"
        )


def weight_bytes(exe: aicf.CompiledModel) -> int:
    """What the last program reads that is no input: weights as they are, and those that are prepared for kernels."""
    binds = exe.plan.programs[-1].graph.binds
    return sum(bind.nbytes for bind in binds if bind.role in ("param", "derived"))


def calibrated(to: str, digits: fit.Digits, weights: Path, folder: Path) -> Path:
    """The path of the policy; prints what it costs."""
    found = aicf.calibrate(
        MODEL,
        {"x": digits.train_x[:SAMPLES]},
        to=to,
        labels=digits.train_y[:SAMPLES],
        keep="top1=0.5%",
        weights=weights,
    )
    found.save(path := folder / f"{to}.yaml")
    print(f"{found.report}\n")
    return path


def best_us(exe: aicf.CompiledModel, images: np.ndarray) -> float:
    """The shortest of many runs, in microseconds."""
    bound = exe.bind(x=images)
    times: list[float] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        bound.replay()
        times.append(time.perf_counter() - started)
    return min(times) * 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DIGITS / "build")
    main(parser.parse_args().folder)
