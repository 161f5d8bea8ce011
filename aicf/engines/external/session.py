"""A session over plans of an engine outside of AICF: the calls, checks and reports that all such engines share."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, cast

import numpy as np

from aicf.engines.external.adapter import BoundRun, ExternalModel, Runner
from aicf.engines.external.binding import ExternalBinding
from aicf.engines.external.errors import engine_errors
from aicf.engines.external.plans import Plans
from aicf.engines.interface import Bucket, Feeds, Interface
from aicf.engines.placement import Placement
from aicf.engines.record import EngineRecord
from aicf.engines.report import Report
from aicf.engines.sizes import shape_at
from aicf.errors import InputMismatch, PolicyError
from aicf.runtime.executable import TensorSpec
from aicf.runtime.graph_exec import check_runs
from aicf.runtime.ports import as_array, reject_unknown
from aicf.runtime.profiler import Profile
from aicf.runtime.tensors import Array, numpy_dtype
from aicf.support.arguments import mapping_from


class ExternalSession:
    """See `EngineSession`.

    Args:
        model: As the engine has accepted it.
        interface: Of the model.
        plans: Of this session.
        report: Is told of everything.
        is_verified: Whether the adapter of the engine is.
    """

    def __init__(
        self, model: ExternalModel, interface: Interface, plans: Plans, report: Report, *, is_verified: bool
    ) -> None:
        self._model, self._interface, self._plans, self._report = model, interface, plans, report
        self._engine, self._is_verified = model.fingerprint.engine, is_verified
        self._picked: set[Bucket] = set()
        report.name = model.model.name
        seconds = plans.make_ahead()
        report.add(logging.INFO, "opened", "", f"engine {self._engine}", seconds, f"\n{self.placement()}")

    # What it is

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._model.model.name

    @property
    def target(self) -> str:
        """What runs it, in the engine's words."""
        return self._model.fingerprint.target

    @property
    def input_info(self) -> tuple[TensorSpec, ...]:
        """The inputs in order."""
        return self._interface.inputs

    @property
    def output_info(self) -> tuple[TensorSpec, ...]:
        """The outputs in order, as the model declares them."""
        return self._interface.outputs

    @property
    def record(self) -> EngineRecord:
        """What runs; what the engine decides inside is not known."""
        own = self._model
        return EngineRecord(
            own.fingerprint,
            self._plans.hashes,
            is_opaque=True,
            is_verified=self._is_verified,
            notes=own.notes,
        )

    @property
    def memory(self) -> object:
        """Raises PolicyError: engines do not tell what they hold."""
        raise PolicyError(
            f"engine '{self._engine}' does not tell what memory it holds; `aicf compare` measures its process"
        )

    def placement(self) -> Placement:
        """What runs where, as far as it is known."""
        labels = " | ".join(self._plans.labels)
        plans = f"plans for {labels}" if labels else "no plan yet, the first call of each shape makes one"
        shapes = plans if self._interface.dims else "one plan, its sizes are fixed"
        return Placement(
            self.model,
            f"{self._engine}: {self.target}",
            self._model.threads,
            tuple(f"{spec.name}: {spec}" for spec in self.input_info),
            tuple(f"{spec.name}: {spec}" for spec in self.output_info),
            shapes,
            0,
            notes=tuple(str(self.record).splitlines()),
        )

    # Running

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None, *, out: Any = None) -> dict[str, Array]:
        """Runs the model once; results go into `out` by a copy."""
        if outputs is not None:
            self._interface.check_outputs(outputs)
        arguments = self._interface.arguments(feeds)
        runner, inputs = self._runner_of(arguments)
        targets = self._targets(out)
        with engine_errors(self._engine, "ran the model"):
            results = runner.run(inputs)
        for name, array in targets.items():
            self._check_like(name, array, results[name])
            np.copyto(array, results[name], casting="no")
        found = {**results, **targets}
        return {name: found[name] for name in (self._interface.output_names if outputs is None else outputs)}

    def _runner_of(self, arguments: Sequence[Any]) -> tuple[Runner, dict[str, Array]]:
        """The plan that inputs run, and the inputs as row-major arrays of the host."""
        self._plans.check_open()
        bucket = self._interface.bucket_of(arguments)
        runner = self._plans.find(bucket)
        self._report.picked(self._plans.label(bucket), is_first=bucket not in self._picked)
        self._picked.add(bucket)
        pairs = zip(self._interface.inputs, arguments, strict=True)
        return runner, {spec.name: self._host_array(spec, value) for spec, value in pairs}

    def _host_array(self, spec: TensorSpec, value: object) -> Array:
        return np.asarray(as_array(value, _Port("input", spec)), order="C")

    def _targets(self, out: Any) -> dict[str, Array]:
        """What `out=` names, as arrays that can be written."""
        names = self._interface.output_names
        if out is None:
            return {}
        if not isinstance(out, Mapping):
            if len(names) != 1:
                raise InputMismatch(
                    f"out is one array, and there are {len(names)} outputs; give a dict by name"
                )
            out = {names[0]: out}
        given = mapping_from(cast(object, out), InputMismatch, "out")
        reject_unknown(given, names, "output")
        specs = {spec.name: spec for spec in self._interface.outputs}
        return {name: self.writable(specs[name], value) for name, value in given.items()}

    def writable(self, spec: TensorSpec, value: object) -> Array:
        """An array that an output can be written to. Raises InputMismatch if it is none."""
        array = as_array(value, _Port("output", spec))
        if not array.flags.writeable:
            raise InputMismatch(f"output '{spec.name}' is a read-only array; give writable memory")
        return array

    def _check_like(self, name: str, array: Array, result: Array) -> None:
        if (array.shape, array.dtype) != (result.shape, result.dtype):
            raise InputMismatch(
                f"output '{name}': the result is {result.dtype}{list(result.shape)}, out is "
                f"{array.dtype}{list(array.shape)}; give an array like the result"
            )

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> ExternalBinding:
        """Inputs and outputs on the caller's memory."""
        self._plans.check_open()
        return ExternalBinding(self).bind(arrays, **named)

    def warm_up(self, dims: Mapping[str, int] | None = None, *, feeds: Feeds | None = None) -> None:
        """Runs plans once on zeros: those for `dims`, or for the sizes of `feeds`, else those made ahead."""
        self._plans.check_open()
        if feeds is not None:
            self.run(feeds)
            return
        if dims is not None:
            dims = mapping_from(dims, InputMismatch, "dims")
        asked = dims is not None or not self._interface.dims
        for bucket in (self._interface.bucket_named(dims or {}),) if asked else self._plans.ahead:
            self.run(self._zeros(dict(zip(self._interface.dims, bucket.sizes, strict=True))))

    def _zeros(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for spec in self._interface.inputs:
            shape = [size for size in shape_at(spec.shape, sizes) if size is not None]
            found[spec.name] = np.zeros(shape, numpy_dtype(spec.dtype))
        return found

    def profile(self, feeds: Feeds, repeats: int = 100) -> Profile:
        """Times of whole runs on bound memory, and of the parts that the engine tells apart, if it does."""
        check_runs(repeats)
        arguments = self._interface.arguments(feeds)
        runner, inputs = self._runner_of(arguments)
        with engine_errors(self._engine, "profiled the model"):
            bound = runner.bind(inputs, {})
            bound.run()
            whole = median(_microseconds(bound) for _ in range(repeats))
            return Profile(self.model, runner.profile(inputs, repeats), whole)

    def state(self, *names: str) -> dict[str, Array]:
        """Engines keep nothing between calls. Raises InputMismatch for any name."""
        self._plans.check_open()
        reject_unknown(names, (), "state")
        return {}

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Raises InputMismatch: there is nothing to set."""
        self._plans.check_open()
        raise InputMismatch(f"'{self.model}' updates nothing, so it has no state")

    # For bindings

    @property
    def interface(self) -> Interface:
        """What the model takes and gives."""
        return self._interface

    @property
    def engine(self) -> str:
        """Name of the engine."""
        return self._engine

    def bound_run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Array]) -> BoundRun:
        """The plan for inputs, on memory of the caller."""
        arguments = self._interface.arguments(inputs)
        runner, arrays = self._runner_of(arguments)
        for spec, value in zip(self._interface.inputs, arguments, strict=True):
            array = as_array(value, _Port("input", spec))
            if not np.may_share_memory(arrays[spec.name], array) and array.size:
                raise InputMismatch(
                    f"input '{spec.name}' is not row-major, zero-copy needs that; use np.ascontiguousarray"
                )
        with engine_errors(self._engine, "bound memory"):
            return runner.bind(arrays, outputs)

    def check_open(self) -> None:
        """Raises SessionClosed if the session is closed."""
        self._plans.check_open()

    # The end

    def close(self) -> None:
        """Gives back the plans."""
        if not self._plans.is_closed:
            self._plans.close()
            self._report.add(logging.DEBUG, "closed", "", "the engine's plans are given back")


class _Port:
    """A tensor as messages speak of it."""

    def __init__(self, role: str, spec: TensorSpec) -> None:
        self.role, self.name, self.shape, self.dtype = role, spec.name, spec.shape, spec.dtype


def _microseconds(bound: BoundRun) -> float:
    start = perf_counter_ns()
    bound.run()
    return (perf_counter_ns() - start) / 1e3
