"""From the device and the target that a session is asked for to the target that its programs are compiled for.

A device is hardware, a target the backend that runs programs on it, with a level if that matters: `cpu:x86-64-v3`. Each
backend says which device is its own; one that says nothing runs on the processor, `cpu`. The name of a backend is also
a name of its device, with that backend alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicf.backends.registry import backend_names, get_backend, runs_on_any_device
from aicf.errors import BackendUnavailable, PolicyError, quoted
from aicf.runtime.device import split_device

PROCESSOR = "cpu"


def target_for(device: str | None, target: str | None) -> str | None:
    """The target of programs; None leaves it to the model, whose programs then run on the CPU unless it says otherwise.

    Raises:
        PolicyError: there is no such device or backend, or the backend does not run on the device.
        BackendUnavailable: the device is not the one that programs run on, or the backend does not import here.
    """
    _check_name("device", device)
    _check_name("target", target)
    name = None if device is None else _device_named(device)
    if target is None:
        return None if name is None else _default_backend(name)
    backend = target.partition(":")[0]
    if backend not in (known := backend_names()):
        raise PolicyError(f"target: there is no backend '{backend}'; registered: {', '.join(known)}")
    if name is not None and not _runs_on(backend, name):
        raise PolicyError(
            f"target: '{target}' does not run on device '{device}'; legal: {', '.join(_backends(name))}"
        )
    return target


def check_device(device: str | None, target: str | None, backend: str, arch: str) -> None:
    """Raises PolicyError if a compiled program is not for the device and the target that are asked for."""
    requested = target_for(device, target)
    own = f"{backend}:{arch}"
    if device is not None and not _runs_on(backend, _device_named(device)):
        raise PolicyError(
            f"device: '{device}' is asked for, the program is compiled for {own}; compile it again"
        )
    if target is not None and requested not in (backend, own):
        raise PolicyError(
            f"target: '{target}' is asked for, the program is compiled for {own}; compile it again"
        )


def _check_name(option: str, name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise PolicyError(f"{option}: {quoted(name)} is no name; legal: {', '.join(_names())}")


def ordinal_of(device: str | None) -> int:
    """The number of a device that is known, 0 if it names none."""
    return 0 if device is None else split_device(device)[1]


def _device_named(device: str) -> str:
    """A device without its number."""
    name, ordinal = split_device(device)
    # A backend's name is known without loading it: compiled programs are served without the compiler.
    if name not in backend_names() and not _backends(name):
        raise PolicyError(f"device: there is no '{device}'; legal: {', '.join(_names())}")
    if ordinal and not runs_on_any_device(_default_backend(name)):
        raise BackendUnavailable(f"device '{device}': {_how_to_choose(name, ordinal)}")
    return name


def _how_to_choose(name: str, ordinal: int) -> str:
    from aicf.backends.base import DeviceBackend

    backend = get_backend(_default_backend(name))
    return backend.how_to_choose(ordinal) if isinstance(backend, DeviceBackend) else "there is one"


def device_of_backend(backend: str) -> str:
    """The device that a backend runs programs on. Raises BackendUnavailable if it does not import here."""
    from aicf.backends.base import DeviceBackend

    found = get_backend(backend)
    return found.device if isinstance(found, DeviceBackend) else PROCESSOR


def _runs_on(backend: str, device: str) -> bool:
    return device == backend or device_of_backend(backend) == device


def _default_backend(device: str) -> str:
    """The backend that is called after a device, else the first that runs on it."""
    return device if device in backend_names() else _backends(device)[0]


def _backends(device: str) -> list[str]:
    """The backends that import here and run programs on a device."""
    return [name for name, own in _devices() if device in (name, own)]


def _names() -> list[str]:
    """What a device may be called."""
    names = {name for entry in _devices() for name in entry}
    return sorted(names | {f"{own}:0" for _, own in _devices() if own != PROCESSOR})


def _devices() -> Iterator[tuple[str, str]]:
    """The backends that import here, each with its device."""
    for name in backend_names():
        try:
            yield name, device_of_backend(name)
        except BackendUnavailable:
            continue
