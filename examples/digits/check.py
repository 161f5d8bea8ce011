"""Holds what an artifact answers to scikit-learn's answers, which demo.py stored beside it.

python check.py build

Needs neither scikit-learn nor a compiler: a folder that was made where there is no GPU is checked where there is one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from rich.console import Console

import aicf

HERE = Path(__file__).parent
ARTIFACT, IMAGES, ANSWERS = "digits.aicf", "images.npy", "answers.npz"
TOLERANCE = 1e-5
console = Console(highlight=False, soft_wrap=True)


def read_options(description: str | None) -> tuple[str, Path]:
    """Target and build folder of the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cpu")
    parser.add_argument(
        "--build", type=Path, default=HERE / "build", help="folder for everything that is made"
    )
    options = parser.parse_args()
    return options.target, options.build


def store_answers(build: Path, images: np.ndarray, labels: np.ndarray, probabilities: np.ndarray) -> None:
    """Writes the held-out images [540, 64], their labels [540] and scikit-learn's probabilities [540, 10]."""
    np.save(build / IMAGES, images)
    np.savez(build / ANSWERS, labels=labels, probabilities=probabilities)


def check(build: Path) -> bool:
    """Classifies the images in a process that has only the artifact; whether it agrees with scikit-learn."""
    return report_agreement(classify_in_new_process(build), build)


def classify_in_new_process(build: Path) -> np.ndarray:
    """Probabilities [540, 10] of the held-out images."""
    files = [build / name for name in (ARTIFACT, IMAGES, "probabilities.npy")]
    done = subprocess.run([sys.executable, HERE / "classify.py", *files], check=True, stdout=subprocess.PIPE)
    console.print(f"[bold]new process[/] {done.stdout.decode().strip()}")
    return np.load(files[-1])


def report_agreement(probabilities: np.ndarray, build: Path) -> bool:
    """Prints accuracy and agreement; whether all labels are the same and all probabilities close."""
    answers = np.load(build / ANSWERS)
    expected = answers["probabilities"]
    labels = probabilities.argmax(axis=1)
    accuracy = float((labels == answers["labels"]).mean())
    same = float((labels == expected.argmax(axis=1)).mean())
    difference = float(np.abs(probabilities - expected).max())
    console.print(
        f"[bold]{len(labels)} held-out images[/] accuracy {accuracy:.2%}; with scikit-learn: {same:.2%} of the labels, "
        f"probabilities within {difference:.1e} ({TOLERANCE:.0e} allowed)"
    )
    return same == 1.0 and difference <= TOLERANCE


def missing_device(model: aicf.CompiledModel) -> str | None:
    """Why the model cannot run here, None if it can."""
    try:
        found = aicf.devices(model.plan.backend)
    except aicf.BackendUnavailable as error:
        return error.message
    return None if found else f"backend '{model.plan.backend}' finds no device here"


if __name__ == "__main__":
    sys.exit(0 if check(Path(sys.argv[1])) else 1)
