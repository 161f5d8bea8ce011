"""The check `wrong`: whether a candidate gives the outputs of the good program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from aicf.bisection.checks import Verdict, told_apart
from aicf.bisection.delta_debugging import Outcome
from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch
from aicf.inspection.random_inputs import random_inputs
from aicf.runtime.tensors import Array


class Wrong:
    """Runs all programs of a candidate once, from the initial state, and compares outputs and state with those of the
    good program.

    Args:
        inputs: By name, for one program; None for random inputs of every program.
        tolerance: How far a result may be off, relative to its largest element; by default the square root of the
            spacing of its element type (3.5e-4 for f32). Integers and truth values must be equal.
        seed: Of random inputs.

    Raises:
        InputMismatch: the tolerance is no number of at least 0.
    """

    effect = "results are wrong"

    def __init__(
        self, inputs: Mapping[str, Any] | None = None, tolerance: float | None = None, seed: int = 0
    ) -> None:
        if tolerance is not None and not tolerance >= 0:
            raise InputMismatch(f"tolerance {tolerance} is no share; give a number of at least 0")
        self._given, self._tolerance, self._seed = inputs, tolerance, seed
        self._inputs: list[Mapping[str, Any]] = []
        self._expected: list[dict[str, Array]] = []

    @property
    def text(self) -> str:
        """See `Check`."""
        inputs = f"seed {self._seed}" if self._given is None else f"inputs {', '.join(self._given)}"
        return f"wrong, {inputs}, tolerance {'by type' if self._tolerance is None else self._tolerance}"

    def open(self, good: CompiledModel, bad: CompiledModel) -> Verdict:
        """See `Check`."""
        self._inputs = (
            [self._given]
            if self._given is not None
            else [random_inputs(good.plan.by_name[row.program], self._seed) for row in good.plan.rows]
        )
        self._expected = [_results(good, inputs) for inputs in self._inputs]
        return told_apart(self.verdict(good), self.verdict(bad))

    def verdict(self, candidate: CompiledModel) -> Verdict:
        """See `Check`."""
        for inputs, expected in zip(self._inputs, self._expected, strict=True):
            for name, found in _results(candidate, inputs).items():
                error, most = error_of(found, expected[name]), self._most(expected[name])
                if not error <= most:
                    return Verdict(Outcome.BAD, f"'{name}' is off by {error:.1e}, tolerance {most:.1e}")
        return Verdict(Outcome.GOOD, "all results are as of the good program")

    def _most(self, expected: Array) -> float:
        if not _is_float(expected):
            return 0.0
        return _spacing(expected) ** 0.5 if self._tolerance is None else self._tolerance


def error_of(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest expected element; infinite where one is NaN or infinite and the
    other is not the same."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not _is_float(expected):
        return 0.0 if np.array_equal(found, expected) else float("inf")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    difference = np.abs(a[finite] - b[finite]).max(initial=0.0)
    largest = np.abs(b[finite]).max(initial=0.0)
    return float(difference / largest) if largest else float(difference)


def _results(compiled: CompiledModel, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The outputs of one run from the initial state, and the state after it."""
    before = compiled.state()
    results = compiled.run(inputs)
    after = compiled.state()
    if before:
        compiled.set_state(before)
    return {**results, **after}


def _is_float(array: Array) -> bool:
    """NumPy's floats, and those of ml_dtypes, which are of no kind."""
    return array.dtype.kind in "fV"


def _spacing(array: Array) -> float:
    """The distance of 1 and the next number."""
    import ml_dtypes  # NumPy's knows the types of NumPy alone

    return float(cast("Any", ml_dtypes.finfo)(array.dtype).eps)
