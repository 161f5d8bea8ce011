"""From the device and the engine that a session is asked for to the target that its programs are compiled for.

A device is hardware, an engine the backend that runs programs on it: `cpu` has the engines `cpu` and `reference` and
those of plug-ins, `cuda` has `cuda`. An engine may name a level, as targets do: `cpu:x86-64-v3`.
"""

from __future__ import annotations

import re

from aicf.backends.registry import backend_names
from aicf.errors import BackendUnavailable, PolicyError, quoted

CPU, CUDA, REFERENCE = "cpu", "cuda", "reference"
DEVICES = (CPU, CUDA, "cuda:0", REFERENCE)
_ORDINAL = re.compile(r"cuda:(\d+)")


def target_for(device: str | None, engine: str | None) -> str | None:
    """The target of programs; None leaves it to the model, whose programs then run on the CPU unless it says otherwise.

    Raises:
        PolicyError: there is no such device or engine, or the engine does not run on the device.
        BackendUnavailable: the device is not the one that programs run on.
    """
    _check_name("device", device)
    _check_name("engine", engine)
    place = None if device is None else _place_of(device)
    if engine is None:
        return place
    backend = engine.partition(":")[0]
    if backend not in (known := backend_names()):
        raise PolicyError(f"engine: there is no '{backend}'; registered: {', '.join(known)}")
    if place is not None and backend not in _engines(place):
        raise PolicyError(
            f"engine: '{engine}' does not run on device '{device}'; legal: {', '.join(_engines(place))}"
        )
    return engine


def check_device(device: str | None, engine: str | None, backend: str, arch: str) -> None:
    """Raises PolicyError if a compiled program is not for the device and the engine that are asked for."""
    asked = target_for(device, engine)
    own = f"{backend}:{arch}"
    if device is not None and backend not in _engines(_place_of(device)):
        raise PolicyError(
            f"device: '{device}' is asked for, the program is compiled for {own}; compile it again"
        )
    if engine is not None and asked not in (backend, own):
        raise PolicyError(
            f"engine: '{engine}' is asked for, the program is compiled for {own}; compile it again"
        )


def _check_name(option: str, name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise PolicyError(f"{option}: {quoted(name)} is no name; legal: {', '.join(DEVICES)}")


def _place_of(device: str) -> str:
    """The backend that stands for a device."""
    if (ordinal := _ORDINAL.fullmatch(device)) is not None:
        if int(ordinal[1]) != 0:
            raise BackendUnavailable(
                f"device '{device}': programs run on the first GPU; CUDA_VISIBLE_DEVICES={ordinal[1]} makes it that one"
            )
        return CUDA
    if device not in DEVICES:
        raise PolicyError(f"device: there is no '{device}'; legal: {', '.join(DEVICES)}")
    return device


def _engines(place: str) -> list[str]:
    """The backends that run programs on a device."""
    if place != CPU:
        return [place]
    return [name for name in backend_names() if name != CUDA]
