"""Which device times the cases of a backend."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from aicf.errors import PolicyError
from aicf.tuning.measure import Device
from aicf.tuning.prepared import Prepared

_DEVICES = {
    "cpu": ("aicf.tuning.host_device", "HostDevice"),
    "cuda": ("aicf.tuning.cuda_device", "CudaDevice"),
}


def open_device(prepared: Prepared) -> Device:
    """The device of this machine that the cases are for.

    Raises:
        PolicyError: programs of that backend cannot be timed one instruction at a time.
        BackendUnavailable: there is no such device here.
    """
    if prepared.backend not in _DEVICES:
        legal = ", ".join(_DEVICES)
        raise PolicyError(f"backend '{prepared.backend}' cannot be measured; those that can: {legal}")
    module, name = _DEVICES[prepared.backend]
    return cast("Device", getattr(import_module(module), name)(prepared))
