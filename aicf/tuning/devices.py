"""Which device times the cases of a backend."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from aicf.backends.registry import backend_names, resolve_target
from aicf.errors import BackendUnavailable, PolicyError
from aicf.runtime.device import devices
from aicf.tuning.cases import Prepared
from aicf.tuning.measure import Device

_DEVICES = {
    "cpu": ("aicf.tuning.host_device", "HostDevice"),
    "cuda": ("aicf.tuning.cuda_device", "GpuDevice"),
}


def check_device(target: str) -> None:
    """Raises as `open_device`, and PolicyError for an unknown target; asked before cases are compiled for minutes."""
    backend, named, _ = target.partition(":")
    if named:
        resolve_target(target)
    _check_backend(backend)
    reason = f"there is no device of backend '{backend}' here"
    try:
        if devices(backend):
            return
    except BackendUnavailable as error:
        reason = error.message
    raise BackendUnavailable(
        f"{reason}; `aicf tune MODEL --prepare FOLDER` compiles without one, `aicf tune --measure FOLDER` measures "
        "where it is"
    )


def open_device(prepared: Prepared) -> Device:
    """The device of this machine that the cases are for.

    Raises:
        PolicyError: programs of that backend cannot be timed one instruction at a time.
        BackendUnavailable: there is no such device here.
    """
    _check_backend(prepared.backend)
    module, name = _DEVICES[prepared.backend]
    return cast("Device", getattr(import_module(module), name)(prepared))


def _check_backend(backend: str) -> None:
    if backend in backend_names() and backend not in _DEVICES:
        raise PolicyError(f"backend '{backend}' cannot be measured; those that can: {', '.join(_DEVICES)}")
