"""Which device times the cases of a backend."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from aicf.backends.registry import get_backend
from aicf.errors import BackendUnavailable, PolicyError
from aicf.tuning.cases import Prepared
from aicf.tuning.measure import Device

_DEVICES = {
    "cpu": ("aicf.tuning.host_device", "HostDevice"),
    "cuda": ("aicf.tuning.cuda_device", "GpuDevice"),
}


def open_device(prepared: Prepared) -> Device:
    """The device of this machine that the cases are for.

    Raises:
        PolicyError: programs of that backend cannot be timed one instruction at a time.
        BackendUnavailable: there is no such device here.
    """
    module, name = _entry(prepared.backend)
    return cast("Device", getattr(import_module(module), name)(prepared))


def require_device(backend: str) -> None:
    """Asks for a device before minutes of compiling go into cases for it.

    Raises:
        PolicyError: programs of that backend cannot be timed one instruction at a time.
        BackendUnavailable: there is no such device here.
    """
    _entry(backend)
    way_out = "compile the cases here with --prepare, measure them where it is with --measure"
    try:
        found = get_backend(backend).devices()
    except BackendUnavailable as error:
        raise BackendUnavailable(f"{error}; or {way_out}") from error
    if not found:
        raise BackendUnavailable(f"backend '{backend}' has no device here; {way_out}")


def _entry(backend: str) -> tuple[str, str]:
    if backend not in _DEVICES:
        raise PolicyError(f"backend '{backend}' cannot be measured; those that can: {', '.join(_DEVICES)}")
    return _DEVICES[backend]
