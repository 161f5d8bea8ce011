"""`InferenceSession`: a model that answers calls of any shapes from any thread, on the engine that the caller names.

It reads the arguments, opens the engine's session, and hands every call to it. What only programs of AICF have is in
`program_session`; what other engines share is in `aicf/engines/external`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aicf.engines.choosing import open_session
from aicf.engines.interface import Feeds
from aicf.engines.limits import Limits
from aicf.engines.placement import Placement
from aicf.engines.record import EngineRecord
from aicf.engines.registry import OWN
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.errors import ArtifactError, PolicyError
from aicf.runtime.executable import TensorSpec
from aicf.runtime.profiler import Profile
from aicf.runtime.tensors import Array, describe
from aicf.support.arguments import flag_from, path_from

if TYPE_CHECKING:
    from aicf.compilation.compiled import CompiledModel
    from aicf.compilation.extensions import Extension, Passes
    from aicf.compilation.sources import Dims, Model, Policy, Tuning, Values
    from aicf.compilation.weight_arrays import Weights
    from aicf.engines.base import SessionBinding
    from aicf.inference.policies import ExecutionPolicyLike, KernelPolicyLike, PrecisionPolicyLike
    from aicf.policies.policy import Policy as AllPolicies


class InferenceSession:
    """A model, ready to be run.

    Args:
        model: What `aicf.compile` takes (the path of an `.onnx`, `.pt2` or `.mlir` file, bytes of an ONNX model, what
            `torch.export.export` gives, program text, a module, a builder graph), the path of an artifact, or a
            compiled model. Engines other than `aicf` take ONNX models.
        weights: Path of a `.safetensors` file, or arrays by name; None if the model has its own.
        device: `cpu`, `cuda`, `cuda:0` or `reference`, or a device as the engine names it (`npu`, `GPU.1`); None is
            the model's own, else `cpu`.
        engine: What runs the model: `aicf`, another engine by its name (`onnxruntime`, `openvino`; `aicf engines` lists
            them), or `auto`, the first that takes the model as asked, which the report gives reasons for. None is
            `aicf`. Nothing else ever changes the engine.
        target: What AICF compiles for on the device: a backend, with a level if that matters (`cpu:x86-64-v3`); None is
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
        threads: Threads that run each program together; 1 if nothing is said, on every engine.
        tuning: What `aicf tune` measured for the target.
        strict: Whether an ONNX model that declares wrong types or shapes of its values is refused. If not, what its
            nodes compute holds, and the report warns once of each.
        passes: The caller's passes, as of `aicf.compile`. With `cache_dir` each is defined in a file, whose contents
            are part of what entries are found by.
        training: Whether dropouts and batch norms do what they do in training, as of `aicf.compile`.

    Raises:
        InvalidIR: the model does not parse or verify, or declares with `strict` what is not so.
        UnsupportedOp: no kernel of the target runs an op, or the engine does not take such a model.
        PolicyError: device, engine, target, policy, dims or threads are not legal, or the engine cannot follow them.
        InputMismatch: weights are missing, too many, or of another shape or dtype.
        ArtifactError: the artifact or the cache folder cannot be used.
        BackendUnavailable: the engine or the device is not here.
        EngineError: another engine than AICF failed.
    """

    def __init__(
        self,
        model: Model | CompiledModel,
        weights: Weights | None = None,
        *,
        device: str | None = None,
        engine: str | None = None,
        target: str | None = None,
        policy: Policy | None = None,
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
        policies, limits = _read_policies(policy, kernel_policy, exec_policy, precision_policy)
        request = Request(
            model,
            weights,
            device,
            target,
            policies,
            None if cache_dir is None else path_from(cache_dir, ArtifactError, "cache_dir"),
            dims,
            values,
            threads,
            tuning,
            flag_from(strict, PolicyError, "strict"),
            _read_passes(passes),
            flag_from(training, PolicyError, "training"),
            limits,
        )
        self._report = Report()
        self._engine_name, self._session, self._because = open_session(engine, request, self._report)
        if self._because:
            self._report.add(logging.INFO, "chosen", "", f"engine '{self._engine_name}': {self._because}")

    # What it is

    @property
    def input_info(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each input, in order; a symbolic size is its name."""
        return self._session.input_info

    @property
    def output_info(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each output, in order; a symbolic size is its name, `?` one that has none.

        An ONNX model may declare nothing of an output; it is then what the first program gives, and `?[?]` before that.
        """
        return self._session.output_info

    @property
    def engine_name(self) -> str:
        """The engine that runs the model, as in `aicf` or `openvino`."""
        return self._engine_name

    @property
    def target(self) -> str:
        """What runs it, in the engine's words: of `aicf` backend and level, as in `cpu:x86-64-v4`."""
        return self._session.target

    @property
    def engine(self) -> EngineRecord:
        """The engine's version, what it was asked for, and the hashes of model and plans; why, if `auto` chose it."""
        return replace(self._session.record, because=self._because)

    @property
    def report(self) -> Report:
        """What the session did on its own account: programs made, loaded, picked, evicted."""
        return self._report

    @property
    def memory(self) -> Any:
        """Bytes: of weights, and of each program those predicted and those requested (`MemoryUse`).

        Raises:
            PolicyError: another engine than AICF does not tell.
        """
        return self._session.memory

    def placement(self) -> Placement:
        """What runs where: device, kernels, memory and sizes of the programs that are there."""
        return self._session.placement()

    # Running

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None, *, out: Any = None) -> dict[str, Array]:
        """Runs the model once. Any number of threads may do so at once; calls of a model with state take turns.

        Args:
            feeds: Inputs by name, or a list of them in order: NumPy arrays of the exact dtype, DLPack objects, and on a
                GPU anything with `__cuda_array_interface__`.
            outputs: Names of the outputs that are wanted, in the order wanted; None for all.
            out: Arrays to write outputs into: by name, or one array if there is one output. `aicf` writes them without
                a copy.

        Returns:
            Fresh arrays by name, or those of `out`.

        Raises:
            InputMismatch: an input is missing, unknown, or of another rank, dtype or size; sizes contradict each other;
                an output is unknown; or the sizes have no program and none may be made.
            SessionClosed: the session is closed.
            EngineError: another engine than AICF failed.
        """
        return self._session.run(feeds, outputs, out=out)

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> SessionBinding:
        """Inputs and outputs on the caller's memory, to be run many times without a copy; see `Binding`.

        Raises:
            InputMismatch: as `Binding.bind`.
        """
        return self._session.bind(arrays, **named)

    def warm_up(self, dims: Mapping[str, int] | None = None, *, feeds: Feeds | None = None) -> None:
        """Runs programs once, so that their first call finds code, memory and device ready. A state is left alone.

        Args:
            dims: Sizes of all symbolic dimensions: the program for them, made if need be, on zeros.
            feeds: Inputs, as of `run`: the program for them, made if need be. With neither, all that are there.

        Raises:
            InputMismatch, SessionClosed: as `run`.
        """
        self._session.warm_up(dims, feeds=feeds)

    def profile(self, feeds: Feeds, repeats: int = 100) -> Profile:
        """Times of the instructions of the program that these inputs run, each with the ops of the model it stands for.

        It runs `repeats` times instruction by instruction and as often whole, on memory and state of its own. Other
        engines than AICF tell the times of nodes in their own words, if at all.

        Raises:
            InputMismatch, SessionClosed: as `run`.
            CaptureError: the backend runs whole programs only.
        """
        return self._session.profile(feeds, repeats)

    def state(self, *names: str) -> dict[str, Array]:
        """Copies of what calls update, parameters and states: those of these names, by default all.

        Raises:
            InputMismatch: a name is none of them.
            SessionClosed: the session is closed.
        """
        return self._session.state(*names)

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Replaces what calls update. Raises as `state`, and InputMismatch for what does not fit."""
        self._session.set_state(values)

    # The end

    def close(self) -> None:
        """Gives back memory and code. Calls in flight end as ever, later ones are an error."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {describe(spec.shape, spec.dtype)}" for spec in self.input_info)
        where = self.target if self._engine_name == OWN else f"{self._engine_name} on {self.target}"
        return f"InferenceSession({self._session.model}: {inputs}; {where})"


def _read_passes(passes: Passes) -> Sequence[Extension]:
    """One by one; without any, nothing of the compiler is imported."""
    if isinstance(passes, list | tuple) and not passes:
        return ()
    from aicf.compilation.extensions import flattened

    return flattened(passes)


def _read_policies(
    policy: Policy | None,
    kernel: KernelPolicyLike,
    execution: ExecutionPolicyLike,
    precision: PrecisionPolicyLike,
) -> tuple[AllPolicies | None, Limits]:
    """The policy of a session, None if nothing is given, and the limits in it."""
    if policy is None and kernel is None and execution is None and precision is None:
        return None, Limits()
    from aicf.inference.policies import limits_of, policies

    found = policies(policy, kernel, execution, precision)
    return found, limits_of(found)
