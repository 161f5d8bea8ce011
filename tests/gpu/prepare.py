"""Compiles every case of the GPU tests, a control of the sanitizer, and the digits demo, into a folder; needs no GPU.

    python -m tests.gpu.prepare DIR [CASE...]

Then, where the GPU is: AICF_GPU_ARTIFACTS=DIR pytest -m gpu
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.gpu.artifacts import DIGITS, compiled, make_digits, path_of
from tests.gpu.cases import CASES
from tests.gpu.controls import CONTROLS, UNORDERED, compiled_without_barriers


def main(directory: str, *names: str) -> None:
    """Writes an artifact without weights for each of `names`, by default for all; then the control and the demo."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or CASES:
        started = time.perf_counter()
        model = compiled(name)
        model.save(path_of(name, folder), weights=False)
        kernels = [launch.kernel for program in model.plan.programs for launch in program.launches]
        seconds = time.perf_counter() - started
        print(
            f"{name}: {len(kernels)} instructions, {seconds:.1f} s: {', '.join(sorted(set(kernels)))}",
            flush=True,
        )
    if not names:
        control = compiled_without_barriers(CONTROLS[UNORDERED].case)
        control.save(path_of(UNORDERED, folder), weights=False)
        make_digits(folder / DIGITS)


if __name__ == "__main__":
    main(*sys.argv[1:])
