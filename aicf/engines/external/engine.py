"""The base of engines outside of AICF: from a request to plans and a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import cast

from aicf.engines.availability import Availability
from aicf.engines.external.adapter import ExternalModel
from aicf.engines.external.errors import engine_errors
from aicf.engines.external.onnx_model import OnnxModel, read_onnx_model
from aicf.engines.external.plan_folder import PlanFolder
from aicf.engines.external.plans import Plans
from aicf.engines.external.session import ExternalSession
from aicf.engines.record import Fingerprint
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.errors import BackendUnavailable, PolicyError, quoted


class ExternalEngine(ABC):
    """See `Engine`; a new engine says what is abstract here."""

    name: str
    is_verified: bool = True
    follows: frozenset[str] | None = frozenset({"dims", "new_shapes"})

    @abstractmethod
    def availability(self) -> Availability:
        """See `Engine`."""

    @abstractmethod
    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        """A model, for the device and the options of a request.

        Raises:
            PolicyError: the device, or the value of an option, is none of the engine's.
            UnsupportedOp, BackendUnavailable: see `Engine.prepare`. Anything else is a failure of the engine.
        """

    def prepare(self, request: Request, report: Report) -> PreparedExternal:
        """See `Engine`."""
        found = self.availability()
        if not found.is_available:
            raise BackendUnavailable(f"engine '{self.name}' cannot run here: {found}")
        model = read_onnx_model(request.model, f"engine '{self.name}'")
        with engine_errors(self.name, "read the model"):
            accepted = self.accept(model, request, found)
        return PreparedExternal(accepted, request, report, is_verified=self.is_verified)

    def device_of(self, request: Request, names: Mapping[str, str], default: str) -> str:
        """The engine's name for the device of a request; names are compared without regard to case.

        Args:
            names: What `device=` may say, and the engine's name for it.
            default: What None says.

        Raises:
            PolicyError: there is no such device here.
        """
        device = cast(object, request.device)
        if device is None:
            return names[default]
        by_name = {name.lower(): own for name, own in names.items()}
        if not isinstance(device, str) or device.lower() not in by_name:
            legal = ", ".join(names)
            raise PolicyError(f"device: engine '{self.name}' finds no {quoted(device)} here; legal: {legal}")
        return by_name[device.lower()]


class PreparedExternal:
    """See `Prepared`."""

    def __init__(self, model: ExternalModel, request: Request, report: Report, *, is_verified: bool) -> None:
        self._model, self._request, self._report = model, request, report
        self._is_verified = is_verified

    @property
    def fingerprint(self) -> Fingerprint:
        """See `Prepared`."""
        return self._model.fingerprint

    def session(self) -> ExternalSession:
        """See `Prepared`."""
        request, interface = self._request, self._model.model.interface()
        folder = None if request.cache_dir is None else PlanFolder(request.cache_dir, self._report)
        plans = Plans(self._model, interface, _dims(request), request.limits, folder, self._report)
        return ExternalSession(self._model, interface, plans, self._report, is_verified=self._is_verified)


def _dims(request: Request) -> Mapping[str, Sequence[int]]:
    from aicf.compilation.sources import dims_text
    from aicf.passes.logical.specialize_shapes import parse_dims

    return parse_dims(dims_text(request.dims))


def threads_of(request: Request) -> int:
    """Threads that run a plan together; 1 if nothing is said. Raises PolicyError for what is no number of threads."""
    from aicf.backends.registry import check_threads

    threads = 1 if request.threads is None else request.threads
    check_threads(threads)
    return threads


def precision_of(request: Request, legal: Sequence[str], engine: str) -> str:
    """What the precision policy asks for. Raises PolicyError if the engine cannot compute in it."""
    wanted = "unchanged" if request.policy is None else request.policy.precision.to
    if wanted not in legal:
        raise PolicyError(
            f"to: engine '{engine}' cannot compute in {quoted(wanted)} on this device; legal: {', '.join(legal)}"
        )
    return wanted
