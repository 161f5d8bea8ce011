"""AICF as an engine: it takes every model that `aicf.compile` takes, and artifacts, and follows every option."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from aicf.engines.availability import Availability
from aicf.engines.record import Fingerprint
from aicf.engines.registry import OWN
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.inference.program_session import ProgramSession
from aicf.inference.program_sources.base import ProgramSource
from aicf.inference.program_sources.opening import open_source


class OwnEngine:
    """See `Engine`."""

    name = OWN
    is_verified = True
    follows = None

    def availability(self) -> Availability:
        """It is here; its devices are those of the backends that find one."""
        from aicf.inference.devices import device_of_backend
        from aicf.runtime.device import devices

        names = {device_of_backend(device.backend) for device in devices()}
        return Availability(_version(), tuple(sorted(names)))

    def prepare(self, request: Request, report: Report) -> PreparedPrograms:
        """Reads the model, or opens the artifact. Raises as `InferenceSession`."""
        return PreparedPrograms(open_source(request, report), request, report)


class PreparedPrograms:
    """See `Prepared`: a source of programs."""

    def __init__(self, source: ProgramSource, request: Request, report: Report) -> None:
        self._source, self._request, self._report = source, request, report

    @property
    def fingerprint(self) -> Fingerprint:
        """What it was asked for. Its programs have identities of their own: their artifacts."""
        request = self._request
        options = {"threads": str(self._source.threads)}
        if request.policy is not None:
            options["policy"] = request.policy.to_line()
        return Fingerprint(OWN, _version(), self._source.name, options)

    def session(self) -> ProgramSession:
        """See `Prepared`."""
        return ProgramSession(self._source, self.fingerprint, self._request.limits, self._report)


def _version() -> str:
    try:
        return version("aicf")
    except PackageNotFoundError:
        return f"from a clone, Python {platform.python_version()}"
