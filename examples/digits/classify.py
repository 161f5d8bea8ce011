"""Classifies images with an artifact: what a program that only runs a model has to do.

python classify.py digits.aicf images.npy probabilities.npy
"""

from __future__ import annotations

import sys
import time

import numpy as np

import aicf


def main(artifact: str, images: str, probabilities: str) -> None:
    """Runs all images at once and says how long loading took and whether a compiler was imported."""
    aicf.load  # noqa: B018  # imports what loading needs, so that the clock sees loading alone
    started = time.perf_counter()
    model = aicf.load(artifact)
    elapsed = time.perf_counter() - started
    np.save(probabilities, model(np.load(images)))
    compilers = [name for name in ("numba", "xdsl") if name in sys.modules]
    print(f"loaded in {elapsed * 1e3:.0f} ms; compilers imported: {', '.join(compilers) or 'none'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
