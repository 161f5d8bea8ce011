"""Says what kind of files there are, with the model of the package `magika`, run by AICF.

    python file_types.py FILE...       by default files of this repository

The package reads the files and judges the scores; only its session is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from magika import Magika

import aicf

ROOT = Path(__file__).parents[2]
SOME_FILES = (
    "README.md",
    "pyproject.toml",
    "Makefile",
    "LICENSE",
    "aicf/compilation/compiler.py",
    "examples/digits/mlp.mlir",
)


class MagikaSession:
    """What `magika` asks of its session, answered by AICF: one program for each number of files."""

    def __init__(self, path: Path) -> None:
        self.session = aicf.InferenceSession(path)

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[np.ndarray]:
        """The scores of files, of the bytes that the package picks."""
        found = self.session.run({name: np.asarray(value, np.int32) for name, value in feeds.items()})
        return [found[name] for name in outputs]


def detector() -> Magika:
    """The package's detector on a session of AICF."""
    magika = Magika()
    magika._onnx_session = MagikaSession(magika._model_path)  # pyright: ignore
    return magika


def main() -> None:
    """Prints the type of each file."""
    paths = [Path(name) for name in sys.argv[1:]] or [ROOT / name for name in SOME_FILES]
    for path, result in zip(paths, detector().identify_paths(paths), strict=True):
        print(f"{result.output.label:>12} {result.score:.3f} {path}")


if __name__ == "__main__":
    main()
