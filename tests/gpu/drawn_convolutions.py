"""Drawn convolutions against float64, and the hash of what they give in several processes.

    python -m tests.gpu.drawn_convolutions [--count N] [--jobs N] [--target T] [--processes N]

Sizes, strides, padding, groups, dilations, element types, orders in memory and what follows are drawn from the number
of the program, so a line of the log can be repeated with `--only`. Floats are as close to float64 as their types allow,
or three times as far off as a run that rounds after each operation. The exit status is the number of programs that are
not right, 100 at most.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Annotated

import numpy as np
import typer

import aicf
from tests.gpu.convolutions import Convolution, convolutions, drawn, drawn_channels_last, drawn_depthwise
from tests.gpu.harness import ROUNDING, error
from tests.gpu.programs import Array, arguments, random_arrays
from tests.support.random_graphs import run_program

EACH = 10
"""Convolutions of a program."""
_DTYPES = ("f16", "f16", "bf16", "f32", "f64")
_DRAWS: Sequence[Callable[[random.Random], Convolution]] = (
    lambda source: drawn(source, 1 << 22),
    drawn_channels_last,
    lambda source: drawn_depthwise(source, 1 << 20),
)
_SUMS_DEPTH = 8
"""How many roundings of its type a sum of products may be off: of f32 and f64, whose sums are of their own type."""


@dataclass(frozen=True)
class Checked:
    """What a program gave.

    Args:
        worst: The largest error over what it may be; right is at most 1.
        kernels: That ran it.
        digest: One hash of the bits of all outputs.
        failure: What kept it from running; None if it ran.
    """

    number: int
    dtype: str
    worst: float
    kernels: tuple[str, ...] = ()
    digest: str = ""
    failure: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether it ran, and every output is close enough."""
        return self.failure is None and self.worst <= 1.0

    def __str__(self) -> str:
        what = (
            self.failure
            or f"{self.worst:.2f} of the error allowed, {self.digest[:16]}, {' '.join(self.kernels)}"
        )
        return f"{'ok   ' if self.is_right else 'WRONG'} program {self.number:4} {self.dtype:5} {what}"


def check(number: int, target: str) -> Checked:
    """Draws, compiles and runs a program, and compares it."""
    source = random.Random(number)
    dtype, draw = source.choice(_DTYPES), source.choice(_DRAWS)
    try:
        module = convolutions(dtype, [draw(source) for _ in range(EACH)]).module()
        arrays = random_arrays(module, f"drawn convolutions {number}")
        inputs = {name for name, role, _ in arguments(module) if role == "input"}
        weights = {name: array for name, array in arrays.items() if name not in inputs}
        model = aicf.compile(module, weights=weights, target=target)
        found = model.run({name: arrays[name] for name in inputs})
        worst = max(_errors(found, run_program(module, arrays), run_program(module, arrays, "typed")))
    except Exception as failure:
        return Checked(number, dtype, np.inf, failure=f"{type(failure).__name__}: {failure}")
    kernels = {launch.kernel for program in model.plan.programs for launch in program.launches}
    return Checked(number, dtype, worst, tuple(sorted(kernels)), _digest(found))


def _errors(found: dict[str, Array], wanted: dict[str, Array], rounded: dict[str, Array]) -> Iterator[float]:
    """Of each output its error over the error that it may have."""
    for name, exact in wanted.items():
        type_ = found[name].dtype.name
        depth = _SUMS_DEPTH if type_ in ("float32", "float64") else 1
        yield error(found[name], exact) / max(ROUNDING[type_] * depth, 3 * error(rounded[name], exact))


def _digest(found: dict[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(found[name].tobytes())
    return digest.hexdigest()


def main(
    count: Annotated[int, typer.Option(help="convolutions")] = 1000,
    jobs: Annotated[int, typer.Option(help="processes side by side")] = 4,
    target: Annotated[str, typer.Option(help="as of aicf compile")] = "cuda",
    processes: Annotated[int, typer.Option(help="that run each program anew, for its hash")] = 1,
    only: Annotated[int | None, typer.Option(help="one program, by its number")] = None,
) -> None:
    """See the module."""
    numbers = [only] if only is not None else list(range(-(-count // EACH)))
    wrong = 0
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=8) as pool:
        runs = [[pool.submit(check, number, target) for _ in range(processes)] for number in numbers]
        for same in runs:
            results = [run.result() for run in same]
            digests = {each.digest for each in results}
            print(
                results[0]
                if len(digests) == 1
                else f"WRONG program {results[0].number}: {len(digests)} hashes"
            )
            wrong += len(digests) > 1 or not all(each.is_right for each in results)
            sys.stdout.flush()
    print(
        f"{len(numbers) * EACH} convolutions in {len(numbers)} programs, each run in {processes}: {wrong} wrong"
    )
    raise typer.Exit(min(wrong, 100))


if __name__ == "__main__":
    typer.run(main)
