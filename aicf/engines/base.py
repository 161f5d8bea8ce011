"""The contract of an engine, in three steps: it is asked what it has, it prepares a model, and it opens sessions.

    engine.availability()                     yes, or what is missing and how to get it
    prepared = engine.prepare(request, report)    everything is checked; `prepared.fingerprint` says what it will be
    session = prepared.session()              run | bind | profile | report, for any number of threads

A backend (`aicf/backends/base.py`) has kernels, and the passes decide; an engine takes a whole model and decides
itself. AICF is an engine among others here. What an engine cannot follow it refuses: `follows` lists what it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aicf.engines.availability import Availability
from aicf.engines.interface import Feeds
from aicf.engines.placement import Placement
from aicf.engines.record import EngineRecord, Fingerprint
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.runtime.executable import TensorSpec
from aicf.runtime.profiler import Profile
from aicf.runtime.tensors import Array


class SessionBinding(Protocol):
    """Inputs and outputs of a session on the caller's memory. For one thread at a time."""

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> SessionBinding:
        """Binds inputs and outputs by name, in place of what was bound under these names; gives itself.

        Raises:
            InputMismatch: a name is unknown, or memory does not fit; nothing is bound then.
        """
        ...

    def run(self, n: int = 1) -> None:
        """Runs `n` times on what is bound, and waits for the end."""
        ...

    def start(self, n: int = 1) -> None:
        """As `run`, and may return before the end; raises InputMismatch if an input is not bound."""
        ...

    def wait(self) -> None:
        """Waits for what was started."""
        ...

    def __getitem__(self, name: str) -> Any:
        """The memory of an input or output: what was bound, else memory of the engine."""
        ...

    def outputs(self) -> dict[str, Any]:
        """The memory of all outputs by name."""
        ...


class EngineSession(Protocol):
    """A model that answers calls; see the methods of `InferenceSession`, which are these."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def target(self) -> str:
        """What runs it, in the engine's words."""
        ...

    @property
    def input_info(self) -> tuple[TensorSpec, ...]:
        """The inputs in order."""
        ...

    @property
    def output_info(self) -> tuple[TensorSpec, ...]:
        """The outputs in order."""
        ...

    @property
    def record(self) -> EngineRecord:
        """What runs, and what is known of it."""
        ...

    @property
    def memory(self) -> object:
        """Bytes, as the engine tells them; `str()` is plain text. Raises PolicyError if it tells nothing."""
        ...

    def placement(self) -> Placement:
        """What runs where."""
        ...

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None, *, out: Any = None) -> dict[str, Array]:
        """Runs the model once."""
        ...

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> SessionBinding:
        """Binds memory of the caller."""
        ...

    def warm_up(self, dims: Mapping[str, int] | None = None, *, feeds: Feeds | None = None) -> None:
        """Makes the next call of these sizes as fast as later ones."""
        ...

    def profile(self, feeds: Feeds, repeats: int = 100) -> Profile:
        """Times of whole runs, and of parts where the engine tells them."""
        ...

    def state(self, *names: str) -> dict[str, Array]:
        """Copies of what calls update."""
        ...

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Replaces what calls update."""
        ...

    def close(self) -> None:
        """Gives back what it holds; closing again does nothing."""
        ...


class Prepared(Protocol):
    """A model that an engine has accepted for a device and options."""

    @property
    def fingerprint(self) -> Fingerprint:
        """What its plans are found under, sizes apart."""
        ...

    def session(self) -> EngineSession:
        """Opens a session; what was asked for ahead is there when it returns.

        Raises:
            EngineError: the engine fails.
            AicfError: as `InferenceSession`.
        """
        ...


class Engine(Protocol):
    """What runs whole models.

    Attributes:
        name: As in `engine=`.
        is_verified: Whether it was tested where it runs. One that was not is never chosen by `auto`.
        follows: The arguments of `InferenceSession` and the fields of policies that it follows, None for all of them;
            others are refused before it is asked. `model` and `device` are always its own to judge.
    """

    name: str
    is_verified: bool
    follows: frozenset[str] | None

    def availability(self) -> Availability:
        """Whether it can run here. Never raises; it may import the engine."""
        ...

    def prepare(self, request: Request, report: Report) -> Prepared:
        """Accepts a model, or says why not.

        Args:
            request: What is asked for; of `policy` only fields in `follows` are not at their defaults.
            report: Is told of what the engine does on its own account from now on.

        Raises:
            BackendUnavailable: the engine or the device is not here.
            UnsupportedOp: it does not take such a model.
            PolicyError: the device, or the value of an option, is none of its own.
            EngineError: it fails.
        """
        ...
