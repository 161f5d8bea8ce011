"""A session over programs of AICF: it picks programs, makes them, keeps them within limits, and says so.

What a program is and how it runs is the compiler's and the runtime's; a session adds no step to a call but the look-up
by shapes. Users have one through `InferenceSession`, which this is where the engine is AICF.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aicf.engines.interface import UNKNOWN, Feeds
from aicf.engines.limits import Limits
from aicf.engines.placement import Placement
from aicf.engines.record import EngineRecord, Fingerprint
from aicf.engines.report import Report
from aicf.errors import InputMismatch, ValueNeeded
from aicf.inference.binding import Binding
from aicf.inference.packing import common_bytes
from aicf.inference.placing import placed
from aicf.inference.program_sources.base import ProgramSource, SourcedProgram
from aicf.inference.programs import Program, Programs
from aicf.inference.usage import MemoryUse
from aicf.runtime.executable import TensorSpec
from aicf.runtime.profiler import Profile, Profiler
from aicf.runtime.store import DERIVED
from aicf.runtime.tensors import Array
from aicf.support.arguments import mapping_from


class ProgramSession:
    """See `EngineSession`.

    Args:
        source: Gives the programs.
        fingerprint: Of what it was asked for.
        limits: What may be made, and how much of it is kept.
        report: Is told of everything.
    """

    def __init__(
        self, source: ProgramSource, fingerprint: Fingerprint, limits: Limits, report: Report
    ) -> None:
        self._source, self._limits, self._report = source, limits, report
        self._fingerprint = fingerprint
        self._interface = source.interface
        report.name = source.model
        self._programs = Programs(source, limits, report)
        seconds, detail = 0.0, "no program yet, the first call of each shape makes one"
        if (made := self._ahead()) is not None:
            self._programs.add_ahead(made)
            seconds, detail = made.seconds, made.detail
        report.add(logging.INFO, "opened", "", detail, seconds, f"\n{self.placement()}")

    def _ahead(self) -> SourcedProgram | None:
        """What can be made now. Where a program follows from the value of an input, that waits for the first call."""
        try:
            return self._source.ahead()
        except ValueNeeded as error:
            if not self._interface.may_follow(error.inputs):
                raise
            names = " and ".join(map(repr, error.inputs))
            self._report.add(
                logging.INFO, "followed", "", f"programs wait for the value of {names}: {error.message}"
            )
            self._interface.follow(error.inputs)
            return None

    # What it is

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._source.model

    @property
    def input_info(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each input, in order; a symbolic size is its name."""
        return self._interface.inputs

    @property
    def output_info(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each output, in order; a symbolic size is its name, `?` one that has none.

        An ONNX model may declare nothing of an output; it is then what the first program gives, and `?[?]` before that.
        """
        specs = self._interface.outputs
        for program in self._programs.all:
            sizes = dict(zip(self._interface.dims, program.bucket.sizes, strict=False))
            made = program.counts.visible(program.executable.outputs)
            own = program.own_outputs
            specs = tuple(
                _corrected(spec, known, its, sizes) for spec, known, its in zip(specs, made, own, strict=True)
            )
        return specs

    @property
    def target(self) -> str:
        """Backend and level that programs run on, as in `cpu:x86-64-v4`."""
        return self._source.name

    @property
    def record(self) -> EngineRecord:
        """What runs. Its decisions are in the placement, in `explain` and in artifacts."""
        return EngineRecord(self._fingerprint, is_opaque=False)

    @property
    def memory(self) -> MemoryUse:
        """Bytes: of weights, and of each program those predicted and those requested."""
        programs = self._programs.all
        executables = [program.executable for program in programs]
        weights = max((executable.memory()["weights"] for executable in executables), default=0)
        prepared = common_bytes(executables, [DERIVED])
        return MemoryUse(weights, prepared, tuple(program.memory for program in programs))

    def placement(self) -> Placement:
        """What runs where: device, kernels, memory and sizes of the programs that are there."""
        programs = self._programs.all
        return Placement(
            self._source.model,
            self._source.name,
            programs[0].executable.plan.threads if programs else self._source.threads,
            tuple(f"{spec.name}: {spec}" for spec in self.input_info),
            tuple(f"{spec.name}: {spec}" for spec in self.output_info),
            self._shapes(programs),
            self.memory.weights,
            tuple(placed(program.executable, program.plan) for program in programs),
        )

    def _shapes(self, programs: Sequence[Program]) -> str:
        if not self._interface.dims and not self._interface.followed:
            return "one program, its sizes are fixed"
        have = " | ".join(program.label for program in programs) or "no sizes yet"
        makes = self._source.makes_programs and self._limits.makes
        return f"{have}; others are {'compiled on first use' if makes else 'refused'}"

    # Running

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None, *, out: Any = None) -> dict[str, Array]:
        """Runs the model once. Any number of threads may do so at once; calls of a model with state take turns.

        Args:
            feeds: Inputs by name, or a list of them in order: NumPy arrays of the exact dtype, DLPack objects, and on a
                GPU anything with `__cuda_array_interface__`.
            outputs: Names of the outputs that are wanted, in the order wanted; None for all.
            out: Arrays to write outputs into without a copy: by name, or one array if there is one output.

        Returns:
            Fresh arrays by name, or those of `out`.

        Raises:
            InputMismatch: an input is missing, unknown, or of another rank, dtype or size; sizes contradict each other;
                an output is unknown; or the sizes have no program and none may be made.
            SessionClosed: the session is closed.
        """
        if outputs is not None:
            self._interface.check_outputs(outputs)
        arguments = self._interface.arguments(feeds)
        results = self._programs.find(arguments).call(arguments, out)
        return results if outputs is None else {name: results[name] for name in outputs}

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> Binding:
        """Inputs and outputs on the caller's memory, to be run many times without a copy; see `Binding`.

        Raises:
            InputMismatch: as `Binding.bind`.
        """
        self.check_open()
        return Binding(self).bind(arrays, **named)

    def warm_up(self, dims: Mapping[str, int] | None = None, *, feeds: Feeds | None = None) -> None:
        """Runs programs once, so that their first call finds code, memory and device ready. A state is left alone.

        Args:
            dims: Sizes of all symbolic dimensions: the program for them, made if need be, on zeros.
            feeds: Inputs, as of `run`: the program for them, made if need be. With neither, all that are there.

        Raises:
            InputMismatch, SessionClosed: as `run`.
        """
        self.check_open()
        if feeds is not None:
            arguments = self._interface.arguments(feeds)
            program = self._programs.find(arguments)
            _warm(program, dict(zip(program.inputs, program.own(arguments), strict=True)))
            return
        programs = self._programs.all
        if dims is not None:
            dims = mapping_from(dims, InputMismatch, "dims")
        if dims is not None or not self._interface.dims:
            programs = (self._programs.for_bucket(self._interface.bucket_named(dims or {})),)
        for program in programs:
            _warm(program, program.zeros())

    def profile(self, feeds: Feeds, repeats: int = 100) -> Profile:
        """Times of the instructions of the program that these inputs run, each with the ops of the model it stands for.

        It runs `repeats` times instruction by instruction and as often whole, on memory and state of its own.

        Raises:
            InputMismatch, SessionClosed: as `run`.
            CaptureError: the engine runs whole programs only.
        """
        arguments = self._interface.arguments(feeds)
        program = self._programs.find(arguments)
        return Profiler(program.executable).measure(*program.own(arguments), repeats=repeats)

    def state(self, *names: str) -> dict[str, Array]:
        """Copies of what calls update, parameters and states: those of these names, by default all.

        Raises:
            InputMismatch: a name is none of them.
            SessionClosed: the session is closed.
        """
        self.check_open()
        programs = self._programs.all
        return programs[0].executable.state(*names) if programs else {}

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Replaces what calls update. Raises as `state`, and InputMismatch for what does not fit."""
        self.check_open()
        programs = self._programs.all
        if not programs or not programs[0].executable.is_stateful:
            raise InputMismatch(f"'{self._source.model}' updates nothing, so it has no state")
        programs[0].executable.set_state(values)

    # For bindings

    @property
    def port_names(self) -> list[str]:
        """Names of all inputs and outputs."""
        return [*self._interface.input_names, *self._interface.output_names]

    @property
    def known_values(self) -> Mapping[str, Array]:
        """Values of inputs that were given with the session."""
        return self._interface.known

    def program_of(self, feeds: Feeds) -> Program:
        """The program that inputs run, made if need be."""
        return self._programs.find(self._interface.arguments(feeds))

    # The end

    def close(self) -> None:
        """Gives back memory and code. Calls in flight end as ever, later ones are an error."""
        if not self._programs.is_closed:
            self._programs.close()
            self._report.add(logging.DEBUG, "closed", "", "memory and code are given back")

    def check_open(self) -> None:
        """Raises SessionClosed if the session is closed."""
        self._programs.check_open()


def _corrected(
    declared: TensorSpec, made: TensorSpec, own: TensorSpec, sizes: Mapping[str, int]
) -> TensorSpec:
    """An output as far as what the model declares of it is true of a program; a name that is not says nothing.

    Args:
        made: What the executable says of it.
        own: What the program says of it.
        sizes: Of the symbolic dimensions, in that program.
    """
    if declared.dtype != own.dtype or len(declared.shape) != len(own.shape):
        return made
    triples = zip(declared.shape, made.shape, own.shape, strict=True)
    shape = [
        said if _fits(said, size, sizes) else UNKNOWN if isinstance(said, str) else known
        for said, known, size in triples
    ]
    return replace(declared, shape=tuple(shape))


def _fits(said: int | str, size: int | str, sizes: Mapping[str, int]) -> bool:
    if isinstance(said, int) or isinstance(size, str):
        return said == size or isinstance(said, str)
    if said in sizes or said == UNKNOWN:
        return sizes.get(said, size) == size
    from aicf.dialects.dims import parse_size, substitute  # arithmetic on names, which only models have

    return substitute(parse_size(said), sizes) == size


def _warm(program: Program, inputs: Mapping[str, Any]) -> None:
    """One run, on a state of its own if the program has one."""
    if not program.executable.is_stateful:
        program.call_own(list(inputs.values()))
        return
    graph_exec = program.executable.instantiate(**program.sizes)
    graph_exec.fill(inputs)
    graph_exec.replay()
    graph_exec.synchronize()
