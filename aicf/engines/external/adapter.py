"""What an engine outside of AICF has to say: how a plan is made, kept and loaded, and how it runs.

All else, sessions, sizes, limits, checks, bindings and reports, is written once beside this file. An adapter derives
`ExternalEngine`, gives an `ExternalModel` for a model, and that a `Runner` for sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.record import Fingerprint
from aicf.errors import InputMismatch
from aicf.runtime.profiler import InstructionTime
from aicf.runtime.tensors import Array

ANY_SIZES: Mapping[str, int] = {}
"""What a plan is made for that runs inputs of any sizes, or of a model whose sizes are all fixed."""


class BoundRun(Protocol):
    """A plan on memory of the caller."""

    def run(self) -> None:
        """Reads the inputs where they are and writes the outputs; waits for the end."""
        ...

    def outputs(self) -> dict[str, Array]:
        """The memory of all outputs. Raises InputMismatch for those of the engine's own before the first run."""
        ...


class Runner(ABC):
    """A plan that is loaded. Any number of threads may use it at once, each binding by one."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One run on row-major host arrays; the outputs by name, in new arrays."""

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> BoundRun:
        """Runs on memory of the caller; by copies, where an engine cannot do without."""
        return CopyingRun(self, inputs, outputs)

    def profile(self, inputs: Mapping[str, Array], repeats: int) -> tuple[InstructionTime, ...]:
        """Times of the parts that the engine tells apart, by the names that it has for them; none if it tells none."""
        return ()

    def plan(self) -> bytes | None:
        """The plan as bytes that `ExternalModel.load` takes; None if the engine gives none out."""
        return None

    def close(self) -> None:  # noqa: B027  # most have nothing to give back before they are collected
        """Gives back what it holds."""


class CopyingRun:
    """See `BoundRun`: inputs are read where they are, results are copied to where they are wanted."""

    def __init__(self, runner: Runner, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._runner, self._inputs, self._bound = runner, inputs, outputs
        self._results: dict[str, Array] = {}

    def run(self) -> None:
        """See `BoundRun`."""
        results = self._runner.run(self._inputs)
        for name, array in self._bound.items():
            if results[name].shape != array.shape:
                raise InputMismatch(
                    f"output '{name}' has shape {list(results[name].shape)}, what is bound has {list(array.shape)}"
                )
            np.copyto(array, results[name], casting="no")
        self._results = {**results, **self._bound}

    def outputs(self) -> dict[str, Array]:
        """See `BoundRun`."""
        if not self._results:
            raise InputMismatch(
                "an output that is not bound is there after the first run; run, or bind memory for it"
            )
        return self._results


class ExternalModel(ABC):
    """A model that an engine has accepted.

    Attributes:
        fingerprint: Of all its plans, sizes apart.
        runs_any_sizes: Whether one plan can run inputs of any sizes. If not, each combination has a plan of its own.
        threads: That run a plan together; 0 if the engine does not tell.
        notes: What the engine does that the caller did not ask for, for the report.
    """

    fingerprint: Fingerprint
    runs_any_sizes: bool
    threads: int = 0
    notes: tuple[str, ...] = ()

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    @abstractmethod
    def build(self, sizes: Mapping[str, int]) -> Runner:
        """Makes a plan for sizes of all dimensions, or for ANY_SIZES."""

    def load(self, plan: bytes, sizes: Mapping[str, int]) -> Runner:
        """A plan that `Runner.plan` gave for an equal fingerprint and equal sizes. Raises anything if it cannot."""
        raise NotImplementedError(f"engine '{self.fingerprint.engine}' keeps no plans")
