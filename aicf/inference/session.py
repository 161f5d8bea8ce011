"""`InferenceSession`: a model that answers calls of any shapes from any thread, by programs that are compiled ahead or
as shapes come.

It picks programs, makes them, keeps them within limits, and says so. What a program is and how it runs is the
compiler's and the runtime's; a session adds no step to a call but the look-up by shapes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aicf.arguments import flag_from, mapping_from, path_from
from aicf.compiled import CompiledModel
from aicf.errors import ArtifactError, InputMismatch, PolicyError, ValueNeeded
from aicf.inference.binding import Binding
from aicf.inference.engines.base import Engine, EngineProgram
from aicf.inference.engines.opening import open_engine
from aicf.inference.engines.request import Request
from aicf.inference.interface import UNKNOWN, Feeds
from aicf.inference.limits import Limits
from aicf.inference.packing import common_bytes
from aicf.inference.placement import Placement, placed
from aicf.inference.programs import Program, Programs
from aicf.inference.report import Report
from aicf.inference.usage import MemoryUse
from aicf.runtime.executable import TensorSpec
from aicf.runtime.profiler import Profile, Profiler
from aicf.runtime.store import DERIVED
from aicf.runtime.tensors import Array, describe

if TYPE_CHECKING:
    from aicf.extensions import Extension, Passes
    from aicf.inference.policies import ExecutionPolicyLike, KernelPolicyLike, PrecisionPolicyLike
    from aicf.policies.policy import Policy, PolicyLike
    from aicf.sources import Dims, Model, Tuning, Values
    from aicf.weight_arrays import Weights


class InferenceSession:
    """A model, ready to be run.

    Args:
        model: What `aicf.compile` takes (the path of an `.onnx`, `.pt2` or `.mlir` file, bytes of an ONNX model, what
            `torch.export.export` gives, program text, a module, a builder graph), the path of an artifact, or a
            compiled model.
        weights: Path of a `.safetensors` file, or arrays by name; None if the model has its own.
        device: `cpu`, `cuda`, `cuda:0` or `reference`; None is the model's own, else `cpu`.
        engine: The backend that runs programs on the device, with a level if that matters (`cpu:x86-64-v3`); None is
            the device's own.
        policy: What programs are compiled by, as of `aicf.compile`; its section `execution` also has the limits of a
            session (`new_shapes`, `max_programs`, `max_bytes`).
        kernel_policy, exec_policy, precision_policy: The same section by section: a policy of that section, plain
            values, inline JSON or a path. What `policy` says of a section too must not contradict it.
        cache_dir: Folder of compiled programs, shared by all sessions and processes that name it; None keeps none.
        dims: Sizes of symbolic dimensions, `{"batch": [1, 8]}` or `"batch=1,8"`. If all dimensions are named, programs
            for all combinations are made now. Others are compiled on first use.
        values: Inputs of an ONNX model that its shapes follow from, and their values, `{"shape": [2, 3]}`: calls may
            leave them out. A call with other values, or values of inputs that are not named here, is another program.
        threads: Threads that run each program together.
        tuning: What `aicf tune` measured for the target.
        strict: Whether an ONNX model that declares wrong types or shapes of its values is refused. If not, what its
            nodes compute holds, and the report warns once of each.
        passes: The caller's passes, as of `aicf.compile`. With `cache_dir` each is defined in a file, whose contents
            are part of what entries are found by.
        training: Whether dropouts and batch norms do what they do in training, as of `aicf.compile`.

    Raises:
        InvalidIR: the model does not parse or verify, or declares with `strict` what is not so.
        UnsupportedOp: no kernel of the engine runs an op.
        PolicyError: device, engine, policy, dims or threads are not legal.
        InputMismatch: weights are missing, too many, or of another shape or dtype.
        ArtifactError: the artifact or the cache folder cannot be used.
        BackendUnavailable: the device is not here.
    """

    def __init__(
        self,
        model: Model | CompiledModel,
        weights: Weights | None = None,
        *,
        device: str | None = None,
        engine: str | None = None,
        policy: PolicyLike | None = None,
        kernel_policy: KernelPolicyLike = None,
        exec_policy: ExecutionPolicyLike = None,
        precision_policy: PrecisionPolicyLike = None,
        cache_dir: str | Path | None = None,
        dims: Dims | None = None,
        values: Values | None = None,
        threads: int | None = None,
        tuning: Tuning | None = None,
        strict: bool = False,
        passes: Passes = (),
        training: bool = False,
    ) -> None:
        wanted, self._limits = _read_policies(policy, kernel_policy, exec_policy, precision_policy)
        strict, training = (
            flag_from(strict, PolicyError, "strict"),
            flag_from(training, PolicyError, "training"),
        )
        folder = None if cache_dir is None else path_from(cache_dir, ArtifactError, "cache_dir")
        request = Request(
            model,
            weights,
            device,
            engine,
            wanted,
            folder,
            dims,
            values,
            threads,
            tuning,
            strict,
            _read_passes(passes),
            training,
        )
        self._report = Report()
        self._engine: Engine = open_engine(request, self._report)
        self._interface = self._engine.interface
        self._report.name = self._engine.model
        self._programs = Programs(self._engine, self._limits, self._report)
        seconds, detail = 0.0, "no program yet, the first call of each shape makes one"
        if (made := self._ahead()) is not None:
            self._programs.add_ahead(made)
            seconds, detail = made.seconds, made.detail
        self._report.add(logging.INFO, "opened", "", detail, seconds, f"\n{self.placement()}")

    def _ahead(self) -> EngineProgram | None:
        """What can be made now. Where a program follows from the value of an input, that waits for the first call."""
        try:
            return self._engine.ahead()
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
    def engine_name(self) -> str:
        """Backend and level that programs run on, as in `cpu:x86-64-v4`."""
        return self._engine.name

    @property
    def report(self) -> Report:
        """What the session did on its own account: programs made, loaded, picked, evicted."""
        return self._report

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
            self._engine.model,
            self._engine.name,
            programs[0].executable.plan.threads if programs else self._engine.threads,
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
        makes = self._engine.makes_programs and self._limits.makes
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
            raise InputMismatch(f"'{self._engine.model}' updates nothing, so it has no state")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {describe(spec.shape, spec.dtype)}" for spec in self.input_info)
        return f"InferenceSession({self._engine.model}: {inputs}; {self._engine.name})"


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


def _read_passes(passes: Passes) -> Sequence[Extension]:
    """One by one; without any, nothing of the compiler is imported."""
    if isinstance(passes, list | tuple) and not passes:
        return ()
    from aicf.extensions import flattened

    return flattened(passes)


def _read_policies(
    whole: PolicyLike | None,
    kernel: KernelPolicyLike,
    execution: ExecutionPolicyLike,
    precision: PrecisionPolicyLike,
) -> tuple[Policy | None, Limits]:
    """The policy of compiles, None if nothing is given, and the limits of the session."""
    if whole is None and kernel is None and execution is None and precision is None:
        return None, Limits()
    from aicf.inference.policies import limits_of, policies

    policy = policies(whole, kernel, execution, precision)
    return policy, limits_of(policy)


def _warm(program: Program, inputs: Mapping[str, Any]) -> None:
    """One run, on a state of its own if the program has one."""
    if not program.executable.is_stateful:
        program.call_own(list(inputs.values()))
        return
    graph_exec = program.executable.instantiate(**program.sizes)
    graph_exec.fill(inputs)
    graph_exec.replay()
    graph_exec.synchronize()
